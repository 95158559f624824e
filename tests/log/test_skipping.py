"""A read that is given filters leaves out only rows for which they aren't true, wherever the rows lie."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.log.predicates import Kind, is_true, random_filter
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED
from tests.log.sites import ManualClock, Site
from txn_source import Log, Position
from txn_source.client.reading import tasks
from txn_source.client.reading.columns import METADATA_COLUMNS, columns_beside
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import resolve
from txn_source.model.isolation import IsolationLevel
from txn_source.reading.filters import Filters
from txn_source.reading.plan import plan
from txn_source.reading.request import ReadRequest, Selection
from txn_source.storage import tiered

LEDGERS = 6
_NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
_FLOATS = (0.0, -0.0, 1.5, 0.1, float("nan"), float("inf"), float("-inf"))
_TEXTS = ("", "a", "ab", "b", "é", "\U0001f600", "\uffff", "z" * 40)


def _near(source: random.Random) -> int:
    return source.randrange(-1, LEDGERS + 1)


def _instant(source: random.Random) -> datetime:
    return _NOON + timedelta(hours=_near(source), microseconds=source.randrange(3))


PAYLOAD: dict[str, tuple[pa.DataType, Kind]] = {
    name: (type_, Kind((name,), spark, value))
    for name, type_, spark, value in [
        ("flag", pa.bool_(), "boolean", lambda s: _near(s) > 2),
        ("byte", pa.int8(), "byte", _near),
        ("Short", pa.int16(), "short", _near),
        ("number", pa.int32(), "integer", _near),
        ("large", pa.int64(), "long", lambda s: (1 << 62) + _near(s)),
        ("ratio", pa.float32(), "float", lambda s: s.choice((*_FLOATS, float(_near(s))))),
        ("real", pa.float64(), "double", lambda s: s.choice((*_FLOATS, float(_near(s))))),
        ("price", pa.decimal128(10, 2), "decimal(10,2)", lambda s: Decimal(_near(s)) / 4),
        ("exact", pa.decimal128(38, 4), "decimal(38,4)", lambda s: Decimal(_near(s)) / 4),
        ("text", pa.string(), "string", lambda s: s.choice(_TEXTS) + str(_near(s))),
        ("name.of", pa.large_string(), "string", lambda s: str(_near(s)) + s.choice(_TEXTS)),
        ("data", pa.binary(), "binary", lambda s: bytes([_near(s) % 256]) + s.choice((b"", b"\x00", b"\xff"))),
        ("day", pa.date32(), "date", lambda s: date(1969, 12, 29) + timedelta(days=_near(s))),
        ("at", pa.timestamp("us", tz="Europe/Berlin"), "timestamp", _instant),
        ("local", pa.timestamp("us"), "timestamp_ntz", lambda s: _instant(s).replace(tzinfo=None)),
        ("seconds", pa.timestamp("s"), "timestamp_ntz", lambda s: _instant(s).replace(microsecond=0, tzinfo=None)),
    ]
}
SCHEMA = pa.schema([*((name, type_) for name, (type_, _) in PAYLOAD.items()),
                    ("inner", pa.struct([("a", pa.int32()), ("b", pa.string())])),
                    ("list", pa.list_(pa.int32()))])  # fmt: skip
KINDS = [
    *(kind for _, kind in PAYLOAD.values()),
    Kind(("inner", "a"), "integer", _near),
    Kind(("inner", "b"), "string", lambda s: s.choice(_TEXTS)),
    Kind(("__topic",), "string", lambda s: s.choice(("orders", "other"))),
    Kind(("__partition",), "integer", lambda s: s.randrange(3)),
    Kind(("__ledger_id",), "long", lambda s: s.randrange(0, 2 * LEDGERS + 4)),
    Kind(("__entry_id",), "long", lambda s: s.randrange(12)),
    Kind(("__batch_index",), "integer", lambda s: s.randrange(6)),
    Kind(("__publish_time",), "timestamp", lambda s: _NOON + timedelta(seconds=s.randrange(-1, 60))),
    Kind(("__event_time",), "timestamp", lambda s: _NOON + timedelta(hours=_near(s))),
    Kind(("__producer_name",), "string", lambda s: f"producer {_near(s)}"),
    Kind(("__sequence_id",), "long", lambda s: s.randrange(40)),
    Kind(("__txn_id",), "string", lambda s: f"(0,{s.randrange(20)})"),
    Kind(("__txn_status",), "string", lambda s: s.choice(("open", "committed", "aborted"))),
]
TYPES = {kind.path: kind.type for kind in KINDS}


def write(log: Log, clock: ManualClock, source: random.Random) -> None:
    """Fill ledgers of two partitions: values grow with the ledgers, with some nulls, and some columns have none."""
    log.create_topic("orders", partitions=2, schema=SCHEMA)
    for number in range(LEDGERS):
        empty = {name for name in SCHEMA.names if source.random() < 0.1}
        with log.producer("orders", name=f"producer {number}", batching=BY_HAND) as producer:
            for _ in range(8):
                end = source.choice(["plain", "commit", "abort"])
                txn = None if end == "plain" else log.begin_transaction(800)
                rows = [_row(source, number, empty) for _ in range(source.randint(1, 6))]
                batch = pa.Table.from_pylist(rows, schema=SCHEMA)
                if number % 2:
                    field = METADATA_COLUMNS["__event_time"]
                    times = [_NOON + timedelta(hours=number) if source.random() < 0.7 else None for _ in rows]
                    batch = batch.append_column(field, [pa.array(times, field.type)])
                producer.send_batch(batch, txn=txn, partition=source.randrange(2))
                producer.flush()
                clock.advance(1)
                if txn is not None:
                    txn.commit() if end == "commit" else txn.abort()
        if number < LEDGERS - 1:
            log.roll_ledger("orders")


def _row(source: random.Random, number: int, empty: set[str]) -> dict[str, Any]:
    near = _At(source, number)
    row: dict[str, Any] = {name: kind.value(near) for name, (_, kind) in PAYLOAD.items()}
    row["inner"] = {"a": _near(near), "b": source.choice([None, *_TEXTS])} if source.random() < 0.8 else None
    row["list"] = [number]
    return {name: None if name in empty or source.random() < 0.1 else value for name, value in row.items()}


class _At(random.Random):
    """Chooses like another one, but numbers near the ledger's."""

    def __init__(self, source: random.Random, number: int) -> None:
        super().__init__(source.random())
        self._number = number

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:  # type: ignore[override]
        if (start, stop) == (-1, LEDGERS + 1):
            return self._number
        return super().randrange(start, stop, step)


