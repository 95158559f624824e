"""A read in two parts: the objects that any Parquet reader may take, read here by PyArrow alone, and the rest, read by
the log's own reader, are together what the log's own reader sees of all of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log import tiers
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED
from tests.log.tiers import everything, objects, second_files, write_ledgers
from tests.selection import examples
from txn_source import (
    DataLossError,
    InvalidArgumentError,
    IsolationLevel,
    Log,
    OnlyCopyError,
    Position,
    SegmentUnreadableError,
    connect,
)
from txn_source.client.places import parse_side
from txn_source.client.reading.columns import columns_beside, select_columns
from txn_source.client.reading.native import NativeSplit, location_of, native_split
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import resolve
from txn_source.model.copies import TieredCopy
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.read_priority import ReadPriority
from txn_source.reading.plan import plan
from txn_source.reading.request import ReadRequest, Selection, parse_ranges
from txn_source.storage import tiered
from txn_source.storage.schema import RAW_SCHEMA

COLUMNS = ["value", *(name for name in columns_beside(RAW_SCHEMA) if name != "__topic")]
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 5)
    monkeypatch.setattr(tiered, "_FOOTERS", tiered._FooterCache())


def split_of(log: Log, level: str = COMMITTED, **request: Any) -> NativeSplit:
    wanted = ReadRequest(IsolationLevel.parse(level), **request)
    return native_split(log.access, resolve(log.metadata, Selection.of("orders")), wanted)


def key(row: Row) -> tuple[int, ...]:
    return tuple(row[name] for name in ("__partition", "__ledger_id", "__entry_id", "__batch_index"))


def rows_of(log: Log, split: NativeSplit, level: str) -> list[Row]:
    """Read the objects by PyArrow and the ranges as Spark's Python source would: by a plan of its own."""
    found: list[Row] = []
    for each in split.objects:
        table = pq.ParquetFile(each.location.removeprefix("file://")).read()
        assert table.num_rows == each.rows > 0
        table = table.rename_columns([{"__index": "__batch_index"}.get(n, n) for n in table.column_names])
        found += table.select(COLUMNS).to_pylist()
    source = resolve(log.metadata, Selection.of("orders"))
    request = ReadRequest(IsolationLevel.parse(level), ranges=parse_ranges(split.ranges))
    pinned = plan(OwnLog(log.access), source, request)
    reader = pinned.reader(OwnLog(log.access), select_columns(source.payload, COLUMNS))
    for batch in reader.read(pinned.parts):
        found += batch.to_pylist()
    return sorted(found, key=key)


def expected(log: Log, level: str, **ends: Any) -> list[Row]:
    return sorted(log.scan("orders", level, COLUMNS, **ends).read_all().to_pylist(), key=key)


KINDS = ["plain", "plain", "commit", "commit", "abort", "span"]
WRITES = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1), st.integers(1, 4)), min_size=1, max_size=4)
UPKEEP = st.lists(
    st.sampled_from(["delete_hot", "delete_offloaded", "trim", "lose", "lose_second", "damage"]), max_size=1
)
ROUNDS = st.lists(st.tuples(WRITES, st.sampled_from([True, True, False]), UPKEEP), min_size=2, max_size=6)
"""What is written before ledgers are closed, whether they are offloaded, and what happens then."""


