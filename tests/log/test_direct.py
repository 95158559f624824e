"""A read in parts: row groups that another Parquet reader takes, read here by PyArrow alone, entries, read from their
bytes alone, and slices, read by the log's own reader. Together they are what the log's own reader sees of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log import tiers
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED
from tests.log.tiers import everything, objects, second_files, write_ledgers
from tests.selection import examples, mostly_long
from txn_source import IsolationLevel, Log, OnlyCopyError, Position, SegmentUnreadableError, connect
from txn_source.client.places import parse_side
from txn_source.client.reading import direct
from txn_source.client.reading.columns import columns_beside, select_columns
from txn_source.client.reading.direct import ENTRY_COLUMNS, EntryRun, Part, divide
from txn_source.client.reading.direct_objects import Left, ObjectRun, file_of
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.slice_reader import SliceReader
from txn_source.client.reading.source import resolve
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.read_priority import ReadPriority
from txn_source.reading.plan import plan
from txn_source.reading.request import ReadRequest, Selection
from txn_source.storage import tiered
from txn_source.storage.schema import RAW_SCHEMA

COLUMNS = ["value", *(name for name in columns_beside(RAW_SCHEMA) if name not in ("__topic", "__txn_status"))]
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 5)
    monkeypatch.setattr(tiered, "_FOOTERS", tiered._FooterCache())
    monkeypatch.setattr(direct, "LEAST_ROWS", 1)


def divided(log: Log, level: str = COMMITTED, **request: Any) -> tuple[SliceReader, list[Part]]:
    """Return the parts of a read, and the log's own reader."""
    source = resolve(log.metadata, Selection.of("orders"))
    planned = plan(OwnLog(log.access), source, ReadRequest(IsolationLevel.parse(level), **request))
    reader = planned.reader(OwnLog(log.access), select_columns(source.payload, COLUMNS))
    assert isinstance(reader, SliceReader)
    return reader, [part for task in divide(reader, planned.tasks) for part in task]


def key(row: Row) -> tuple[int, ...]:
    return tuple(row[name] for name in ("__partition", "__ledger_id", "__entry_id", "__batch_index"))


def rows_of(log: Log, level: str, **request: Any) -> list[Row]:
    reader, parts = divided(log, level, **request)
    return sorted((row for part in parts for row in _rows(reader, part)), key=key)


def _rows(reader: SliceReader, part: Part) -> list[Row]:
    """Return the rows of a part; the log's own reader takes the place of another one that fails."""
    found = None
    if isinstance(part, ObjectRun):
        found = _of_object(part)
    elif isinstance(part, EntryRun):
        found = _of_entries(part)
    return [row for batch in reader.read([part.piece]) for row in batch.to_pylist()] if found is None else found


def _of_object(run: ObjectRun) -> list[Row] | None:
    path = Path(run.path)
    data = path.read_bytes() if path.exists() else b""
    if len(data) != run.size or any(crc32c(data[at : at + size]) != crc for at, size, crc in run.checks.tolist()):
        return None
    file = pq.ParquetFile(path)
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    firsts = [min(group.column(i).data_page_offset for i in range(group.num_columns)) for group in groups]
    table = file.read_row_groups([number for number, at in enumerate(firsts) if run.start <= at < run.end])
    assert table.num_rows == run.rows > 0
    table = table.rename_columns([{"__index": "__batch_index"}.get(name, name) for name in table.column_names])
    rows: list[Row] = table.select(COLUMNS).to_pylist()
    return rows


