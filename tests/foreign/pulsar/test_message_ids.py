"""Reads that start and end inside a batch, at the message ids that Pulsar's clients have."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_source
from tests.foreign.pulsar.offload_writer import LZ4, Frame, Sent, batch, chunks, marker, number, single, write_ledger
from tests.foreign.pulsar.sample_cases import unpack
from tests.foreign.pulsar.test_objects import TOPIC
from tests.reading import sources
from tests.reading.sources import Written
from tests.selection import mostly_long
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.source import ForeignSource
from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import InvalidArgumentError, MessageUnreadableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST, MessageId
from txn_source.reading.limits import StreamLimits
from txn_source.reading.places import Side
from txn_source.reading.request import Selection

_PLACE = ["__ledger_id", "__entry_id", "__batch_index"]
Row = tuple[int, int, int]


def rows_of(log: Any, topic: str, level: str = "read_committed", **sides: Any) -> list[Row]:
    """Return the ids of what a scan reads, as numbers; alone in an entry is index 0."""
    found = log.scan(topic, level, _PLACE, **sides).read_all()
    return [(row["__ledger_id"], row["__entry_id"], max(row["__batch_index"], 0)) for row in found.to_pylist()]


def forms(ledger: int, entry: int, index: int) -> list[Any]:
    """Return the forms of an id."""
    data = number(1, ledger) + number(2, entry) + number(3, -1) + number(4, index)
    text = f"{ledger}:{entry}:-1:{index}"
    return [
        MessageId(ledger, entry, index),
        text,
        f"({ledger},{entry},-1,{index})",
        data,
        base64.b64encode(data).decode(),
    ]


@pytest.mark.parametrize("case", mostly_long(["chunked", "special", "txn-mix"], "special"))
def test_samples_start_and_end_at_each_message(case: str, tmp_path: Path) -> None:
    """Start and end at each message of some entries of each topic, and behind their last: all rows at or behind it, and
    all before it, of those that the whole read has."""
    folder = unpack(case, tmp_path).folder / "objects"
    log = txn_source.connect(f"pulsar:{folder}", options={"encrypted": "keep"})
    for topic in log.topics():
        table = log.scan(topic, columns=[*_PLACE, "__batch_size", "__encrypted"]).read_all().to_pylist()
        whole = [(row["__ledger_id"], row["__entry_id"], max(row["__batch_index"], 0)) for row in table]
        sizes = {at[:2]: row["__batch_size"] for at, row in zip(whole, table, strict=True) if not row["__encrypted"]}
        entries = sorted(sizes)
        some = {*entries[:1], *entries[len(entries) // 2 :][:1], *sorted(sizes, key=lambda at: sizes[at])[-1:]}
        for ledger, entry in sorted(some):
            size = sizes[ledger, entry]
            for index in {*range(min(size, 4)), max(size - 1, 0), size}:
                at = (ledger, entry, index)
                form = forms(*at)[index % 5]
                assert rows_of(log, topic, start=form) == [row for row in whole if row >= at], at
                assert rows_of(log, topic, end=form) == [row for row in whole if row < at], at


def mixed() -> list[bytes]:
    """Return entries with batches, single messages, a chunked one, transactions of both kinds, and markers."""
    many = [Sent(b"%d" % at) for at in range(5)]
    return [
        batch(many),
        single(many[0]),
        batch(many[:1]),
        batch(many, Frame(codec=LZ4, txn=(0, 1))),
        batch(many, Frame(txn=(0, 2))),
        *chunks(Sent(b"c" * 90), 3, Frame("c")),
        marker((0, 1), commit=True),
        marker((0, 2), commit=False),
        batch(many[:3]),
    ]


@pytest.mark.parametrize("level", mostly_long(["read_committed", "read_uncommitted"], "read_committed"))
def test_reads_between_ids_make_up_the_whole(tmp_path: Path, level: str) -> None:
    """Read from each id to each later one: of each entry, with messages or not, and behind the last of its batch."""
    for ledger in (3, 8):
        write_ledger(tmp_path, ledger, mixed(), block_bytes=300)
    log = txn_source.connect(f"pulsar:{tmp_path}")
    whole = rows_of(log, "orders", level)
    assert len(whole) == (2 * 16 if level == "read_committed" else 2 * 21)
    ids = [(3, entry, index) for entry in range(11) for index in (0, 1, 4, 6)] + [(8, 0, 2), (8, 10, 2), (8, 11, 0)]
    for at in ids[1::2]:
        start = MessageId(*at)
        for other in ids[ids.index(at) % 7 :: 7]:
            wanted = [row for row in whole if at <= row < other]
            assert rows_of(log, "orders", level, start=start, end=MessageId(*other)) == wanted, (at, other)
        assert log.count("orders", level, start=start) == len([row for row in whole if row >= at])


def test_an_end_inside_a_transaction_leaves_it_out(tmp_path: Path) -> None:
    """End inside an entry of a transaction: a read of two partitions shows it whole or not at all, and one of one
    partition, or without a cut, what was asked for. Messages outside of transactions are shown up to the end."""
    topic = "public/default/persistent/orders-partition-"
    two = [Sent(b"a"), Sent(b"b")]
    write_ledger(tmp_path, 3, [batch(two), batch(two, Frame(txn=(0, 1))), marker((0, 1), commit=True)], f"{topic}0")
    parts = [batch(two), batch(two, Frame(txn=(0, 1))), batch(two), batch(two, Frame(txn=(0, 1)))]
    write_ledger(tmp_path, 4, [*parts, marker((0, 1), commit=True), batch(two)], f"{topic}1")
    log = txn_source.connect(f"pulsar:{tmp_path}")
    first, plain = [(3, 0, 0), (3, 0, 1)], [(4, 0, 0), (4, 0, 1)]

    def read(entry: int, index: int = 1, **given: Any) -> list[Row]:
        return rows_of(log, "orders", end={"orders": {1: MessageId(4, entry, index)}}, **given)

    assert read(0) == [*first, (4, 0, 0)]
    assert read(1) == [*first, *plain] == read(2) == read(3)
    assert len(read(3, 2)) == 4 + 8
    assert len(read(5)) == 4 + 8 + 1
    assert read(1, consistent_cut=False) == [*first, (3, 1, 0), (3, 1, 1), *plain, (4, 1, 0)]
    alone = rows_of(log, "orders-partition-1", end=MessageId(4, 3, 1))
    assert alone[-2:] == [(4, 2, 1), (4, 3, 0)]
    with pytest.raises(InvalidArgumentError, match="4:1:-1:1 doesn't say which of the 2 partitions"):
        rows_of(log, "orders", start=MessageId(4, 1, 1))


def test_what_is_left_out_is_not_decoded(tmp_path: Path) -> None:
    """Start behind a value that the schema can't have: the read doesn't see it."""
    write_ledger(tmp_path, 3, [batch([Sent(b"bad"), Sent(b"\0\0\0\7"), Sent(b"bad")])])
    log = txn_source.connect(f"pulsar:{tmp_path}", options={"schema": "INT32"})
    read = log.scan("orders", columns=["value"], start=MessageId(3, 0, 1), end=MessageId(3, 0, 2)).read_all()
    assert read.column("value").to_pylist() == [7]
    with pytest.raises(MessageUnreadableError, match="number 2 of its batch"):
        log.scan("orders", columns=["value"], start=MessageId(3, 0, 1)).read_all()


def test_encrypted_batches_have_no_inside(tmp_path: Path) -> None:
    """Start or end inside an encrypted batch, which is one row: that is refused."""
    sealed = batch([Sent(b"a"), Sent(b"b")], Frame(extra=number_of_key()))
    write_ledger(tmp_path, 3, [single(Sent(b"0")), sealed, single(Sent(b"1"))])
    log = txn_source.connect(f"pulsar:{tmp_path}", options={"encrypted": "keep"})
    assert len(rows_of(log, "orders")) == 3
    for sides in ({"start": MessageId(3, 1, 1)}, {"end": MessageId(3, 1, 1)}):
        with pytest.raises(InvalidArgumentError, match=r"Entry 3:1 in .* no read starts or ends inside.*Use 3:1 .*3:2"):
            rows_of(log, "orders", **sides)
    assert rows_of(log, "orders", end=MessageId(3, 2, 0)) == [(3, 0, 0), (3, 1, 0)]


def number_of_key() -> bytes:
    """Return the metadata field that says that a payload is encrypted."""
    key = b"\x0a\x01k\x12\x01v"
    return bytes([13 << 3 | 2, len(key)]) + key


def test_reader_goes_to_each_message(tmp_path: Path) -> None:
    """Seek to the id of each message that a reader gave; a place that isn't offloaded yet is waited for."""
    write_ledger(tmp_path, 3, mixed())
    log = txn_source.connect(f"pulsar:{tmp_path}")
    reader = log.reader("orders")
    messages = []
    while reader.has_message_available():
        messages.append(reader.read_next(0))
    for message in messages:
        reader.seek(message.message_id)
        assert reader.read_next(0) == message
    later = log.reader("orders", start=MessageId(3, 11, 2))
    assert later.read_next(0) is None
    follower = log.follow("orders", IsolationLevel.READ_COMMITTED, _PLACE, MessageId(3, 10, 1))
    assert sum(batch.num_rows for batch in follower.read()) == 2
    write_ledger(tmp_path, 5, [batch([Sent(b"x"), Sent(b"y")])])
    assert sum(batch.num_rows for batch in follower.read()) == 2
    assert later.read_next(0).value == b"x"


