"""Random histories of a log, and what its readers see of it."""

from __future__ import annotations

import os
import random
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import txn_source
from tests.log.reading import BY_HAND
from txn_source import Log, Producer, Transaction
from txn_source.client.writing.job_notes import note_committed
from txn_source.client.writing.task_writer import BulkWriter
from txn_source.model.spark_commit import PlacedBatch, Sink, TopicBatch
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId
from txn_source.upkeep.doctor.examination import examine
from txn_source.upkeep.doctor.findings import Severity
from txn_source.upkeep.doctor.opening import Where, opened

TOPICS = {"raw": 3, "typed": 2}
LEVELS = ("read_committed", "read_uncommitted")
_METADATA = [
    "__partition", "__ledger_id", "__entry_id", "__batch_index", "__publish_time", "__event_time", "__producer_name",
    "__sequence_id", "__txn_id", "__txn_status", "__properties",
]  # fmt: skip
_PAYLOAD = {"raw": ["key", "value"], "typed": ["id", "name"]}
_MOST_PARTITIONS = 5
_ORDER = [(name, "ascending") for name in _METADATA[:4]]


def make(root: Path | str, metadata: Path | None = None) -> Log:
    """Return a log with a raw and a typed topic, whose ledgers are short; on an object store with its metadata in a
    file."""
    log = txn_source.connect(root, metadata=metadata)
    log.create_topic("raw", TOPICS["raw"], ledger_max_entries=6)
    log.create_topic("typed", TOPICS["typed"], schema="id bigint, name string", ledger_max_entries=9)
    return log


def seen(log: Log, topic: str) -> dict[str, pa.Table]:
    """Return what a topic shows at each level, in the order of positions, with all metadata."""
    columns = _PAYLOAD[topic] + _METADATA
    return {
        level: log.scan(topic, level, columns=columns).read_all().sort_by(_ORDER).combine_chunks() for level in LEVELS
    }


def values(tables: dict[str, pa.Table]) -> dict[str, list[str]]:
    """Return the payload alone, sorted."""
    return {level: sorted(str(row) for row in table.select([0, 1]).to_pylist()) for level, table in tables.items()}


def without_database(root: Path, to: Path) -> Path:
    """Copy a log without its database: what is left of it if all that use it are killed now."""
    return Path(shutil.copytree(root, to, ignore=shutil.ignore_patterns("metadata.db*")))


def worst(root: Path | str, metadata: Path | None = None) -> list[str]:
    """Return what a doctor finds wrong with a log."""
    with opened(Where(str(root), metadata=None if metadata is None else str(metadata))) as log:
        return [one.fact for one in examine(log).findings if one.severity is not Severity.NOTE]


