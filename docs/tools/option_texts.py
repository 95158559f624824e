"""What each option of Spark's reads and writes means. A test compares the names with those that the code takes."""

from __future__ import annotations

DEFAULTS_AND_MEANINGS: dict[str, tuple[str, str]] = {
    "path": ("", "the log: `.load(\"/path\")`. Each query needs this or `endpoint`"),
    "endpoint": ("", "`host:port` of `txnlog serve`; several services of one log with commas between them"),
    "tlsCa": ("", "authorities of the service's certificate, a file or `system`; see [access](../access.md)"),
    "tlsCert": ("", "this client's own certificate, a file"),
    "tlsKey": ("", "its private key, a file"),
    "tokenFile": ("", "the token that the service is shown, in a file"),
    "topic": ("", ("one topic, or one partition: `orders-partition-3`. A read needs one of `topic`, `topics` and"
              " `topicsPattern`; a write this or a column `__topic`")),
    "topics": ("", "a comma list of topics, read at one cut"),
    "topicsPattern": ("", "a regular expression for whole names of topics"),
    "isolationLevel": ("`read_committed`", "or `read_uncommitted`; a stream with a subscription has that one's"),
    "dataReadPriority": ("the topic's policy", "`tiered-first` or `bookkeeper-first`: which copy is read first"),
    "startingOffsets": ("`earliest`; of a stream `latest`",
                        ("`earliest`, `latest` or JSON, `{\"orders\": {\"0\": \"12:40\"}}`:"
                        " the next position to read. Or a cut. Of a stream it counts for a new query only")),
    "endingOffsets": ("`latest`", "the same, exclusive; of batch reads"),
    "startingTimestamp": ("", ("milliseconds since 1970, or ISO 8601 with a zone: the first message published then or"
                               " later")),
    "endingTimestamp": ("", "the same as an end, exclusive; of batch reads"),
    "asOfTimestamp": ("", ("what `read_committed` would have seen at that time, by the times of commits. Refused if all"
                      " that a partition had then was trimmed")),
    "metadataColumns": ("`default`", "`none`, `default`, `all`, or a comma list; see [columns](columns.md)"),
    "consistentCut": ("`true`", ("`false` lets a `read_committed` read of several partitions end on each at its own"
                      " bound, where it may see one half of a transaction")),
    "minPartitions": ("", "into about how many tasks the read is divided, at least"),
    "maxPartitionBytes": ("`128m`", "how large a task may be"),
    "failOnDataLoss": ("`true`", "`false` goes on, with a warning, where something was trimmed or a topic was deleted"),
    "metadataTable": ("", ("a table about the log in place of messages: `transactions`, `ledgers`, `subscriptions` or"
                      " `partitions`; see [tables about the log](../metadata-tables.md)")),
    "lane": ("`auto`", ("with the catalog's jar: `python` lets Spark take all rows from its reader of Python sources,"
             " one by one, which is slower")),
    "maxMessagesPerTrigger": ("", ("soft limit of a batch: one entry, or one whole transaction, always gets through."
                              " Messages count as a reader of the level sees them")),
    "maxBytesPerTrigger": ("", "the same in bytes as they are stored, such as `64m`"),
    "minMessagesPerTrigger": ("", "wait until there are so many messages"),
    "maxTriggerDelay": ("`15m`", "but no longer than this since the last batch"),
    "subscription": ("", ("of one topic: begin where it stands, read at its level, acknowledge what is done, follow"
                     " seeks; see [subscriptions](../subscriptions.md#from-spark)")),
    "transactionalId": ("", "fences: an older job, or producer, with that id can't commit any more"),
    "txnAppId": ("", "who numbers this write; with `txnVersion` a topic takes each version once"),
    "txnVersion": ("", "the number: a whole number, 0 or more, and larger each time"),
    "insertable": ("`false`", "of `CREATE TABLE`: `INSERT` finds its way by the table's own options"),
    "nativeTieredReads": ("`true`", "`false` keeps Spark's own Parquet reader from reading tiered objects"),
    "allowDrop": ("`false`", "`true` lets `DROP TABLE` delete topics with their messages"),
}  # fmt: skip

FOREIGN_MEANINGS: dict[str, str] = {
    "includeHeaders": "whether there is a column `headers`; true unless it is set",
    "subscribe": "the same as `topics`",
    "subscribePattern": "the same as `topicsPattern`",
    "assign": "partitions, `{\"orders\": [0, 1]}`",
    "startingOffsetsByTimestamp": "a time for each partition, in milliseconds",
    "endingOffsetsByTimestamp": "the same as an end",
    "startingOffsetsByTimestampStrategy": "`error` or `latest`, where no record is that young",
    "kafka.isolation.level": "the same as `isolationLevel`",
    "maxOffsetsPerTrigger": "limit of a stream's batch, in offsets",
    "minOffsetsPerTrigger": "least size of a stream's batch, in offsets",
    "groupIdPrefix": "means nothing: there is no connection",
    "fetchOffset.numRetries": "means nothing",
    "fetchOffset.retryIntervalMs": "means nothing",
    "kafkaConsumer.pollTimeoutMs": "means nothing",
    "kafkaConsumer.useDeprecatedOffsetFetching": "means nothing",
    "maxRecordsPerPartition": "means nothing; use `maxPartitionBytes`",
    "trustTransactionIndexes": "`false` reads the markers always; see [Kafka's files](../kafka.md)",
    "managedLedgers": "the list of a topic's ledgers; see [Pulsar's ledgers](../pulsar.md#which-objects-count)",
    "transactionSnapshots": "see [Pulsar's ledgers](../pulsar.md#which-rows-there-are)",
    "schema": "types of keys and values; see [typed columns](../pulsar.md#typed-columns)",
    "encrypted": "`error` or `keep`",
    "badValues": "`error` or `null`",
}  # fmt: skip
"""Options that only logs of others have."""