class Ids(Written):
    """A log whose rows are ids of messages."""

    def _row(self, row: dict[str, Any]) -> Row:
        ledger, entry, index = row.values()
        return ledger, entry, max(index, 0)


class Query(sources.Query):
    """A query that begins anywhere."""

    def __init__(self, folder: Path, start: Any, limits: StreamLimits) -> None:
        target = ForeignTarget.parse(f"pulsar:{folder}")
        side = target.rules.parse_side(start, LATEST)
        super().__init__(Ids(target, *_PLACE), limits, Selection(("orders",)), start=side)

    def run(self) -> None:
        """Read all batches that there are, each with streams that remember nothing."""
        while (rows := self.open().next()) is not None:
            assert self.read(len(self.batches) - 1) == rows

    @property
    def offsets(self) -> list[Any]:
        """The checkpoint."""
        return [json.loads(text) for text in self.texts]


def _tuples(found: pa.RecordBatch) -> Sequence[Row]:
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


@pytest.mark.parametrize("limit", mostly_long([None, 4], 4))
def test_streams_begin_inside_an_entry(tmp_path: Path, limit: int | None) -> None:
    """Begin at messages of each entry: each row from there on once, also when each batch is replayed, and the first
    one with other options."""
    for ledger in (3, 8):
        write_ledger(tmp_path, ledger, mixed())
    whole = rows_of(txn_source.connect(f"pulsar:{tmp_path}"), "orders")
    for at in [(3, entry, 1 + entry % 5) for entry in (0, 1, 3, 4, 6, 8)] + [(8, 10, 2)]:
        query = Query(tmp_path, {"orders": {-1: MessageId(*at)}}, StreamLimits(max_messages=limit))
        query.run()
        assert [row for rows in query.batches for row in rows] == [row for row in whole if row >= at], at
        other = Query(tmp_path, EARLIEST, StreamLimits(max_messages=limit))
        other.texts.append(query.texts[1])
        assert other.read(0) == query.batches[0]
        assert all("begins" not in offset["$log"] for offset in query.offsets[2:])
        for before, after in pairwise(query.offsets):
            assert before[TOPIC]["-1"] != after[TOPIC]["-1"]


