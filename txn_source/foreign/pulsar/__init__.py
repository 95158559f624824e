"""What Apache Pulsar offloaded: ledgers in object stores and on file systems, read where they lie."""
