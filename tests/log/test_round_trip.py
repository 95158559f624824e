"""What was sent comes back as it was, whichever way it went and from whichever copy; what can't was refused."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.types as types
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.log.reading import BY_HAND
from tests.selection import examples
from txn_source import Log, SchemaMismatchError, TxnLogError, connect
from txn_source.client.writing.batch_buffer import Buffer
from txn_source.storage.schema import conform

pytestmark = pytest.mark.also("objects", "copies")

CONTEXT = Context(prec=50)
NUMBERS = itertools.count()
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Without shrinking: an example is one log, and takes some milliseconds."""
INTS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
UNITS = st.sampled_from(["s", "ms", "us", "ns"])
ZONES = st.sampled_from([None, "UTC", "Europe/Berlin", "+07:30", "America/St_Johns"])
LEAVES = st.one_of(
    st.sampled_from([pa.bool_(), *INTS.values(), pa.float32(), pa.float64(), pa.date32()]),
    st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]),
    st.builds(pa.timestamp, UNITS, ZONES),
    st.builds(pa.duration, UNITS),
    st.integers(1, 38).flatmap(lambda p: st.builds(pa.decimal128, st.just(p), st.integers(0, p))),
)
NAMES = st.one_of(
    st.text(string.ascii_letters, min_size=1, max_size=3),
    st.sampled_from(["a.b", "a b", "ünï", "`", '"', "1", "element", "list", "key_value", "a.list.element", "\n", "😀"]),
)


def structs(parts: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.lists(
        st.builds(pa.field, NAMES, parts, st.booleans()), min_size=1, max_size=3, unique_by=lambda f: f.name.lower()
    ).map(pa.struct)


TYPES = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.builds(lambda t, nullable: pa.list_(pa.field("item", t, nullable)), parts, st.booleans()),
        parts.map(pa.large_list),
        structs(parts),
        st.builds(pa.map_, LEAVES, parts),
    ),
    max_leaves=4,
)
SCHEMAS = st.lists(
    st.builds(pa.field, NAMES, TYPES, st.booleans()), min_size=1, max_size=4, unique_by=lambda f: f.name.lower()
).map(pa.schema)


def edges(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return st.integers(low, high) | st.sampled_from([low, high, 0, -1, 1])


def values(t: pa.DataType) -> st.SearchStrategy[Any]:
    """Return values of a type, times as whole numbers."""
    if types.is_boolean(t):
        return st.booleans()
    if types.is_integer(t):
        return edges(t.bit_width)
    if types.is_floating(t):
        return st.floats(width=t.bit_width)
    if types.is_date32(t):
        return edges(32)
    if types.is_timestamp(t) or types.is_duration(t):
        # Of the very first second Arrow makes a value of Python's that it doesn't take back.
        return st.integers(-(1 << 41), 1 << 41) | edges(64).map(lambda n: max(n, 2_000_000 - (1 << 63)))
    if types.is_decimal128(t):
        most = 10**t.precision - 1
        return st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-t.scale, CONTEXT))
    if types.is_string(t) or types.is_large_string(t):
        return st.text(max_size=5)
    if types.is_binary(t) or types.is_large_binary(t):
        return st.binary(max_size=5)
    if types.is_struct(t):
        return st.fixed_dictionaries({f.name: nullable(f) for f in t})
    if types.is_map(t):
        return st.lists(st.tuples(values(t.key_type), nullable(t.item_field)), max_size=3)
    return st.lists(nullable(t.value_field), max_size=3)


def nullable(field: pa.Field) -> st.SearchStrategy[Any]:
    """Return values of a field, and null; rarely so where it may have none."""
    return values(field.type) | st.none() if field.nullable else values(field.type)


@st.composite
def batches(draw: st.DrawFn) -> tuple[pa.Schema, pa.RecordBatch]:
    """Return a topic's schema, and a batch for it that is a slice of a larger one."""
    schema = draw(SCHEMAS)
    rows = draw(st.integers(1, 6))
    columns = []
    for field in schema:
        loose = field.with_nullable(field.nullable or draw(st.integers(0, 9)) == 0)
        column = pa.array(draw(st.lists(nullable(loose), min_size=rows, max_size=rows)), field.type)
        if types.is_string(field.type) or types.is_binary(field.type):
            views = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}
            column = column.cast(draw(st.sampled_from([field.type, views[field.type]])))
        columns.append(column)
    start = draw(st.integers(0, rows - 1))
    return schema, pa.record_batch(columns, names=schema.names).slice(start)


