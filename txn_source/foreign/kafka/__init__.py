"""Kafka's log directories and tiered segments, as its brokers leave them."""
