"""Options of Kafka's and Pulsar's connectors, which people bring along, and what does the same here.

They are refused wherever they mean something, since a query that takes no notice of them would read or write something
else than it says.
"""

from __future__ import annotations

_LOG = 'Give .load("/path/of/the/log"), or .option("endpoint", "host:port") of `txnlog serve`.'
_CLIENT = "Leave it out: there is no client of a broker to be set up."
_TIMES = "Use 'startingTimestamp' and 'endingTimestamp', one for all partitions."

_SECRET = "A secret in an option shows in plans and logs: put it in a file, and name that by 'tokenFile'."

_FOREIGN = {
    "token": _SECRET,
    "authorization": _SECRET,
    "kafka.bootstrap.servers": _LOG,
    "kafka.group.id": "Use 'subscription', of a stream.",
    "groupIdPrefix": "Use 'subscription', of a stream.",
    "subscribe": "Use 'topic' for one topic, or 'topics' for a comma list.",
    "subscribePattern": "Use 'topicsPattern'.",
    "assign": "Use 'topic' with the name of a partition, such as orders-partition-3.",
    "includeHeaders": "They are the column __properties: read it by 'metadataColumns', and write it as a column.",
    "startingOffsetsByTimestamp": _TIMES,
    "endingOffsetsByTimestamp": _TIMES,
    "startingOffsetsByTimestampStrategy": _TIMES,
    "maxOffsetsPerTrigger": "Use 'maxMessagesPerTrigger'.",
    "minOffsetsPerTrigger": "Use 'minMessagesPerTrigger'.",
    "maxRecordsPerPartition": "Use 'maxPartitionBytes'.",
    "kafkaConsumer.pollTimeoutMs": _CLIENT,
    "fetchOffset.numRetries": _CLIENT,
    "fetchOffset.retryIntervalMs": _CLIENT,
    "service.url": _LOG,
    "admin.url": _LOG,
    "predefinedSubscription": "Use 'subscription', of a stream.",
    "subscriptionPrefix": "Use 'subscription', of a stream.",
    "subscriptionName": "Use 'subscription', of a stream.",
    "startingTime": "Use 'startingTimestamp'.",
    "endingTime": "Use 'endingTimestamp'.",
    "pollTimeoutMs": _CLIENT,
    "allowDifferentTopicSchemas": "Name the columns that the topics share with .schema(...).",
}
_BY_NAME = {name.lower(): (name, remedy) for name, remedy in _FOREIGN.items()}
_PREFIXES = ("kafka.", "pulsar.")


def foreign_option(name: str) -> tuple[str, str] | None:
    """Return the proper name of another connector's option and what to use instead; None if it isn't one.

    Args:
        name: in any case.
    """
    lower = name.lower()
    if lower in _BY_NAME:
        return _BY_NAME[lower]
    return (name, _CLIENT) if lower.startswith(_PREFIXES) else None