class History:
    """Writers at work, chosen by a seed. ``kills``: some of them end without closing what they have open."""

    def __init__(self, log: Log, seed: int, *, kills: bool) -> None:
        self.log = log
        self._random = random.Random(seed)
        self._kills = kills
        self._producers: dict[str, Producer] = {}
        self._open: list[tuple[Transaction, set[str]]] = []
        self._dead: list[Producer] = []
        self._counter = 0

    def run(self, steps: int) -> None:
        """Do so many things, then end what is open."""
        weights = {self._send: 10, self._flush: 4, self._begin: 3, self._end: 4, self._small: 3}
        for rare in (self._reopen, self._roll, self._offload, self._delete_hot, self._trim, self._maintain):
            weights[rare] = 1
        for rare in (self._by_force, self._take_over, self._add_partition, self._job):
            weights[rare] = 1
        for step in self._random.choices(list(weights), list(weights.values()), k=steps):
            step()
        while self._open:
            self._end()
        for producer in self._producers.values():
            producer.flush()
            if not self._kills or self._random.random() < 0.5:
                producer.close()
            else:
                self._dead.append(producer)

    def _producer(self, topic: str) -> Producer:
        if topic not in self._producers:
            fenced = self._random.choice([None, f"id-{topic}"]) if not self._open else None
            self._producers[topic] = self.log.producer(topic, transactional_id=fenced, batching=BY_HAND)
        return self._producers[topic]

    def _message(self, topic: str) -> dict[str, Any]:
        self._counter += 1
        key = self._random.choice([b"a", b"b", b"c", b"d", None])
        if topic == "typed":
            return {"value": {"id": self._counter, "name": "n" * self._random.randrange(9)}}
        more = {"properties": {"p": "1"}} if self._random.random() < 0.2 else {}
        return {"value": b"%d" % self._counter, "key": key, **more}

    def _send(self, txn: Transaction | None = None) -> None:
        topic = self._random.choice(list(TOPICS))
        producer = self._producer(topic)
        if txn is None and self._open and self._random.random() < 0.6:
            txn, topics = self._random.choice(self._open)
            topics.add(topic)
        for _ in range(self._random.randrange(1, 4)):
            producer.send(**self._message(topic), txn=txn)

    def _flush(self) -> None:
        for producer in self._producers.values():
            producer.flush()

    def _begin(self) -> None:
        self._open.append((self.log.begin_transaction(), set()))

    def _end(self) -> None:
        if self._open:
            txn, _ = self._open.pop(self._random.randrange(len(self._open)))
            if self._random.random() < 0.35 and not self._kills:
                txn.abort()
            else:
                txn.commit()

    def _small(self) -> None:
        with self.log.begin_transaction() as txn:
            self._send(txn)
            self._send(txn)

    def _reopen(self) -> None:
        if not self._producers:
            return
        topic = self._random.choice(list(self._producers))
        if any(topic in topics for _, topics in self._open):
            return
        producer = self._producers.pop(topic)
        producer.flush()
        if self._kills:
            self._dead.append(producer)
        else:
            producer.close()

    def _by_force(self) -> None:
        """Abort a transaction from elsewhere; its writer hears of it when it goes on."""
        if self._kills:
            return
        txn = self.log.begin_transaction()
        self._send(txn)
        self._flush()
        self.log.abort_transaction(txn.id)

    def _take_over(self) -> None:
        """Let a second writer take a transactional id while the first one has a transaction open."""
        if self._kills:
            return
        topic = self._random.choice(list(TOPICS))
        first = self.log.producer(topic, transactional_id=f"taken-{topic}", batching=BY_HAND)
        first.send(**self._message(topic), txn=self.log.begin_transaction())
        first.flush()
        with self.log.producer(topic, transactional_id=f"taken-{topic}", batching=BY_HAND) as second:
            second.send(**self._message(topic))
        first.close()

    def _add_partition(self) -> None:
        topic = self._random.choice(list(TOPICS))
        count = len(self.log.stats(topic).partitions)
        if count < _MOST_PARTITIONS:
            self.log.update_topic(topic, count + 1)

    def _job(self) -> None:
        """Write as a job does."""
        batches = []
        for topic in self._random.sample(list(TOPICS), self._random.randrange(1, 3)):
            rows = [self._message(topic)["value"] for _ in range(3)]
            writer = BulkWriter(self.log.access, TopicName.parse(topic), self._random.randrange(3))
            writer.write(pa.RecordBatch.from_pylist(rows if topic == "typed" else [{"value": row} for row in rows]))
            batches.append(writer.finish())
        commit(self.log, Sink(None, 0, "job", None), batches)

    def _roll(self) -> None:
        self.log.roll_ledger(self._random.choice(list(TOPICS)))

    def _offload(self) -> None:
        self.log.offload(self._random.choice(list(TOPICS)))

    def _delete_hot(self) -> None:
        self.log.delete_hot(self._random.choice(list(TOPICS)))

    def _trim(self) -> None:
        self.log.trim(self._random.choice(list(TOPICS)), keep_bytes=20_000)

    def _maintain(self) -> None:
        self.log.maintain()


def commit(log: Log, sink: Sink, batches: Sequence[TopicBatch]) -> bool:
    """Commit what a job wrote, as Spark's driver does; return True if that was done before."""

    def note(txn: TxnId, placed: Sequence[PlacedBatch]) -> None:
        note_committed(log.access, sink, batches, txn, placed)

    return log.metadata.commit_batch(sink, batches, uuid.uuid4().hex, note)[1]


def size(root: Path) -> int:
    """Return the bytes of all segments."""
    return sum(os.path.getsize(path) for path in (root / "segments").rglob("*.arrow*"))


def check_goes_on(log: Log, before: dict[str, dict[str, pa.Table]], seed: int) -> None:
    """Find what was ``seen`` before in each topic, and write more."""
    for topic in TOPICS:
        after = seen(log, topic)
        for level, table in before[topic].items():
            assert after[level].to_pylist() == table.to_pylist(), (topic, level)
        with log.producer(topic) as producer:
            producer.send({"id": -1, "name": ""} if topic == "typed" else b"later")
        assert log.count(topic) == before[topic]["read_committed"].num_rows + 1
    History(log, seed + 1, kills=False).run(20)
