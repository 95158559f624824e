"""The histories of ``sources``: our own log, Kafka's folders with and without names of transactions, and Pulsar's."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.live_log import CLUSTER
from tests.foreign.kafka.partition_writer import PartitionWriter, replace_file
from tests.foreign.pulsar.offload_writer import Frame, Sent, batch, marker, number, single, write_ledger
from tests.log.reading import BY_HAND
from tests.log.sites import Site
from tests.reading.sources import COLUMNS, Clock, History
from txn_source import Position
from txn_source.client.places import parse_side
from txn_source.client.reading.columns import select_columns
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.streaming.own_guard import own_stream
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.target import ForeignTarget
from txn_source.model.position import LATEST, PositionRange
from txn_source.model.topic_name import TopicName
from txn_source.reading.limits import StreamLimits
from txn_source.reading.log_source import LogSource
from txn_source.reading.places import Name, Side
from txn_source.reading.plan import ReadPlan
from txn_source.reading.request import ReadRequest, Selection
from txn_source.reading.stream import Stream


class OwnHistory(History):
    """Our own log, with ledgers of three entries."""

    kind, at_once = "own", True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.site = Site("embedded", root / "log", self.clock)
        self.log = self.site.connect()
        self._transactions: dict[int | None, Any] = {}
        self._producers: dict[str, Any] = {}

    def source(self) -> LogSource[Any]:
        return OwnLog(self.log.access)

    def stream(self, selection: Selection, request: ReadRequest, limits: StreamLimits, clock: Clock) -> Stream[Any]:
        return own_stream(self.log.access, selection, request, limits, clock)

    def side(self, value: Any) -> Side:
        return parse_side(value, LATEST)

    def _columns(self, planned: ReadPlan) -> pa.Schema:
        return select_columns(planned.payload, COLUMNS)

    def part(self, part: Any) -> tuple[Name, PositionRange]:
        return (TopicName.parse(part.topic), part.partition), part.range

    def trim(self, place: int) -> None:
        topic, index = self.names[place]
        last = self.log.stats(topic.short).partitions[index].ledgers[-1]
        self.log.trim(topic.short, before={topic.short: {index: f"{last.ledger_id}:0"}})

    def _topic(self, text: str) -> TopicName:
        return TopicName.parse(text)

    def _name(self, topic: str, index: int) -> Name:
        return TopicName.parse(topic), index

    def _add(self, place: int, topic: str, index: int) -> None:
        if index:
            self.log.update_topic(topic, index + 1)
        else:
            self.log.create_topic(topic, ledger_max_entries=3)
            self._producers[topic] = self.log.producer(topic, batching=BY_HAND)

    def _write(self, place: int, sent: Sequence[int], txn: int | None) -> Position:
        topic, index = self.names[place]
        producer = self._producers[topic.short]
        for each in sent:
            producer.send(b"%d" % each, partition=index, txn=self._transactions.get(txn))
        return producer.flush()[0].position

    def _begin(self, txn: int) -> None:
        self._transactions[txn] = self.log.begin_transaction(900)

    def _end(self, txn: int, places: Sequence[int], *, commit: bool) -> None:
        (self._transactions[txn].commit if commit else self._transactions[txn].abort)()

    def _delete(self, topic: str) -> None:
        self.log.delete_topic(topic)


class KafkaHistory(History):
    """A broker's folder. Entries lie above the high watermark until they are published."""

    kind, columns = "kafka", ("topic", "partition", "value", "__txn_status", "offset")

    def __init__(self, root: Path) -> None:
        super().__init__(root / "log")
        self.target = ForeignTarget.parse(f"kafka:{self.root}")
        self.root.mkdir()
        self.name_cluster(CLUSTER)
        self._parts: dict[int, PartitionWriter] = {}
        self._marks: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._producers: dict[int, int] = {}
        self._topics: dict[str, int] = {}
        """How often each was made."""

    def name_cluster(self, name: str) -> None:
        """Say which cluster the folder is of."""
        (self.root / "meta.properties").write_text(f"version=1\ncluster.id={name}\n")

    def trim(self, place: int) -> None:
        writer = self._parts[place]
        for base in writer.bases[:-1]:
            for path in writer.folder.glob(f"{base:020}.*"):
                path.unlink(missing_ok=True)
        self._starts[place] = writer.bases[-1]
        self._publish(())

    def _name(self, topic: str, index: int) -> Name:
        return PartitionName(topic, index)

    def _add(self, place: int, topic: str, index: int) -> None:
        part = self._parts[place] = PartitionWriter(self.root, topic, index, segment_bytes=300)
        topic_id = f"{topic}{self._topics.setdefault(topic, 1):021}"
        (part.folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
        self._marks[place] = self._starts[place] = 0

    def _begin(self, txn: int) -> None:
        taken = {self._producers.get(other) for other in self.open}
        self._producers[txn] = txn if self.tells else next(n for n in count() if n not in taken)

    def _write(self, place: int, sent: Sequence[int], txn: int | None) -> Position:
        records = [Record(None, b"%d" % each, self.clock.now_us // 1000) for each in sent]
        producer = -1 if txn is None else self._producers[txn]
        return Position.from_key(self._parts[place].send(records, producer, transactional=txn is not None))

    def _end(self, txn: int, places: Sequence[int], *, commit: bool) -> None:
        for part in map(self._parts.__getitem__, places):
            part.producers[self._producers[txn]].epoch -= not self.tells  # which the marker raises
            part.end_transaction(self._producers[txn], commit=commit)

    def _publish(self, places: Sequence[int]) -> None:
        self._marks |= {place: self._parts[place].end for place in places}
        for part in self._parts.values():
            part.flush()
        for name, offsets in (("replication-offset", self._marks), ("log-start-offset", self._starts)):
            lines = [f"{p.topic} {p.partition} {offsets[place]}\n" for place, p in self._parts.items()]
            replace_file(self.root / f"{name}-checkpoint", f"0\n{len(lines)}\n{''.join(lines)}".encode())

    def _delete(self, topic: str) -> None:
        for place in self.places(topic):
            shutil.rmtree(self._parts.pop(place).folder)
        self._topics[topic] += 1
        self._publish(())


class UntoldHistory(KafkaHistory):
    """A Kafka log of ``transaction.version`` 1: the transactions of a producer share an epoch, so nothing names one
    over several partitions."""

    tells = False


class PulsarHistory(History):
    """A folder of offloaded ledgers; each publishing adds one. Topic ``a`` has partitions, others have none."""

    kind, foresees = "pulsar", False

    def __init__(self, root: Path) -> None:
        super().__init__(root / "objects")
        self.target = ForeignTarget.parse(f"pulsar:{self.root}")
        self.root.mkdir()
        self._ledgers: dict[int, list[Path]] = {}
        self._open: dict[int, tuple[int, list[bytes]]] = {}
        self._next: dict[int, int] = {}
        self._ids = count(3)

    def trim(self, place: int) -> None:
        self._unlink(self._ledgers[place][:-1])

    def _name(self, topic: str, index: int) -> Name:
        return PartitionName(f"persistent://public/default/{topic}", index if topic == "a" else -1)

    def _add(self, place: int, topic: str, index: int) -> None:
        self._ledgers[place], self._next[place] = [], 0

    def _write(self, place: int, sent: Sequence[int], txn: int | None) -> Position:
        frame = Frame(publish_time=self.clock.now_us // 1000, txn=None if txn is None else (0, txn))
        first, *more = (Sent(b"%d" % each) for each in sent)
        return self._put(place, batch([first, *more], frame) if more else single(first, frame), len(sent))

    def _put(self, place: int, entry: bytes, messages: int = 1) -> Position:
        """Write an entry with the broker's number of its last message."""
        self._next[place] += messages
        told = number(1, 1) + number(2, self._next[place] - 1)
        ledger, entries = self._open.setdefault(place, (next(self._ids), []))
        entries.append(struct.pack(">HI", 0x0E02, len(told)) + told + entry)
        return Position(ledger, len(entries) - 1)

    def _end(self, txn: int, places: Sequence[int], *, commit: bool) -> None:
        for place in places:
            self._put(place, marker((0, txn), commit=commit))

    def _publish(self, places: Sequence[int]) -> None:
        for place in {*places} & self._open.keys():
            topic, index = self.names[place]
            name = topic.replace("persistent://public/default", "public/default/persistent")
            name += f"-partition-{index}" if index >= 0 else ""
            ledger, entries = self._open.pop(place)
            self._ledgers[place].append(write_ledger(self.root, ledger, entries, name))

    def _delete(self, topic: str) -> None:
        for place in self.places(topic):
            self._unlink(self._ledgers[place])

    @staticmethod
    def _unlink(paths: Sequence[Path]) -> None:
        for path in paths:
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}-index").unlink(missing_ok=True)


KINDS = {"own": OwnHistory, "kafka": KafkaHistory, "untold": UntoldHistory, "pulsar": PulsarHistory}


def history_of(kind: str, root: Path) -> History:
    """Make a log with a message at each place."""
    history = KINDS[kind](root)
    for topic in ("a", "a", "b"):
        history.send(history.add(topic))
    history.publish()
    return history
