"""How far streaming queries are behind, in messages and seconds at their level: Spark gives Python sources no metrics.

```python
spark.streams.addListener(ProgressListener(log))
```

logs a line after each batch of each query that reads the log. ``behind`` does it for one progress of a query, also over
Spark Connect. A log that others wrote (``connect("kafka:/folder")``) will do as well.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from txn_source.client.log import Log
from txn_source.client.reading.own_log import DESCRIPTION
from txn_source.client.streaming.behind import PartitionBehind, total
from txn_source.client.streaming.behind import behind as behind_in
from txn_source.foreign.read_only_log import ReadOnlyLog
from txn_source.model.isolation import IsolationLevel
from txn_source.model.place_text import ABOUT_LOG

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["PartitionBehind", "ProgressListener", "QueryBehind", "behind"]

_log = logging.getLogger("txn_source.progress")
_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class QueryBehind:
    """How far a query is behind in one log, after a batch.

    ``messages`` can be read at ``level`` by now and weren't; the first of them was published ``seconds`` ago (0 without
    any, None if the log doesn't tell). ``held_back`` more wait for open transactions.
    """

    query: str
    batch: int
    level: IsolationLevel
    partitions: tuple[PartitionBehind, ...]

    @property
    def messages(self) -> int:
        """Of all partitions."""
        return total(self.partitions)[0]

    @property
    def seconds(self) -> float | None:
        """The longest wait of all partitions."""
        return 0.0 if not self.messages else total(self.partitions)[1]

    @property
    def held_back(self) -> int:
        """Of all partitions."""
        return sum(part.held_back for part in self.partitions)

    def __str__(self) -> str:
        since = "" if self.seconds is None else f", {self.seconds:.1f} s"
        held = f"; open transactions hold back {self.held_back}" if self.held_back else ""
        return f"query {self.query}, batch {self.batch}: {self.messages} messages behind{since} ({self.level}){held}"


def behind(log: Log | ReadOnlyLog, progress: Any) -> list[QueryBehind]:
    """Return how far a query was behind the log, as it is now, for each of its sources that reads such a log.

    Args:
        log: the log that the query reads. Sources whose offsets are of another kind are left out.
        progress: a ``StreamingQueryProgress``, or ``query.lastProgress``, also as Spark Connect gives it.

    Raises:
        TxnLogError: the log can't be asked, or a topic is gone.
    """
    found = []
    name = progress["name"] or str(progress["id"])
    for source in progress["sources"]:
        offset = _offset(source["endOffset"])
        if offset is None or (ABOUT_LOG in offset) != isinstance(log, ReadOnlyLog):
            continue
        if isinstance(log, ReadOnlyLog):
            level = IsolationLevel.parse(offset[ABOUT_LOG].get("level") or IsolationLevel.READ_COMMITTED)
            parts = list(_behind_foreign(log, offset, level))
        elif "positions" in offset and "decisions" in offset:
            at = DESCRIPTION.offsets.from_json(offset)
            level = at.level or IsolationLevel.READ_COMMITTED
            parts = behind_in(log.access, at, level)
        else:
            continue
        found.append(QueryBehind(name, int(progress["batchId"]), level, tuple(parts)))
    return found


def _offset(text: Any) -> Mapping[str, Any] | None:
    try:
        offset = json.loads(text) if isinstance(text, str) else text
    except ValueError:  # another source's, or none yet
        return None
    return offset if isinstance(offset, Mapping) else None


def _behind_foreign(log: ReadOnlyLog, offset: Mapping[str, Any], level: IsolationLevel) -> Iterator[PartitionBehind]:
    for topic, places in offset.items():
        if topic == ABOUT_LOG:
            continue
        for index in places:
            start = {topic: {part: at if part == index else "latest" for part, at in places.items()}}
            messages = log.count(topic, level, start=start, consistent_cut=False)
            seconds = _foreign_seconds(log, topic, level, start) if messages else 0.0
            yield PartitionBehind(topic, int(index), messages, seconds)


def _foreign_seconds(log: ReadOnlyLog, topic: str, level: IsolationLevel, start: Any) -> float | None:
    times = [name for name in ("timestamp", "__publish_time") if name in log.every_column(topic)]
    if not times:
        return None
    for batch in log.scan(topic, isolation_level=level, start=start, consistent_cut=False, columns=times[:1]):
        for value in batch.column(0).to_pylist():
            return None if value is None else round(max(0.0, time.time() - value.timestamp()), 3)
    return None


class ProgressListener(StreamingQueryListener):
    """Tells how far each query is behind a log, after its batches: to a function, or in the log of the process.

    Of each query once in ``every`` seconds at most, since the log is asked for it. A query that isn't behind, or whose
    log can't be asked, goes on undisturbed. ``register`` exports the last figures.
    """

    def __init__(
        self,
        log: Log | ReadOnlyLog,
        tell: Callable[[QueryBehind], object] | None = None,
        every: float = _EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``tell`` is called on the thread of Spark's listeners; None: a line is logged."""
        self._of = log
        self._tell = tell or (lambda found: _log.info("%s", found))
        self._every_s = every
        self._clock = clock
        self._lock = threading.Lock()
        self._told_at: dict[str, float] = {}
        self._last: dict[str, list[QueryBehind]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing has come."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Look how far the query is behind now."""
        query, now = str(event.progress.id), self._clock()
        with self._lock:
            if now - self._told_at.get(query, float("-inf")) < self._every_s:
                return
            self._told_at[query] = now
        try:
            found = behind(self._of, event.progress)
            with self._lock:
                self._last[query] = found
            for each in found:
                self._tell(each)
        except Exception as error:  # Spark's other listeners, and the query, go on
            _log.warning("how far query %s is behind isn't known: %s", query, error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the query."""
        with self._lock:
            self._told_at.pop(str(event.id), None)
            self._last.pop(str(event.id), None)

    def last(self) -> list[QueryBehind]:
        """Return what was found last of the queries that run."""
        with self._lock:
            return [each for found in self._last.values() for each in found]

    def register(self, registry: CollectorRegistry | None = None) -> None:
        """Export ``txnlog_stream_behind_messages``, ``..._behind_seconds`` and ``..._held_back_messages``, each by
        ``query``, ``topic``, ``partition`` and ``level``, to a registry of prometheus-client; None: its default one."""
        from prometheus_client import REGISTRY
        from prometheus_client.core import GaugeMetricFamily

        listener = self

        class Collector:
            def collect(self) -> Iterator[Any]:
                labels = ["query", "topic", "partition", "level"]
                for name, text, figure in (
                    ("behind_messages", "Messages that it could read and hasn't", "messages"),
                    ("behind_seconds", "How long ago the first of them was published", "seconds"),
                    ("held_back_messages", "Messages that wait for open transactions", "held_back"),
                ):
                    family = GaugeMetricFamily(f"txnlog_stream_{name}", text, labels=labels)
                    for each in listener.last():
                        for part in each.partitions:
                            value = getattr(part, figure)
                            if value is not None:
                                family.add_metric(
                                    [each.query, part.topic, str(part.partition), each.level.value], value
                                )
                    yield family

        (registry or REGISTRY).register(Collector())
