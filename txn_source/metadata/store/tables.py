"""The tables of the metadata database. It is the truth: the service keeps nothing that a restart would miss.

A position is stored as one sortable integer (``Position.key``). Running totals (``*_before``) make "how much lies
between two positions" one subtraction; they count from the partition's beginning and never go down.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
    literal_column,
    select,
    text,
)

metadata = MetaData()

_Text = String().with_variant(String(collation="C"), "postgresql")
"""Text that is ordered by its code points, as SQLite does, whatever the locale."""
_Id = BigInteger().with_variant(Integer, "sqlite")
"""SQLite counts rows by itself only in a column declared INTEGER."""


def is_in(state: Column[int], value: int) -> ColumnElement[bool]:
    """Return the condition that a row is in a state, as the indexes of the rows of that state have it.

    A value that is bound later would leave it open whether an index holds what is asked for.
    """
    return state == literal_column(str(value))


SEVERAL_PARTITIONS = 0
"""In the place of a segment's partition."""
DELETED, CONDEMNED = 1, 2
"""Why nothing may be registered from a segment any more: its ledgers are gone, or it was taken for garbage."""
WRITING, CLOSED, LOST, IDLE = 0, 1, 2, 3
"""Whether a producer may append: it may; it was closed, or a newer one took over; the log was put back to a moment
before its end; it may, and hasn't for so long that what it left unregistered is garbage."""

log_info = Table(
    "log_info",
    metadata,
    Column("log_id", _Text, primary_key=True),
    Column("format_version", Integer, nullable=False),
    Column("decisions", BigInteger, nullable=False),  # how many transactions have ended, ever
    Column("transactions", BigInteger, nullable=False),  # how many have begun: the next one's id
    Column("last_ended_at_ms", BigInteger, nullable=False, default=0),  # of a transaction; see timekeeping.py
    Column("looked_at_ms", BigInteger, nullable=False, default=0),  # what the clock showed then
    Column("measured_ms", BigInteger, nullable=False, default=0),  # time that has passed, whatever the clock shows
    Column("snapshot_doomed_id", BigInteger),  # files doomed up to it are in a snapshot; unset: none is kept
    Column("snapshot_wait_until_ms", BigInteger),  # in measured time: files aren't kept for a snapshot for longer
    Column("snapshot_activity", BigInteger),  # of the log, when the last snapshot was made
    Column("recovered_at_ms", BigInteger),  # set: what the log lost then lies in its roots, and nobody has settled that
    Index("one_log", text("(1)"), unique=True),
)

schema_versions = Table(  # those that the tables were made with or upgraded to: the highest one is theirs
    "schema_versions",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
)

requests = Table(  # answers of the calls that change something, for those who ask again
    "requests",
    metadata,
    Column("request_id", _Text, primary_key=True),
    Column("answer", LargeBinary, nullable=False),
    Column("stored_at_ms", BigInteger, nullable=False, index=True),  # in measured time
    Column("fingerprint", LargeBinary, nullable=False),  # of the call that it answers
)

