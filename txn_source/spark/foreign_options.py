"""Options of other formats and connectors, which people bring along, and what does the same here.

Each is refused, as any unknown option is: these with the way to say it here.
"""

from __future__ import annotations

_LOG = 'Give .load("/path/of/the/log"), or .option("endpoint", "host:port") of `txnlog serve`.'
_CLIENT = "Leave it out: there is no client of a broker to be set up."
_TIMES = "Use 'startingTimestamp' and 'endingTimestamp', one for all partitions."

_AS_OF = "Use 'asOfTimestamp', or TIMESTAMP AS OF in a query through the catalog."
_VERSION = "Use 'startingOffsets' and 'endingOffsets', or VERSION AS OF with a cut in a query through the catalog."
_CHANGES = "Leave it out: each row of a topic is a change."
_MOST = "Use 'maxMessagesPerTrigger' or 'maxBytesPerTrigger'."
_SCHEMA = "Leave it out: a topic's columns don't change by a write."
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
    # Delta, Iceberg, Hudi, Paimon
    **dict.fromkeys(("timestampAsOf", "as-of-timestamp", "scan.timestamp", "as.of.instant"), _AS_OF),
    **dict.fromkeys(("versionAsOf", "startingVersion", "endingVersion", "snapshot-id", "start-snapshot-id"), _VERSION),
    **dict.fromkeys(("end-snapshot-id", "branch", "tag", "scan.snapshot-id", "scan.mode"), _VERSION),
    **dict.fromkeys(("stream-from-timestamp", "start-timestamp", "end-timestamp"), _TIMES),
    **dict.fromkeys(("readChangeFeed", "readChangeData", "ignoreDeletes", "ignoreChanges"), _CHANGES),
    **dict.fromkeys(("skipChangeCommits", "streaming-skip-delete-snapshots"), _CHANGES),
    **dict.fromkeys(("streaming-skip-overwrite-snapshots", "withEventTimeOrder"), _CHANGES),
    **dict.fromkeys(("maxFilesPerTrigger", "streaming-max-files-per-micro-batch"), _MOST),
    "streaming-max-rows-per-micro-batch": "Use 'maxMessagesPerTrigger'.",
    "split-size": "Use 'maxPartitionBytes'.",
    **dict.fromkeys(("mergeSchema", "overwriteSchema", "merge-schema", "check-nullability"), _SCHEMA),
    **dict.fromkeys(("replaceWhere", "partitionOverwriteMode"), "Leave it out: a write appends."),
    "allowDifferentTopicSchemas": "Name the columns that the topics share with .schema(...).",
}
_BY_NAME = {name.lower(): (name, remedy) for name, remedy in _FOREIGN.items()}
_PREFIXES = ("kafka.", "pulsar.")
_OTHERS = ("hoodie.", "delta.", "iceberg.", "paimon.")


def foreign_option(name: str) -> tuple[str, str] | None:
    """Return the proper name of another connector's option and what to use instead; None if it isn't one.

    Args:
        name: in any case.
    """
    lower = name.lower()
    if lower in _BY_NAME:
        return _BY_NAME[lower]
    if lower.startswith(_OTHERS):
        return name, "Leave it out: the log is another format."
    return (name, _CLIENT) if lower.startswith(_PREFIXES) else None
