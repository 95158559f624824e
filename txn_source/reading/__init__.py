"""Planning of reads, for batches and streams, over any log: our own, Kafka's, Pulsar's. A log is a ``LogSource``."""