topics = Table(
    "topics",
    metadata,
    Column("topic_id", _Id, Identity(), primary_key=True),
    Column("name", _Text, nullable=False, unique=True),
    Column("schema", LargeBinary),
    Column("ledger_max_entries", BigInteger, nullable=False),
    Column("ledger_max_bytes", BigInteger, nullable=False),
    Column("ledger_max_age_ms", BigInteger, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

partitions = Table(
    "partitions",
    metadata,
    Column("partition_id", _Id, Identity(), primary_key=True),
    Column("topic_id", ForeignKey("topics.topic_id", ondelete="CASCADE"), nullable=False),
    Column("partition_index", Integer, nullable=False),
    Column("log_start", BigInteger, nullable=False),
    Column("trimmed_end", BigInteger, nullable=False, default=0),  # of the last ledger that was trimmed; 0: none was
    Column("open_ledger_id", BigInteger, nullable=False),
    Column("messages_trimmed", BigInteger, nullable=False, default=0),
    Column("bytes_trimmed", BigInteger, nullable=False, default=0),
    Column("last_publish_time_us", BigInteger, nullable=False, default=0),
    UniqueConstraint("topic_id", "partition_index"),
    sqlite_autoincrement=True,
)

ledgers = Table(
    "ledgers",
    metadata,
    Column("ledger_id", _Id, Identity(), primary_key=True),
    Column("partition_id", ForeignKey("partitions.partition_id", ondelete="CASCADE"), nullable=False),
    Column("entries", BigInteger, nullable=False, default=0),  # markers among them: the next entry id
    Column("messages", BigInteger, nullable=False, default=0),
    Column("bytes", BigInteger, nullable=False, default=0),
    Column("messages_before", BigInteger, nullable=False),
    Column("bytes_before", BigInteger, nullable=False),
    Column("last_publish_time_us", BigInteger),  # of its data entries
    Column("created_at_ms", BigInteger, nullable=False),
    Column("closed_at_ms", BigInteger),  # unset: the open ledger
    Column("offloaded_at_ms", BigInteger),  # set: it has a complete tiered copy
    Column("hot_deleted_at_ms", BigInteger),  # set: its hot copy is gone
    Column("purged", SmallInteger, nullable=False, default=0),  # 1: so are its rows in entries and entry_pages
    Index("ledgers_by_partition", "partition_id", "ledger_id"),
    sqlite_autoincrement=True,
)

segments = Table(
    "segments",
    metadata,
    Column("segment_id", _Id, Identity(), primary_key=True),
    Column("topic_id", ForeignKey("topics.topic_id", ondelete="CASCADE"), nullable=False, index=True),
    Column("path", _Text, nullable=False, unique=True),
    Column("partition_id", BigInteger, nullable=False),  # 0: of several partitions, which its parts tell
    Column("first_ledger_id", BigInteger, nullable=False),  # of its entries; a producer notices late that a ledger was
    Column("last_ledger_id", BigInteger, nullable=False),  # closed, so a segment may reach into the next one
    Column("deleted", SmallInteger, nullable=False, default=0),  # DELETED, CONDEMNED, or neither
    Index("segments_by_partition", "partition_id", "last_ledger_id"),
    Index("deleted_segments", "path", sqlite_where=text("deleted > 0"), info={"where": "deleted > 0"}),
    sqlite_autoincrement=True,
)

segment_parts = Table(  # what a segment of several partitions has of each, as long as that is wanted: its references
    "segment_parts",
    metadata,
    Column("partition_id", BigInteger, primary_key=True, autoincrement=False),
    Column("segment_id", ForeignKey("segments.segment_id", ondelete="CASCADE"), primary_key=True),
    Column("first_ledger_id", BigInteger, nullable=False),
    Column("last_ledger_id", BigInteger, nullable=False),
    Index("segment_parts_by_segment", "segment_id"),
    Index("segment_parts_by_ledger", "partition_id", "last_ledger_id"),
    sqlite_with_rowid=False,
)

roots = Table(  # hot roots beside the log's own one, which is number 0 and called main
    "roots",
    metadata,
    Column("root_id", _Id, Identity(), primary_key=True),
    Column("name", _Text, nullable=False, unique=True),
    Column("uri", _Text, nullable=False),
    sqlite_autoincrement=True,
)

segment_copies = Table(  # of segments that are not in the log's own root alone
    "segment_copies",
    metadata,
    Column("segment_id", ForeignKey("segments.segment_id", ondelete="CASCADE"), primary_key=True),
    Column("roots", BigInteger, nullable=False),  # the set of those that have all of its entries
    sqlite_with_rowid=False,
)

short_entries = Table(  # registered with too few copies; the high watermark is the first of them
    "short_entries",
    metadata,
    Column("partition_id", ForeignKey("partitions.partition_id", ondelete="CASCADE"), primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("segment_id", BigInteger, nullable=False),
    Column("needed", SmallInteger, nullable=False),  # so many copies
    Index("short_entries_by_segment", "segment_id"),
    sqlite_with_rowid=False,
)

copies = Table(  # tiered copies, complete or under way
    "copies",
    metadata,
    Column("copy_id", _Id, Identity(), primary_key=True),
    Column("ledger_id", ForeignKey("ledgers.ledger_id", ondelete="CASCADE"), nullable=False),
    Column("uri", _Text, nullable=False),
    Column("begun_at_ms", BigInteger, nullable=False),
    Column("complete", SmallInteger, nullable=False, default=0),  # 1 in one row of a ledger at most
    Column("size", BigInteger),
    Column("footer_bytes", BigInteger),
    Column("footer_crc32c", BigInteger),
    Index("copies_by_ledger", "ledger_id"),
    Index(
        "complete_copies",
        "ledger_id",
        unique=True,
        sqlite_where=text("complete = 1"),
        info={"where": "complete = 1"},
    ),
    Index("unfinished_copies", "begun_at_ms", sqlite_where=text("complete = 0"), info={"where": "complete = 0"}),
    sqlite_autoincrement=True,
)

doomed_files = Table(  # files that nothing refers to any more, until somebody who can reach them has deleted them
    "doomed_files",
    metadata,
    Column("doomed_id", _Id, Identity(), primary_key=True),
    Column("uri", _Text, nullable=False),
    Column("forget_after_ms", BigInteger, nullable=False),  # until then somebody may still be writing it
    sqlite_autoincrement=True,
)

policies = Table(  # what is set, and nothing else; and of a topic that is imported how far that is (imports.py)
    "policies",
    metadata,
    Column("scope", _Text, primary_key=True),  # broker, namespace:<name> or topic:<id>
    Column("name", _Text, primary_key=True),
    Column("value", _Text, nullable=False),
)

producers = Table(
    "producers",
    metadata,
    Column("producer_id", _Id, Identity(), primary_key=True),
    Column("topic_id", ForeignKey("topics.topic_id", ondelete="CASCADE"), nullable=False),
    Column("name", _Text, nullable=False),
    Column("transactional_id", _Text),
    Column("epoch", BigInteger, nullable=False),  # the highest one of a transactional id holds it
    Column("purged_sequence", BigInteger, nullable=False, default=-1),  # up to it, entries may have lost their rows
    Column("ended", SmallInteger, nullable=False, server_default=text("0")),  # WRITING, CLOSED, LOST or IDLE
    Column(
        "seen_ms", BigInteger, nullable=False, server_default=text("0")
    ),  # in measured time: it appended, or ended, about then
    UniqueConstraint("topic_id", "transactional_id", "epoch"),
    sqlite_autoincrement=True,
)

owners = Table(  # who made what, as the service's tokens name them; of what nobody asked for a token there is no row
    "owners",
    metadata,
    Column("kind", _Text, primary_key=True),  # producer, transaction, query or application
    Column("key", _Text, primary_key=True),
    Column("owner", _Text, nullable=False),
    Column("topic_id", ForeignKey("topics.topic_id", ondelete="CASCADE"), index=True),  # it goes with that topic
)

sinks = Table(  # streaming queries that write: the last batch of each that was committed
    "sinks",
    metadata,
    Column("query_id", _Text, primary_key=True),
    Column("batch_id", BigInteger, nullable=False),
    Column("messages", BigInteger, nullable=False),
    Column("content", BigInteger, nullable=False),
    Column("runs", _Text, nullable=False),  # ids of its last runs, with spaces
)

app_versions = Table(  # batch jobs that number their writes: the last version that each topic took
    "app_versions",
    metadata,
    Column("topic_id", ForeignKey("topics.topic_id", ondelete="CASCADE"), primary_key=True),
    Column("app_id", _Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("messages", BigInteger, nullable=False),
    Column("content", BigInteger, nullable=False),
)

sink_producers = Table(
    "sink_producers",
    metadata,
    Column("query_id", _Text, primary_key=True),
    Column("topic_id", ForeignKey("topics.topic_id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("producer_id", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("next_sequence", BigInteger, nullable=False),
)

entries = Table(
    "entries",
    metadata,
    Column("partition_id", ForeignKey("partitions.partition_id", ondelete="CASCADE"), primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, nullable=False),
    Column("messages", BigInteger, nullable=False),
    Column("messages_before", BigInteger, nullable=False),
    Column("bytes_before", BigInteger, nullable=False),
    Column("txn", BigInteger),
    Column("producer_id", BigInteger),
    Column("base_sequence", BigInteger),
    Column("publish_time_us", BigInteger, nullable=False),
    Column("segment_id", BigInteger),
    Column("offset", BigInteger),
    Column("length", BigInteger, nullable=False),
    Column("crc32c", BigInteger),
    Index(
        "entries_by_sequence",
        "producer_id",
        "base_sequence",
        unique=True,
        sqlite_where=text("producer_id IS NOT NULL"),
        info={"where": "producer_id IS NOT NULL"},
    ),
    Index(  # no bytes of a file are two entries
        "entries_by_segment",
        "segment_id",
        "offset",
        unique=True,
        sqlite_where=text("segment_id IS NOT NULL"),
        info={"where": "segment_id IS NOT NULL"},
    ),
    sqlite_with_rowid=False,
)

entry_pages = Table(  # data entries of closed ledgers once more, as Arrow
    "entry_pages",
    metadata,
    Column("partition_id", ForeignKey("partitions.partition_id", ondelete="CASCADE"), primary_key=True),
    Column("first_position", BigInteger, primary_key=True, autoincrement=False),
    Column("last_position", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("entry_pages_by_last", "partition_id", "last_position"),
)

decision_pages = Table(  # decisions whose markers lie in closed ledgers once more, as Arrow
    "decision_pages",
    metadata,
    Column("partition_id", ForeignKey("partitions.partition_id", ondelete="CASCADE"), primary_key=True),
    Column("first_marker", BigInteger, primary_key=True, autoincrement=False),
    Column("last_marker", BigInteger, nullable=False),
    Column("min_first_position", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("decision_pages_by_last", "partition_id", "last_marker"),
)

transactions = Table(
    "transactions",
    metadata,
    Column("txn", BigInteger, primary_key=True, autoincrement=False),
    Column("state", SmallInteger, nullable=False),
    Column("timeout_ms", BigInteger, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("deadline_ms", BigInteger, nullable=False),
    Column("ended_at_ms", BigInteger),
    Column("end_reason", _Text),
    Column("decision", BigInteger),  # 1 for the log's first decision, and so on
    Index("ended", "ended_at_ms", "decision"),
    Index("open_by_deadline", "deadline_ms", sqlite_where=text("state = 0"), info={"where": "state = 0"}),
)

transaction_partitions = Table(
    "transaction_partitions",
    metadata,
    Column("txn", ForeignKey("transactions.txn"), primary_key=True),
    Column("partition_id", ForeignKey("partitions.partition_id", ondelete="CASCADE"), primary_key=True),
    Column("state", SmallInteger, nullable=False),
    Column("first_position", BigInteger, nullable=False),
    Column("last_position", BigInteger, nullable=False),  # of its entries; its marker comes later
    Column("marker_position", BigInteger),
    Column("decision", BigInteger),
    Column("messages", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sealed", SmallInteger, nullable=False, default=0),  # 1: a page of decisions has it
    # How many transactions had begun, and had ended, when its first entry was placed: they never go down along a
    # partition, so they tell for most transactions that they lie wholly above, or below, a position.
    Column("begun", BigInteger, nullable=False, default=select(log_info.c.transactions).scalar_subquery()),
    Column("decided", BigInteger, nullable=False, default=select(log_info.c.decisions).scalar_subquery()),
    Index(
        "ongoing_by_partition",
        "partition_id",
        "first_position",
        "state",  # so that SQLite need not look at the row, and takes this index
        sqlite_where=text("state = 0"),
        info={"where": "state = 0"},
    ),
    Index(
        "committed_by_first",
        "partition_id",
        "first_position",
        "last_position",
        "decision",
        "state",
        sqlite_where=text("state = 1"),
        info={"where": "state = 1"},
    ),
    Index(
        "committed_by_last",
        "partition_id",
        "last_position",
        "state",
        sqlite_where=text("state = 1"),
        info={"where": "state = 1"},
    ),
    Index(
        "aborted_by_marker",
        "partition_id",
        "marker_position",
        "first_position",
        "last_position",
        "messages",
        "state",
        sqlite_where=text("state = 2"),
        info={"where": "state = 2"},
    ),
    Index("traces_by_marker", "partition_id", "marker_position"),
    Index(
        "unsealed_by_partition",
        "partition_id",
        "marker_position",
        sqlite_where=text("sealed = 0"),
        info={"where": "sealed = 0"},
    ),
    sqlite_with_rowid=False,
)

transaction_producers = Table(
    "transaction_producers",
    metadata,
    Column("txn", ForeignKey("transactions.txn"), primary_key=True),
    Column("producer_id", ForeignKey("producers.producer_id", ondelete="CASCADE"), primary_key=True),
    Index("transactions_by_producer", "producer_id"),
    sqlite_with_rowid=False,
)

subscriptions = Table(
    "subscriptions",
    metadata,
    Column("subscription_id", _Id, Identity(), primary_key=True),
    Column("topic_id", ForeignKey("topics.topic_id", ondelete="CASCADE"), nullable=False),
    Column("name", _Text, nullable=False),
    Column("type", _Text, nullable=False),
    Column("isolation_level", _Text, nullable=False),
    Column("durable", SmallInteger, nullable=False),  # 0: it goes with its last consumer
    Column("epoch", BigInteger, nullable=False, default=0),
    Column("ignored_acknowledgements", BigInteger, nullable=False, default=0),  # of an old epoch
    Column("created_at_ms", BigInteger, nullable=False),
    UniqueConstraint("topic_id", "name"),
    sqlite_autoincrement=True,
)

cursors = Table(
    "cursors",
    metadata,
    Column("subscription_id", ForeignKey("subscriptions.subscription_id", ondelete="CASCADE"), primary_key=True),
    Column("partition_id", ForeignKey("partitions.partition_id", ondelete="CASCADE"), primary_key=True),
    Column("mark_position", BigInteger, nullable=False),  # all messages below it are acknowledged
    Column("mark_index", BigInteger, nullable=False, default=0),
    Column("ranges", LargeBinary, nullable=False, default=b""),  # those acknowledged above it, as MessageRanges
    Column("read_position", BigInteger, nullable=False),  # of a shared one: the next entry to hand out
    Index("cursors_by_partition", "partition_id", "mark_position"),
)

consumers = Table(  # connected ones; whoever finds one past its lease removes it
    "consumers",
    metadata,
    Column("consumer_id", _Id, Identity(), primary_key=True),
    Column("subscription_id", ForeignKey("subscriptions.subscription_id", ondelete="CASCADE"), nullable=False),
    Column("token", _Text, nullable=False),  # a reconnecting consumer shows it
    Column("name", _Text, nullable=False),
    Column("host", _Text, nullable=False),  # where the service runs that holds the lease: see consumers.py
    Column("connected_at_ms", BigInteger, nullable=False),
    Column("lease_until_ms", BigInteger, nullable=False),
    Column("unacknowledged", BigInteger, nullable=False, default=0),  # as of the last renewal, if not shared
    Index("consumers_by_subscription", "subscription_id"),
    sqlite_autoincrement=True,
)

deliveries = Table(  # of shared subscriptions: what was handed out and is not acknowledged
    "deliveries",
    metadata,
    Column("delivery_id", _Id, Identity(), primary_key=True),
    Column("subscription_id", ForeignKey("subscriptions.subscription_id", ondelete="CASCADE"), nullable=False),
    Column("partition_id", ForeignKey("partitions.partition_id", ondelete="CASCADE"), nullable=False, index=True),
    Column("start_position", BigInteger, nullable=False),
    Column("start_index", BigInteger, nullable=False),
    Column("end_position", BigInteger, nullable=False),
    Column("end_index", BigInteger, nullable=False),
    Column("messages", BigInteger, nullable=False),
    Column("consumer_id", BigInteger),  # unset: to be handed out again
    Column("redeliveries", BigInteger, nullable=False, default=0),
    Index("deliveries_by_consumer", "subscription_id", "consumer_id"),
    sqlite_autoincrement=True,
)