def _of_entries(run: EntryRun) -> list[Row]:
    found = []
    for numbers in run.entries.tolist():
        entry = dict(zip(ENTRY_COLUMNS, numbers, strict=True))
        data = run.files[entry["file"]].read_bytes()
        header = data[: 8 + int.from_bytes(data[4:8], "little")]
        message = data[entry["offset"] : entry["offset"] + entry["length"]]
        assert crc32c(message, crc32c(header)) == entry["crc32c"]
        rows = pa.ipc.read_record_batch(pa.py_buffer(message), pa.ipc.read_schema(pa.py_buffer(header))).to_pylist()
        assert len(rows) == entry["messages"]
        texts = {"__producer_name": entry["producer"], "__txn_id": entry["txn"]}
        made = {name: None if at < 0 else run.texts[at] for name, at in texts.items()} | {
            "__partition": run.piece.partition,
            "__ledger_id": entry["ledger_id"],
            "__entry_id": entry["entry_id"],
            "__publish_time": pa.scalar(entry["publish_time_us"], pa.timestamp("us", "UTC")).as_py(),
        }
        for index, row in enumerate(rows):
            counted = {"__batch_index": index, "__sequence_id": entry["base_sequence"] + index}
            found.append({name: (row | made | counted).get(name) for name in COLUMNS})
    return found


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
def test_all_parts_are_the_whole(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[tuple[list[tuple[str, int, int]], bool, list[str]]],
    priority: ReadPriority | None,
    data: st.DataObject,
) -> None:
    """Fill and close ledgers, and offload, delete, trim and damage in between, in any order; divide reads of all and of
    ranges at both levels: the parts' rows are those of one scan."""
    with connect(tmp_path_factory.mktemp("direct") / "log") as log:
        log.create_topic("orders", partitions=2)
        for number, (writes, offload, upkeep) in enumerate(rounds):
            _fill(log, number, writes)
            _keep_up(log, number, [*(["offload"] if offload else []), *upkeep])
        if not all(_readable(log, level) for level in (COMMITTED, UNCOMMITTED)):
            return  # no reader could say what to expect
        tiered._FOOTERS = tiered._FooterCache()
        for level in (COMMITTED, UNCOMMITTED):
            assert rows_of(log, level, read_priority=priority) == expected(log, level)
        stats = log.stats("orders").partitions[0]
        places = [Position(ledger.ledger_id, entry) for ledger in stats.ledgers for entry in range(ledger.entries + 1)]
        start, end = sorted(data.draw(st.sampled_from(places)) for _ in range(2))
        sides = {"start": {"orders": {0: start}}, "end": {"orders": {0: end}}}
        parsed = {side: parse_side(sides[side], at) for side, at in (("start", EARLIEST), ("end", LATEST))}
        for level in (COMMITTED, UNCOMMITTED):
            assert rows_of(log, level, read_priority=priority, **parsed) == expected(log, level, **sides)


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


def kinds(log: Log, level: str = COMMITTED, **request: Any) -> Counter[str]:
    """Count the objects, the runs of entries, and the slices by the reasons why they are left."""
    parts = divided(log, level, **request)[1]
    objects = {part.path for part in parts if isinstance(part, ObjectRun)}
    others = [part.why if isinstance(part, Left) else "entries" for part in parts if not isinstance(part, ObjectRun)]
    return Counter({"objects": len(objects)}) + Counter(others)


def test_priority_decides_where_there_is_a_hot_copy(offloaded: Log) -> None:
    """Read hot copies first, by the read's option and by the topic's policy; then delete the hot copies."""
    assert kinds(offloaded) == {"objects": 3, "entries": 1}
    assert kinds(offloaded, read_priority=ReadPriority.BOOKKEEPER_FIRST) == {"entries": 1}
    offloaded.set_data_read_priority("bookkeeper-first", topic="orders")
    assert kinds(offloaded) == {"entries": 1}
    assert kinds(offloaded, read_priority=ReadPriority.TIERED_FIRST) == {"objects": 3, "entries": 1}
    offloaded.delete_hot("orders")
    assert kinds(offloaded) == {"objects": 3, "entries": 1}


def test_objects_in_two_files_and_older_ones_are_left(offloaded: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kinds(offloaded, UNCOMMITTED) == {"aborted messages in second files": 3, "entries": 1}
    monkeypatch.setattr(tiered, "_FIRST_WITHOUT_ABORTED", 3)
    monkeypatch.setattr(tiered, "_FOOTERS", tiered._FooterCache())
    assert kinds(offloaded) == {"objects of an older release": 3, "entries": 1}


@pytest.mark.parametrize(
    "damage", mostly_long([tiers.remove, tiers.cut_last_byte, tiers.flip_in_footer, tiers.overwrite], tiers.overwrite)
)
def test_unsound_object_is_left(offloaded: Log, damage: tiers.Damage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage an object whose footer is remembered, and one whose footer isn't."""
    assert kinds(offloaded)["objects"] == 3
    damage(objects(offloaded.root)[1])
    assert rows_of(offloaded, COMMITTED) == expected(offloaded, COMMITTED)
    monkeypatch.setattr(tiered, "_FOOTERS", tiered._FooterCache())
    assert kinds(offloaded) == {"objects": 2, "damaged objects": 1, "entries": 1}
    assert rows_of(offloaded, COMMITTED) == expected(offloaded, COMMITTED)


FILES = {
    "tiered/t/n/x/0/ledger-1.parquet": "/log/tiered/t/n/x/0/ledger-1.parquet",
    "/cold store/%41#b/x.parquet": "/cold store/%41#b/x.parquet",
    "file:///cold%20store/x.parquet": "/cold store/x.parquet",
    "hdfs://name:9000/cold/x.parquet": None,
    "s3://bucket/cold/x.parquet": None,
    "/co[ld]/x.parquet": None,
    "/cold*/x.parquet": None,
    "/cold\\a/x.parquet": None,
    "/k\u00e4lte/x.parquet": None,
    "/cold\n/x.parquet": None,
}


@pytest.mark.parametrize("uri", FILES)
def test_file_is_one_that_hadoop_takes_as_it_is(uri: str) -> None:
    assert file_of(Path("/log"), uri) == FILES[uri]