def read(log: Log, level: str, filters: list[dict[str, Any]], **options: Any) -> pa.Table:
    """Return all columns of what a read with filters gives."""
    source = resolve(log.metadata, Selection.of("orders"))
    request = ReadRequest(IsolationLevel.parse(level), filters=Filters.parse(json.dumps(filters)), **options)
    planned = plan(OwnLog(log.access), source, request)
    schema = pa.schema([*source.payload, *columns_beside(source.payload).values()])
    pieces = (piece for task in planned.tasks for piece in task)
    return pa.Table.from_batches(planned.reader(OwnLog(log.access), schema).read(pieces), schema)


@pytest.fixture
def row_groups_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 10)


@pytest.mark.usefixtures("row_groups_of_ten")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 30))])
def test_what_filters_leave_out_is_what_they_are_not_true_for(tmp_path: Path, clock: ManualClock, seed: int) -> None:
    source = random.Random(seed)
    skipped = total = 0
    with Site("embedded", tmp_path / "log", clock) as site, site.connect() as log:
        write(log, clock, source)
        for state in ("hot", "both", "tiered", "purged"):
            if state == "both":
                log.offload("orders")
            elif state == "tiered":
                log.delete_hot("orders")
            elif state == "purged":
                clock.advance(3601)
                log.delete_hot("orders")
            for level in (COMMITTED, UNCOMMITTED):
                whole = _keyed(read(log, level, []))
                for _ in range(3 if seed == 1 else 60):
                    filters = [random_filter(source, KINDS) for _ in range(source.randint(1, 2))]
                    options = {"min_partitions": source.choice([None, 5])}
                    found = _keyed(read(log, level, filters, **options))
                    assert all(whole[key][0] == text for key, (text, _) in found.items()), filters
                    wanted = {k for k, (_, row) in whole.items() if all(is_true(f, row, TYPES) for f in filters)}
                    assert wanted <= found.keys(), (state, level, filters)
                    skipped, total = skipped + len(whole) - len(found), total + len(whole)
    assert skipped > total / 10


def _keyed(table: pa.Table) -> dict[tuple[int, ...], tuple[str, dict[str, Any]]]:
    """Return rows by their place; NaN isn't equal to itself, so each comes with its text."""
    rows = {
        (row["__partition"], row["__ledger_id"], row["__entry_id"], row["__batch_index"]): row
        for row in table.to_pylist()
    }
    assert len(rows) == table.num_rows
    return {key: (repr(row), row) for key, row in rows.items()}


@pytest.mark.parametrize("hot", [True, False], ids=["hot and tiered", "tiered"])
def test_ledgers_are_left_out_of_the_plan_by_their_objects_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hot: bool
) -> None:
    """Plan reads that want one value, in a log where each ledger has one; and again with too many objects."""
    with Site("embedded", tmp_path / "log") as site, site.connect() as log:
        log.create_topic("orders", schema=pa.schema([("n", pa.int64())]))
        for number in range(5):
            with log.producer("orders") as producer:
                producer.send_batch(pa.table({"n": [number] * 3}))
                if number == 3:
                    with log.begin_transaction() as txn:
                        producer.send_batch(pa.table({"n": [7]}), txn=txn)
                        producer.flush()
                        txn.abort()
            if number < 4:
                log.roll_ledger("orders")
        log.offload("orders")
        if not hot:
            log.delete_hot("orders")
        ledgers = [ledger.ledger_id for ledger in log.stats("orders").ledgers]

        def planned(value: int, level: str = COMMITTED, column: str = "n") -> list[int]:
            literal = {"type": "long", "value": value}
            asked = Filters.parse(json.dumps([{"op": "=", "column": [column], "value": literal}]))
            request = ReadRequest(IsolationLevel.parse(level), filters=asked)
            found = plan(OwnLog(log.access), resolve(log.metadata, Selection.of("orders")), request)
            ranges = [piece.range for task in found.tasks for piece in task]
            return [n for n, i in enumerate(ledgers) if any(r.start <= Position(i, 0) < r.end for r in ranges)]

        assert planned(1) == [1, 4]  # of the open ledger nothing is known
        assert planned(7) == [4]
        assert planned(7, UNCOMMITTED) == [3, 4]  # an aborted message has it
        assert planned(ledgers[2], column="__ledger_id") == [2]
        objects = sorted(log.root.rglob("ledger-*.parquet"))
        objects[0].rename(tmp_path / "away")
        monkeypatch.setattr(tiered, "_FOOTERS", tiered._FooterCache())
        assert planned(1) == [0, 1, 4]  # whoever reads it says what is wrong with it
        monkeypatch.setattr(tasks, "_LOOKED_AT", 3)
        assert planned(1) == [0, 1, 2, 3, 4]