@given(rounds=ROUNDS, priority=st.sampled_from([None, *ReadPriority]), data=st.data())
@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_both_parts_are_the_whole(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[tuple[list[tuple[str, int, int]], bool, list[str]]],
    priority: ReadPriority | None,
    data: st.DataObject,
) -> None:
    """Fill and close ledgers, and offload, delete, trim and damage in between, in any order; divide reads of all and of
    ranges at both levels: the parts' rows are those of one scan. What is written after the division is in neither."""
    with connect(tmp_path_factory.mktemp("native") / "log") as log:
        log.create_topic("orders", partitions=2)
        for number, (writes, offload, upkeep) in enumerate(rounds):
            _fill(log, number, writes)
            _keep_up(log, number, [*(["offload"] if offload else []), *upkeep])
        if not all(_readable(log, level) for level in (COMMITTED, UNCOMMITTED)):
            return  # no reader could say what to expect
        tiered._FOOTERS = tiered._FooterCache()
        wanted = {level: expected(log, level) for level in (COMMITTED, UNCOMMITTED)}
        splits = {level: split_of(log, level, read_priority=priority) for level in wanted}
        with log.producer("orders") as producer:
            producer.send(b"later", partition=1)
        for level, split in splits.items():
            assert rows_of(log, split, level) == wanted[level]
        stats = log.stats("orders").partitions[0]
        places = [Position(ledger.ledger_id, entry) for ledger in stats.ledgers for entry in range(ledger.entries + 1)]
        start, end = sorted(data.draw(st.sampled_from(places)) for _ in range(2))
        ends = {"start": {"orders": {0: start}}, "end": {"orders": {0: end}}}
        for level in wanted:
            sides = {
                side: parse_side(value, default)
                for (side, value), default in zip(ends.items(), (EARLIEST, LATEST), strict=True)
            }
            split = split_of(log, level, read_priority=priority, **sides)
            assert rows_of(log, split, level) == expected(log, level, **ends)


def _fill(log: Log, number: int, writes: list[tuple[str, int, int]]) -> None:
    """Write messages, some in a transaction that stays open until the next time, and close the ledgers."""
    spanning = log.transactions()
    with log.producer("orders", batching=BY_HAND) as producer:
        for what, partition, count in writes:
            txn = None if what == "plain" else log.begin_transaction(800)
            for index in range(count):
                producer.send(b"%d-%d" % (number, index), partition=partition, txn=txn)
                if index % 2:
                    producer.flush()
            producer.flush()
            if txn is not None and what != "span":
                txn.commit() if what == "commit" else txn.abort()
    for txn in spanning:
        log.abort_transaction(txn.id)
    log.roll_ledger("orders")