def test_stream_begins_in_what_is_not_offloaded_yet(tmp_path: Path) -> None:
    """Begin inside an entry that isn't there yet, while another partition goes on: the place isn't forgotten."""
    topic = "public/default/persistent/orders-partition-"
    two = [Sent(b"a"), Sent(b"b")]
    for partition in range(2):
        write_ledger(tmp_path, 3 + partition, [batch(two)], f"{topic}{partition}")
    start = {"orders": {0: "3:1:-1:1", 1: "4:0:-1:1"}}
    query = Query(tmp_path, start, StreamLimits())
    query.run()
    assert query.batches == [[(4, 0, 1)]]
    write_ledger(tmp_path, 6, [batch(two)], f"{topic}1")
    query.run()
    assert query.batches[1:] == [[(6, 0, 0), (6, 0, 1)]]
    assert [offset["$log"].get("begins") for offset in query.offsets[1:]] == [
        {TOPIC: parts} for parts in ({"0": "3:1:-1:1", "1": "4:0:-1:1"}, {"0": "3:1:-1:1"})
    ]


def test_beginnings_that_are_held_back(tmp_path: Path) -> None:
    """Begin inside an entry of an open transaction: when it is committed, readers and streams begin there."""
    write_ledger(tmp_path, 3, [batch([Sent(b"a"), Sent(b"b"), Sent(b"c")], Frame(txn=(0, 1)))])
    start = MessageId(3, 0, 1)
    follower = txn_source.connect(f"pulsar:{tmp_path}").follow("orders", IsolationLevel.READ_COMMITTED, _PLACE, start)
    query = Query(tmp_path, start, StreamLimits())
    query.run()
    assert query.batches == list(follower.read()) == []
    write_ledger(tmp_path, 4, [marker((0, 1), commit=True)])
    query.run()
    [found] = follower.read()
    assert query.batches == [_tuples(found)] == [[(3, 0, 1), (3, 0, 2)]]
    assert list(follower.read()) == []


def test_offsets_end_between_entries() -> None:
    """A checkpoint says where the next batch begins by entries; what ends inside one was not made by a query."""
    texts = ForeignSource(ForeignTarget.parse("pulsar:/nowhere")).describe().offsets
    name = PartitionName(TOPIC, -1)
    value = {TOPIC: {"-1": "12:40"}, "$log": {"begins": {TOPIC: {"-1": "12:40:-1:3"}}}}
    found = texts.from_json(value)
    assert found.next(name) == MessageId(12, 40, 3)
    assert texts.to_json(found) == value
    with pytest.raises(InvalidArgumentError, match="is not an offset of a stream"):
        texts.from_json({TOPIC: {"-1": "12:40:-1:3"}})
    assert Side(LATEST, bare=MessageId(12, 40, 3)).inside(name) == MessageId(12, 40, 3)
