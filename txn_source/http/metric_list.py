"""Every metric: its name, kind, labels and meaning. What is exported is made of this, and so is the
reference."""

from __future__ import annotations

from dataclasses import dataclass

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
SERVICE, LOG = "service", "log"
"""What a metric is about: this process, or the whole log, of which each of its services says the same."""
CALL_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. ``name`` is what is exported; of a histogram, what ``_bucket``, ``_sum`` and ``_count`` follow."""

    name: str
    kind: str
    of: str
    text: str
    labels: tuple[str, ...] = ()

    @property
    def exported(self) -> tuple[str, ...]:
        """The names of its samples."""
        if self.kind == HISTOGRAM:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


def _service(name: str, kind: str, text: str, *labels: str) -> Metric:
    return Metric(f"txnlog_{name}", kind, SERVICE, text, labels)


def _log(name: str, kind: str, text: str, *labels: str) -> Metric:
    return Metric(f"txnlog_{name}", kind, LOG, text, labels)


_TOPIC = ("topic",)
_SUBSCRIPTION = ("topic", "subscription", "level")
METRICS = {
    metric.name: metric
    for metric in (
        _service("build_info", GAUGE, "1; which release, which log, which database", "version", "log", "database"),
        _service("ready", GAUGE, "1 if the check held when it was last asked for", "check"),
        # Calls
        _service("calls_total", COUNTER, "Calls by how they ended: OK, or an error's code", "call", "code"),
        _service("call_seconds", HISTOGRAM, "How long calls took, with their waiting", "call"),
        _service("writes_total", COUNTER, "Writes of producers; a call may carry several", "code"),
        _service("appended_entries_total", COUNTER, "Entries that were asked to be registered"),
        _service("active_producers", GAUGE, "Producers that wrote in the last minute"),
        _service("connected_consumers", GAUGE, "Consumers that are connected"),
        _service("unacknowledged_messages", GAUGE, "Messages that these have and have not acknowledged"),
        _service("refused_requests_total", COUNTER, "Requests refused by access rules and limits", "reason"),
        _service("client_reads_total", COUNTER, "Ledgers that clients read, as far as they told, by copy", "tier"),
        _service("client_fallbacks_total", COUNTER, "Copies that clients had to leave, as far as they told", "tier"),
        _service("transactions_timed_out_total", COUNTER, "Transactions that it aborted at their timeout"),
        # What it stands on
        _service("disk_free_bytes", GAUGE, "Room on the disk of the log's root, or of its SQLite file", "place"),
        _service("disk_size_bytes", GAUGE, "How large that disk is", "place"),
        _service(
            "certificate_expires_timestamp_seconds",
            GAUGE,
            "When the service's certificate ends, or the first of those behind it in its file",
        ),
        _service("database_seconds", HISTOGRAM, "How long transactions of the database took, with waiting", "kind"),
        _service("database_connections", GAUGE, "Connections that read or could: busy, idle", "state"),
        _service("database_waiting_writes", GAUGE, "Writes that wait for their turn"),
        _service("background_rounds_total", COUNTER, "Rounds of work in the background", "task", "outcome"),
        _service(
            "background_last_success_timestamp_seconds",
            GAUGE,
            "When a round of it last ended without an error; before the first, when it began",
            "task",
        ),
        # The log
        _log("figures_timestamp_seconds", GAUGE, "As of when the figures of the log are"),
        _log("figures_seconds", GAUGE, "How long finding them took"),
        _log("topics", GAUGE, "Topics"),
        _log("partitions", GAUGE, "Partitions"),
        _log("messages", GAUGE, "Messages that are there, aborted ones among them"),
        _log("bytes", GAUGE, "Their bytes"),
        _log("appended_messages_total", COUNTER, "Messages appended since the service began, whoever did it"),
        _log("appended_bytes_total", COUNTER, "Bytes appended since the service began"),
        _log("transactions_begun_total", COUNTER, "Transactions begun, ever"),
        _log("transactions_ended_total", COUNTER, "Transactions ended, ever"),
        _log("open_transactions", GAUGE, "Open transactions"),
        _log("oldest_open_transaction_seconds", GAUGE, "Age of the oldest one, 0 without"),
        _log("held_back_messages", GAUGE, "Messages that open transactions hold back from read_committed"),
        _log("held_back_bytes", GAUGE, "Their bytes"),
        _log("held_back_seconds", GAUGE, "Since when the longest one waits, 0 without"),
        _log("short_messages", GAUGE, "Messages that nobody reads until there are enough copies of them"),
        _log("subscriptions", GAUGE, "Durable subscriptions", "level"),
        _log("backlog_messages", GAUGE, "Messages that their level shows and they have not acknowledged", "level"),
        _log("backlog_seconds", GAUGE, "Age of the oldest of these, 0 without", "level"),
        _log("consumers", GAUGE, "Consumers by their lease: running, ended", "lease"),
        _log("doomed_files", GAUGE, "Files that wait for their deletion"),
        _log("offloads_under_way", GAUGE, "Tiered copies that are being written"),
        _log("oldest_offload_seconds", GAUGE, "Age of the oldest of these, 0 without"),
        _log("topics_left_out", GAUGE, "Topics without series of their own"),
        _log("subscriptions_left_out", GAUGE, "Durable subscriptions without series of their own"),
        # Topics
        _log("topic_messages", GAUGE, "Messages that are there", *_TOPIC),
        _log("topic_bytes", GAUGE, "Their bytes", *_TOPIC),
        _log("topic_appended_messages_total", COUNTER, "Messages appended since the topic was made", *_TOPIC),
        _log("topic_appended_bytes_total", COUNTER, "Bytes appended since the topic was made", *_TOPIC),
        _log("topic_last_append_timestamp_seconds", GAUGE, "When a message last came, 0 if none has", *_TOPIC),
        _log(
            "topic_bound_messages",
            GAUGE,
            "Messages before a bound since the topic was made: log_start, last_stable, high_watermark, log_end",
            *_TOPIC,
            "bound",
        ),
        _log("topic_held_back_messages", GAUGE, "Messages that open transactions hold back", *_TOPIC),
        _log("topic_held_back_bytes", GAUGE, "Their bytes", *_TOPIC),
        _log("topic_short_messages", GAUGE, "Messages that nobody reads until there are enough copies", *_TOPIC),
        _log("topic_held_back_seconds", GAUGE, "Since when the longest one waits, 0 without", *_TOPIC),
        _log("topic_oldest_open_transaction_seconds", GAUGE, "Age of the oldest that wrote to it, 0 without", *_TOPIC),
        # Subscriptions
        _log("subscription_backlog_messages", GAUGE, "Messages that it has not acknowledged", *_SUBSCRIPTION),
        _log("subscription_backlog_seconds", GAUGE, "Age of the oldest of these, 0 without", *_SUBSCRIPTION),
        _log("subscription_consumers", GAUGE, "Consumers that are connected", *_SUBSCRIPTION),
        _log("subscription_epoch", GAUGE, "Its epoch: how often it was sought or delivered anew", *_SUBSCRIPTION),
        _log(
            "subscription_ignored_acknowledgements_total",
            COUNTER,
            "Acknowledgements of an old epoch, or of a consumer that had lost its connection",
            *_SUBSCRIPTION,
        ),
    )
}
"""By name, in the order in which they are shown."""

LABELS = {
    "version": "the release",
    "log": "the log's id",
    "database": "`SQLite`, `PostgreSQL`",
    "check": "`database`, `schema`, `root`",
    "place": "`root`, `database`",
    "call": "the call's name in the wire protocol",
    "code": "`OK`, or the code of an error",
    "reason": "why a request was refused: `missing`, `expired`, `denied` ...; `rate` and `limit` hold off",
    "tier": "`bookkeeper` (hot), `tiered`",
    "kind": "`read`, `write`",
    "state": "`busy`, `idle`",
    "task": "`deadlines`, `policies`, `figures`",
    "outcome": "`OK`, `failed`",
    "level": "`read_committed`, `read_uncommitted`",
    "lease": "`running`, `ended`",
    "topic": "its name: `orders` if it is of `public/default`, else in full",
    "subscription": "its name",
    "bound": "`log_start`, `last_stable`, `high_watermark`, `log_end`",
}
"""What the values of each label are."""