def _keep_up(log: Log, number: int, upkeep: list[str]) -> None:
    for what in upkeep:
        if what == "trim":
            ledgers = log.stats("orders").partitions[0].ledgers
            log.trim("orders", before={"orders": {0: Position(ledgers[len(ledgers) // 2].ledger_id, 0)}})
        elif what in ("lose", "damage", "lose_second"):
            found = second_files(log.root) if what == "lose_second" else objects(log.root)
            if found:
                path = found[number % len(found)]
                tiers.flip_in_footer(path) if what == "damage" else path.unlink()
        else:
            with suppress(OnlyCopyError, SegmentUnreadableError):  # of damaged copies
                getattr(log, what)("orders")


def _readable(log: Log, level: str) -> bool:
    tiered._FOOTERS = tiered._FooterCache()
    try:
        everything(log, "orders", level)
    except SegmentUnreadableError:
        return False
    return True


# What is handed over


@pytest.fixture
def offloaded(tmp_path: Path) -> Iterator[Log]:
    """A log with three offloaded ledgers and an open one; aborted messages in each of the three."""
    with connect(tmp_path / "log") as log:
        log.create_topic("orders")
        write_ledgers(log)
        log.offload("orders")
        yield log


def test_whole_ledgers_are_handed_over(offloaded: Log) -> None:
    """Divide a read of all: the objects have what read_committed sees of the closed ledgers, the open one is left."""
    split = split_of(offloaded)
    assert [Path(o.location.removeprefix("file://")) for o in split.objects] == objects(offloaded.root)
    assert [o.size for o in split.objects] == [path.stat().st_size for path in objects(offloaded.root)]
    [(_, rest)] = split.rest
    assert rest.start == Position(offloaded.stats("orders").ledgers[-1].ledger_id, 0)
    assert split.left == {"they are open, not decided, or only in part inside the read": 1}
    assert rows_of(offloaded, split, COMMITTED) == expected(offloaded, COMMITTED)


def test_ledgers_with_aborted_messages_are_left_to_read_uncommitted(offloaded: Log) -> None:
    """Divide the same at read_uncommitted: one object of two files is none that another reader could take alone."""
    split = split_of(offloaded, UNCOMMITTED)
    assert split.objects == ()
    assert split.left["aborted messages lie in second files"] == 3


def test_priority_decides_where_there_is_a_hot_copy(offloaded: Log) -> None:
    """Read hot copies first, by the read's option and by the topic's policy; then delete the hot copies."""
    for priority in (ReadPriority.BOOKKEEPER_FIRST, None):
        split = split_of(offloaded, read_priority=priority)
        assert (len(split.objects), split.left.get("their hot copies are read first", 0)) == (
            (0, 3) if priority else (3, 0)
        )
    offloaded.set_data_read_priority("bookkeeper-first", topic="orders")
    assert split_of(offloaded).objects == ()
    assert len(split_of(offloaded, read_priority=ReadPriority.TIERED_FIRST).objects) == 3
    offloaded.delete_hot("orders")
    assert len(split_of(offloaded).objects) == 3


@pytest.mark.parametrize("damage", [tiers.remove, tiers.cut_last_byte, tiers.flip_in_footer, tiers.overwrite])
def test_unsound_object_is_left(offloaded: Log, damage: tiers.Damage) -> None:
    """Damage an object whose footer is remembered: its ledger is left, with the reason, and read from the hot copy."""
    assert len(split_of(offloaded).objects) == 3
    path = objects(offloaded.root)[1]
    damage(path)
    split = split_of(offloaded)
    assert len(split.objects) == 2
    assert any(path.name in why and " is unreadable: " in why for why in split.left)
    assert rows_of(offloaded, split, COMMITTED) == expected(offloaded, COMMITTED)


def test_object_of_format_1_is_left(offloaded: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the objects for older ones: they may have aborted messages among the others."""
    monkeypatch.setattr(tiered, "_FIRST_WITHOUT_ABORTED", 3)
    assert split_of(offloaded).objects == ()
    assert list(split_of(offloaded).left.values()) == [3, 1]


def test_rest_that_was_trimmed_is_told(offloaded: Log) -> None:
    """Trim between the division and the plan of its rest."""
    ledgers = offloaded.stats("orders").ledgers
    start = parse_side({"orders": {0: Position(ledgers[0].ledger_id, 1)}}, EARLIEST)
    split = split_of(offloaded, start=start)
    offloaded.trim("orders", before=f"{ledgers[1].ledger_id}:0")
    with pytest.raises(DataLossError, match="was trimmed"):
        rows_of(offloaded, split, COMMITTED)


@pytest.mark.parametrize(
    "text", ["", "{}x", "[]", '{"orders": 1}', '{"orders": {"x": []}}', '{"orders": {"0": [["1:0"]]}}']
)
def test_ranges_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_ranges(text)


LOCATIONS = {
    "tiered/t/n/x/0/ledger-1.parquet": "file:///log/tiered/t/n/x/0/ledger-1.parquet",
    "/cold store/%41#b/x.parquet": "file:///cold store/%41#b/x.parquet",
    "file:///cold%20store/x.parquet": "file:///cold store/x.parquet",
    "hdfs://name:9000/cold/x.parquet": "hdfs://name:9000/cold/x.parquet",
    "hdfs://name:9000/cold/x.parquet?user=me": None,
    "s3://bucket/cold/x.parquet": None,
    "gs://bucket/cold/x.parquet": None,
    "/co[ld]/x.parquet": None,
    "/cold*/x.parquet": None,
    "/{cold}/x.parquet": None,
    "/cold\\a/x.parquet": None,
    "/k\u00e4lte/x.parquet": None,
    "/cold\n/x.parquet": None,
}


@pytest.mark.parametrize("uri", LOCATIONS)
def test_location_is_what_hadoop_takes_as_it_is(uri: str) -> None:
    location, why = location_of(Path("/log"), uri)
    assert location == LOCATIONS[uri]
    assert (location is None) == bool(why)


def test_objects_are_opened_several_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide a read of objects in a store where each waits until another one is asked for, too."""
    with connect(tmp_path / "log") as log:
        log.create_topic("orders", partitions=2)
        for _ in range(2):
            with log.producer("orders") as producer:
                for partition in range(2):
                    producer.send(b"x", partition=partition)
            log.roll_ledger("orders")
        log.offload("orders")
        opened, others = tiered._footer_bytes, threading.Barrier(4)

        def waiting(root: Path, copy: TieredCopy) -> bytes:
            others.wait(30)
            return opened(root, copy)

        monkeypatch.setattr(tiered, "_footer_bytes", waiting)
        assert len(split_of(log).objects) == 4
