"""What usually causes each error, and what to do. A test compares the codes with those of the code base."""

from __future__ import annotations

CAUSES_AND_REMEDIES: dict[str, tuple[str, str]] = {
    "INVALID_ARGUMENT": (
        "An option, argument or name that can't be, is misspelt, or belongs to another kind of query.",
        "The error names the value and what is taken. Correct the call; repeating it as it is doesn't help.",
    ),
    "SCHEMA_MISMATCH": (
        "A row, batch or DataFrame whose columns or types aren't the topic's, or a read of a column that isn't there.",
        "Compare with `log.schema(topic)`; cast, rename or leave out what the error names.",
    ),
    "LOG_NOT_FOUND": (
        (
            "A path with a typing error, or a folder without `txnlog.json`: readers never make a log. Or the log has"
            " lost its database."
        ),
        (
            "Check the path. A new log is made by `txn_source.connect(path)` in an empty folder. For a lost"
            " database see [backup](../recovery.md)."
        ),
    ),
    "LOG_VERSION": (
        "The log was written, or its tables were upgraded, by a newer release.",
        "Upgrade this installation; see [upgrade](../upgrade.md).",
    ),
    "TOPIC_NOT_FOUND": (
        "A misspelt topic, another namespace, a partition that there isn't, or a topic that was deleted.",
        "`txnlog topics list` shows what there is.",
    ),
    "TOPIC_EXISTS": ("Two programs make the same topic.", "Use the topic that is there, or another name."),
    "NAMESPACE_NOT_FOUND": (
        "A policy for, or a listing of, a namespace in which no topic lies.",
        "Check the name, `tenant/namespace`, or make its first topic.",
    ),
    "ONLY_COPY": (
        "Deleting a copy of a ledger that has no other one.",
        "Offload the ledger first. To delete messages for good, trim.",
    ),
    "OUT_OF_RANGE": (
        (
            "A position below the log's start, above its end, or of another topic; often one that was kept since"
            " before a trim, or since before the topic was made again."
        ),
        "Start at `earliest`, or at a position that `txnlog topics stats` shows.",
    ),
    "TXN_NOT_FOUND": (
        "An id that was never given out, or of a transaction that ended long ago and whose ledgers were trimmed.",
        "Check the id: `txnlog transactions list`.",
    ),
    "TXN_ENDED": (
        "A send, commit or abort after the transaction's end; the error says which end it was.",
        "Begin a new transaction. What was committed stays, what was aborted is to be sent again.",
    ),
    "TXN_TIMED_OUT": (
        "The transaction was open for longer than its timeout, and the service aborted it.",
        "Send it again in a new transaction, with a longer `timeout` or with less work in it.",
    ),
    "ACKNOWLEDGED_ELSEWHERE": (
        "Another consumer has acknowledged a message that this transaction acknowledges: it was delivered twice.",
        "Abort the transaction and go on. The other consumer's work counts.",
    ),
    "SUBSCRIPTION_NOT_FOUND": (
        "A misspelt name, or a subscription that was deleted, or was not durable.",
        "`txnlog subscriptions list` shows what there is; `subscribe` with an isolation level makes one.",
    ),
    "SUBSCRIPTION_EXISTS": (
        "Making a subscription with another type, level or place than the one of that name has.",
        "Use the one that is there, or another name.",
    ),
    "SUBSCRIPTION_BUSY": (
        "An exclusive subscription has a consumer, or a streaming query holds it; or a level is changed under one.",
        "Close the other one, wait until its lease ends (15 s), or use the type `failover` or `shared`.",
    ),
    "SUBSCRIPTION_ISOLATION_MISMATCH": (
        "The consumer or stream asks for the other level than the subscription was made with.",
        (
            "Leave the level out, use another name, or change it while nobody is connected:"
            " `txnlog subscriptions set-isolation-level`."
        ),
    ),
    "STALE_EPOCH": (
        "A seek or a redelivery came between receiving a message and committing it.",
        "Abort the transaction; the messages come again.",
    ),
    "BATCH_REPEATED": (
        "A checkpoint that is older than what its query has written, a copy of one, or a batch that isn't what it was.",
        "Go on from the newest checkpoint, or give a new query a new one.",
    ),
    "PRODUCER_FENCED": (
        "A newer producer or job has the same transactional id.",
        "Stop this one: the newer one does its work. If both are wanted, give them different ids.",
    ),
    "SEGMENT_UNREADABLE": (
        "All copies of a range are missing, cut short or damaged; the error lists each with its reason.",
        "Bring one of them back (a mount, a bucket's permissions, a backup). See [backup](../recovery.md).",
    ),
    "STORAGE_WRITE_FAILED": (
        "The disk is full, read-only, or the bucket refuses.",
        "Make room or permissions, and call again: nothing was registered, and a producer keeps its messages.",
    ),
    "STALE_SEGMENT": (
        "A segment was deleted with its ledgers while a producer had it open. Producers go on by themselves.",
        "Nothing is to be done, unless a program registers segments itself: write a new one.",
    ),
    "MESSAGE_UNREADABLE": (
        "One message was stored damaged, or isn't what its schema says.",
        "Call again to go on behind it; `consumer.acknowledge(error.message)` keeps it from coming again.",
    ),
    "DATA_LOSS": (
        "What a read or stream still needed was trimmed or deleted, or a topic was made again.",
        (
            "Keep data longer (retention), or keep a subscription, which trimming spares. To go on without it:"
            " `failOnDataLoss=false`, or a new start."
        ),
    ),
    "NO_JAR": (
        "Spark's catalog was asked for, the wheel's jar is for another Spark, and there is no JDK to compile it.",
        "Install a JDK 17 or newer, or a wheel for this minor version of Spark.",
    ),
    "UNAUTHENTICATED": (
        "The service wants a token, and there is none, or it has ended, or its key isn't known.",
        "Give `token_file`; `txnlog tokens show` tells what a token is. See [access](../access.md).",
    ),
    "PERMISSION_DENIED": (
        "The token lacks a role for a topic, or a producer, transaction or id belongs to somebody else.",
        "The error names the role. Get a token that has it; see [roles](../access.md#roles).",
    ),
    "LIMIT_EXCEEDED": (
        "More consumers, open transactions, or bytes in one request than the service allows one identity.",
        "Use fewer, or raise the limit of `txnlog serve`; see [limits](../access.md#limits).",
    ),
    "RATE_LIMITED": (
        "Too many calls in a short time. Clients wait and try again; this is told when their timeout ends.",
        "Send more in each call, or raise `--max-calls`.",
    ),
    "FAILED": (
        "An exception interrupted an earlier call of the object: a second Ctrl-C, or a lack of memory.",
        (
            "Open another producer, transaction or consumer; acknowledged messages are stored. `log.transaction(id)`"
            " shows the outcome of a transaction."
        ),
    ),
    "UNAVAILABLE": (
        "The service, its database or the store didn't answer in time.",
        "Call again: nothing is lost, and nothing is stored twice. See [reliability](../reliability.md).",
    ),
    "INTERNAL": (
        "A state that should never be: a bug of txnlog.",
        "Keep the text and what led to it, and report it. The log itself isn't harmed by the error.",
    ),
}