def plain(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column's values in a form in which what is equal is the same: bits of floats, numbers of times."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in plain(chunk)]
    t = column.type
    if types.is_struct(t):
        parts = [plain(column.field(i)) for i in range(t.num_fields)]
        return [values if ok else None for ok, *values in zip(column.is_valid().to_pylist(), *parts, strict=True)]
    if types.is_map(t):
        return [None if not one.is_valid else [plain(p) for p in entries(one.values)] for one in column]
    if types.is_list(t) or types.is_large_list(t):
        return [plain(one.values) if one.is_valid else None for one in column]
    if types.is_floating(t):
        ints = pa.int32() if t.bit_width == 32 else pa.int64()
        return column.view(ints).to_pylist() if not nan(column) else [str(v) for v in column.to_pylist()]
    if types.is_temporal(t):
        return column.view(INTS[t.bit_width]).to_pylist()
    return column.to_pylist()


def entries(values: pa.Array) -> list[pa.Array]:
    return [values.field(0), values.field(1)]


def nan(column: pa.Array) -> bool:
    return any(value is not None and np.isnan(value) for value in column.to_pylist())


def shown(batch: Any, schema: pa.Schema) -> dict[str, list[Any]]:
    return {name: plain(batch.column(name)) for name in schema.names}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """One log, with a topic for each example."""
    with connect(tmp_path_factory.mktemp("round") / "log") as log:
        yield log


def check_round_trip(log: Log, schema: pa.Schema, batch: pa.RecordBatch) -> bool:
    """Send a batch, and its rows one by one, and read them from each copy; return whether it was taken."""
    topic = f"t{next(NUMBERS)}"
    log.create_topic(topic, schema=schema)
    with log.producer(topic, batching=BY_HAND) as producer:
        try:
            producer.send_batch(batch)
        except SchemaMismatchError:
            assert producer.flush() == []
            return False
        assert len(producer.flush()) == batch.num_rows
    want = shown(batch, schema)

    def check(found: Any, how: str) -> None:
        assert shown(found, schema) == want, how

    found = log.scan(topic, columns=schema.names).read_all()
    assert found.schema.equals(schema)
    check(found, "hot")
    with log.reader(topic) as reader:
        received = reader.read_batch(timeout=30)
        assert received is not None
        check(received.data, "received")
    log.roll_ledger(topic)
    assert len(log.offload(topic).ledger_ids) == 1
    scan = log.scan(topic, columns=schema.names, read_priority="tiered-first")
    check(scan.read_all(), "tiered")
    assert (log.copies_read(scan).tiered_ledgers, log.copies_read(scan).failures) == (1, [])
    log.delete_topic(topic)
    return True


@given(batches())
@settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
def test_what_is_sent_comes_back_from_each_copy(log: Log, example: tuple[pa.Schema, pa.RecordBatch]) -> None:
    """Send batches of random schemas, names and values, extremes included: hot, received and tiered they are equal."""
    check_round_trip(log, *example)


@given(batches())
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
def test_row_means_what_the_same_row_in_a_batch_means(example: tuple[pa.Schema, pa.RecordBatch]) -> None:
    """Take random rows in both shapes: both are refused, or both stored alike."""
    schema, batch = example
    try:
        whole = batch.to_pylist()
    except (OverflowError, ValueError):  # Python has no such time
        return
    for at, row in enumerate(whole):
        one = batch.slice(at, 1)
        by_row, by_batch = Buffer(schema, 0), Buffer(schema, 0)
        refused = []
        for take in (lambda: by_row.add(row, None, None, None), lambda: by_batch.add_batch(conform(one, schema))):  # noqa: B023
            try:
                take()
            except TxnLogError as error:
                refused.append(str(error))
        assert len(refused) in (0, 2), (row, refused)
        if refused:
            return
        [left], [right] = by_row.entries(), by_batch.entries()
        assert left.schema.equals(right.schema)
        assert shown(left, schema) == shown(right, schema)


@pytest.mark.parametrize("names", [["a.b"], ["a", "a.b"], ["a.b", "a.b.c", "a"]], ids=str)
def test_columns_named_with_dots_are_read_from_objects(names: list[str], log: Log) -> None:
    """Give columns, and parts of them, names that look like a path of Parquet's, which are read by name."""
    parts = pa.struct([(name, pa.int64()) for name in ("b", "a.b", "b.c")])
    schema = pa.schema([*((name, pa.int64()) for name in names[1:]), (names[0], parts)])
    row = {name: at for at, name in enumerate(names)} | {names[0]: {"b": 5, "a.b": 6, "b.c": 7}}
    assert check_round_trip(log, schema, pa.RecordBatch.from_pylist([row, row], schema))
