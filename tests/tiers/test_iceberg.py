"""Tiered objects as an Iceberg table: what PyIceberg then reads is what read_committed shows up to a cut."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.tiers.stores import CREDENTIALS, Bucket, Store
from txn_source import (
    InvalidArgumentError,
    Log,
    OnlyCopyError,
    Position,
    SchemaMismatchError,
    SegmentUnreadableError,
    UnavailableError,
    connect,
)
from txn_source.client.tiering import iceberg
from txn_source.client.tiering.iceberg import _shows_aborted
from txn_source.client.tiering.iceberg_table import ShownTable

pytestmark = pytest.mark.filterwarnings("default")  # PyIceberg's own
TABLE = "bank.orders"


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    """A catalog in SQLite, whose tables lie in a folder."""
    (tmp_path / "warehouse").mkdir()
    return {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
        "warehouse": f"file://{tmp_path / 'warehouse'}",
    }


@pytest.fixture
def catalog(properties: dict[str, str]) -> Catalog:
    return load_catalog("default", **properties)


def fill(log: Log, rounds: int = 8, seed: int = 0) -> None:
    """Write transactions over two partitions, some of them aborted, each half flushed alone, and plain messages."""
    rng = random.Random(seed)
    with log.producer("orders") as producer:
        for number in range(rounds):
            txn = log.begin_transaction()
            for partition in rng.sample((0, 1), 2):
                producer.send(b"%d-%d" % (seed, number), txn=txn, partition=partition)
                producer.flush()
                if rng.random() < 0.3:
                    producer.send(b"plain %d-%d" % (seed, number), partition=rng.randrange(2))
                    producer.flush()
            if rng.random() < 0.3:
                txn.abort()
            else:
                txn.commit()


def shown(catalog: Catalog) -> tuple[list[bytes], str, int]:
    """Return the values that the table has, the cut that it says, and how many snapshots there are."""
    table: Table = catalog.load_table(TABLE)
    summary: Any = table.current_snapshot().summary  # type: ignore[union-attr]
    return sorted(table.scan().to_arrow()["value"].to_pylist()), summary["txnlog.cut"], len(table.snapshots())


def assert_exact(log: Log, catalog: Catalog) -> None:
    """Compare the table with a scan up to its cut, which isn't lowered any further."""
    values, cut, _ = shown(catalog)
    ends = json.loads(cut)["positions"]
    for partition in log.stats("orders").partitions:  # what lies below the cut may have been trimmed altogether
        place = ends["orders"], str(partition.partition)
        if place[1] in place[0]:
            place[0][place[1]] = str(max(Position.parse(place[0][place[1]]), partition.log_start))
    assert values == sorted(log.scan("orders", end=ends).read_all()["value"].to_pylist())
    assert len(values) == log.scan("orders", end=ends, consistent_cut=False).read_all().num_rows


@pytest.mark.parametrize("store", ["root", pytest.param("s3", marks=pytest.mark.long)], indirect=True)
def test_table_shows_what_read_committed_shows_up_to_its_cut(
    log_with_store: Log, store: Store, properties: dict[str, str]
) -> None:
    """Export after each of some rounds of transactions and aborts, in all stores, some ledgers being open or divided by
    the cut; what is read through the table is exact each time, and grows."""
    log = log_with_store
    if store.uri is not None and store.uri.startswith("s3:"):
        given = dict(part.split("=", 1) for part in store.uri.partition("?")[2].split("&"))
        properties["s3.endpoint"] = given["endpoint_override"]
        properties |= {"s3.access-key-id": CREDENTIALS[0], "s3.secret-access-key": CREDENTIALS[1]}
    catalog = load_catalog("default", **properties)
    log.create_topic("orders", partitions=2, ledger_max_entries=5)
    assert log.export_iceberg("orders", properties, TABLE).snapshot_id is None
    counts, divided = [], False
    for seed in range(2 if "s3.endpoint" in properties else 4):
        fill(log, seed=seed)
        log.offload("orders")
        report = log.export_iceberg("orders", catalog, TABLE)
        assert report.added
        assert_exact(log, catalog)
        files = [task.file.file_path for task in catalog.load_table(TABLE).scan().plan_files()]
        divided = divided or any("/txnlog-" in path for path in files)
        counts.append(report.rows)
    assert counts == sorted(set(counts))
    assert divided
    log.roll_ledger("orders")
    log.offload("orders")
    assert log.export_iceberg("orders", catalog, TABLE).waiting == 0
    assert shown(catalog)[0] == sorted(log.scan("orders").read_all()["value"].to_pylist())


def test_export_that_finds_nothing_new_changes_nothing(log: Log, catalog: Catalog) -> None:
    """Export twice; the second one makes no snapshot and says what is there."""
    two_closed(log)
    first = log.export_iceberg("orders", catalog, TABLE)
    again = log.export_iceberg("orders", catalog, TABLE)
    assert (again.added, again.removed, again.snapshot_id, again.rows) == (0, 0, first.snapshot_id, first.rows)
    assert shown(catalog)[2] == 1


def two_closed(log: Log) -> None:
    """Make a topic with two offloaded ledgers of two messages on its partition, and an open one."""
    log.create_topic("orders", ledger_max_entries=2)
    with log.producer("orders") as producer:
        for value in (b"a", b"b", b"c", b"d", b"e"):
            producer.send(value)
            producer.flush()
    log.offload("orders")


def test_transaction_that_a_ledger_s_end_divides_is_shown_whole(log: Log, catalog: Catalog, tmp_path: Path) -> None:
    """Let a transaction lie in two ledgers, of which only the first is offloaded: its rows come with the second, and
    the file that had the rest gives way to the object."""
    log.create_topic("orders", ledger_max_entries=3)
    with log.producer("orders") as producer:
        producer.send(b"before")
        producer.flush()
        with log.begin_transaction() as txn:
            for value in (b"one", b"two", b"three"):
                producer.send(value, txn=txn)
                producer.flush()
    log.offload("orders")
    report = log.export_iceberg("orders", catalog, TABLE)
    assert (shown(catalog)[0], report.added, report.waiting) == ([b"before"], 1, 2)
    log.roll_ledger("orders")
    log.offload("orders")
    report = log.export_iceberg("orders", catalog, TABLE)
    assert (shown(catalog)[0], report.added, report.removed) == ([b"before", b"one", b"three", b"two"], 2, 1)
    paths = [task.file.file_path for task in catalog.load_table(TABLE).scan().plan_files()]
    assert all(path.startswith(f"file://{log.root}/tiered/") for path in paths)


def test_what_was_trimmed_or_offloaded_anew_is_exchanged(log: Log, catalog: Catalog) -> None:
    """Delete the objects and offload again, then trim all: the table has each row once, then none."""
    two_closed(log)
    log.export_iceberg("orders", catalog, TABLE)
    log.delete_offloaded("orders")
    log.offload("orders")
    report = log.export_iceberg("orders", catalog, TABLE)
    assert (report.added, report.removed, shown(catalog)[0]) == (2, 2, [b"a", b"b", b"c", b"d"])
    assert log.trim("orders", older_than=0)
    report = log.export_iceberg("orders", catalog, TABLE)
    assert (report.added, report.removed, shown(catalog)[0]) == (0, 2, [])


def test_object_that_goes_during_an_export_is_left_out(
    log: Log, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trim the topic between the look at the log and the first footer."""
    two_closed(log)
    read_footer = iceberg.read_footer

    def too_late(*given: Any) -> Any:
        monkeypatch.setattr(iceberg, "read_footer", read_footer)
        log.trim("orders", older_than=0)
        return read_footer(*given)

    monkeypatch.setattr(iceberg, "read_footer", too_late)
    report = log.export_iceberg("orders", catalog, TABLE)
    assert (report.added, report.rows, report.snapshot_id) == (0, 0, None)


Change = Callable[..., int | None]


def test_of_two_exports_at_once_one_begins_anew(
    log: Log, catalog: Catalog, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let a second export, which sees more, get between the look and the change of the first one."""
    two_closed(log)
    change: Change = ShownTable.change
    reports = []

    def after_another(*given: Any) -> int | None:
        monkeypatch.setattr(ShownTable, "change", change)
        log.roll_ledger("orders")
        log.offload("orders")
        reports.append(log.export_iceberg("orders", load_catalog("default", **properties), TABLE))
        return change(*given)

    monkeypatch.setattr(ShownTable, "change", after_another)
    late = log.export_iceberg("orders", catalog, TABLE)
    assert (late.added, late.snapshot_id) == (0, reports[0].snapshot_id)
    assert shown(catalog)[::2] == ([b"a", b"b", b"c", b"d", b"e"], 1)


def test_catalog_that_fails_is_told_and_can_be_tried_again(
    log: Log, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the catalog lose a commit's answer, once before and once after it counted: each row is there once."""
    two_closed(log)
    commit_table = SqlCatalog.commit_table

    def lose_answer(counts: bool, *given: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
        if counts:
            commit_table(*given)
        raise ConnectionError("gone")

    for counts in (False, True):
        monkeypatch.setattr(SqlCatalog, "commit_table", lambda *given, counts=counts: lose_answer(counts, *given))
        with pytest.raises(UnavailableError, match="ConnectionError: gone"):
            log.export_iceberg("orders", catalog, TABLE)
    assert log.export_iceberg("orders", catalog, TABLE).added == 0
    assert shown(catalog)[::2] == ([b"a", b"b", b"c", b"d"], 1)


@pytest.mark.long
def test_random_life_of_a_topic_is_shown_exactly(log: Log, catalog: Catalog) -> None:
    """Write, roll, offload, delete copies, trim and add partitions in random order, and export between: exact each
    time, and as far as it says."""
    rng = random.Random(0)
    log.create_topic("orders", partitions=2, ledger_max_entries=rng.choice((3, 5, 9)))
    steps = {
        "write": lambda: fill(log, rng.randint(2, 5), rng.randrange(1000)),
        "roll": lambda: log.roll_ledger("orders", rng.choice((0, 1, None))),
        "offload": lambda: log.offload("orders"),
        "delete objects": lambda: log.delete_offloaded("orders"),
        "delete segments": lambda: log.delete_hot("orders"),
        "trim": lambda: log.trim("orders", keep_bytes=rng.randrange(2000)),
        "more partitions": lambda: log.update_topic("orders", min(4, len(log.stats("orders").partitions) + 1)),
    }
    weights = [5, 2, 5, 1, 1, 0.5, 0.5]
    for name in ("write", "roll", "offload"):
        steps[name]()
    log.export_iceberg("orders", catalog, TABLE)
    for _ in range(15):
        [step] = rng.choices(list(steps), weights)
        try:
            steps[step]()
        except OnlyCopyError:
            continue
        if log.export_iceberg("orders", catalog, TABLE).snapshot_id is None:
            assert not log.export_iceberg("orders", catalog, TABLE).rows  # nothing could be shown so far
        else:
            assert_exact(log, catalog)


def test_table_of_something_else_is_refused(log: Log, catalog: Catalog, tmp_path: Path) -> None:
    """Export to a table that others made, to one of another log, and to one of the topic before it was made anew."""
    two_closed(log)
    catalog.create_namespace("bank")
    catalog.create_table("bank.other", pa.schema([pa.field("value", pa.binary())]))
    with pytest.raises(InvalidArgumentError, match=r"bank\.other is there and shows something else"):
        log.export_iceberg("orders", catalog, "bank.other")
    with connect(tmp_path / "another") as another:
        two_closed(another)
        another.export_iceberg("orders", catalog, TABLE)
    with pytest.raises(InvalidArgumentError, match="of another log, or before it was made anew"):
        log.export_iceberg("orders", catalog, TABLE)
    log.export_iceberg("orders", catalog, "bank.own")
    log.delete_topic("orders")
    two_closed(log)
    with pytest.raises(InvalidArgumentError, match="of another log, or before it was made anew"):
        log.export_iceberg("orders", catalog, "bank.own")


@pytest.mark.parametrize("wrong", [pa.timestamp("ns"), pa.duration("us")], ids=str)
def test_column_that_iceberg_can_t_have_is_refused_before_a_table_is_made(
    log: Log, catalog: Catalog, wrong: pa.DataType
) -> None:
    """Export a topic with such a column, at the top and inside others."""
    for topic, column in (("flat", wrong), ("nested", pa.list_(pa.struct([pa.field("a", wrong)])))):
        log.create_topic(topic, schema=pa.schema([pa.field("column", column)]))
        with pytest.raises(SchemaMismatchError, match=f"'column' is {re.escape(str(wrong))}"):
            log.export_iceberg(topic, catalog, f"bank.{topic}")
    assert catalog.list_namespaces() == []


def test_typed_topic_keeps_its_types_and_values(log: Log, catalog: Catalog) -> None:
    """Export columns of all types that may be, with nulls, and compare them with what is scanned."""
    item = pa.struct([pa.field("name", pa.string()), pa.field("amounts", pa.list_(pa.decimal128(9, 2)))])
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("small", pa.int8()),
            pa.field("flag", pa.bool_()),
            pa.field("rate", pa.float32()),
            pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("local", pa.timestamp("us")),
            pa.field("tags", pa.map_(pa.string(), pa.int32())),
            pa.field("items", pa.list_(item)),
        ]
    )
    log.create_topic("orders", schema=schema)
    rows = [
        {"id": 1, "small": -1, "flag": True, "rate": 0.5, "day": 1, "at": 2, "local": 3, "tags": [("a", 1)],
         "items": [{"name": "x", "amounts": [1, None]}]},
        {"id": 2, "items": []},  # PyIceberg takes null for an empty list of structs
    ]  # fmt: skip
    with log.producer("orders") as producer:
        producer.send_batch(pa.RecordBatch.from_pylist(rows, schema))
    log.roll_ledger("orders")
    log.offload("orders")
    log.export_iceberg("orders", catalog, TABLE)
    found = catalog.load_table(TABLE).scan().to_arrow()
    assert found.select(schema.names).to_pylist() == log.scan("orders", columns=schema.names).read_all().to_pylist()
    assert found["__publish_time"].to_pylist() == log.scan("orders").read_all()["__publish_time"].to_pylist()


def test_damaged_object_is_told_and_nothing_is_changed(log: Log, catalog: Catalog) -> None:
    """Flip a byte of an object's footer: the table isn't given any of the objects."""
    two_closed(log)
    path = min((log.root / "tiered").rglob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    with pytest.raises(SegmentUnreadableError, match="checksum"):
        log.export_iceberg("orders", catalog, TABLE)
    assert catalog.load_table(TABLE).current_snapshot() is None


def test_object_of_an_older_release_with_aborted_messages_is_noticed(tmp_path: Path) -> None:
    """Judge files by their statistics, as such objects have them: with aborted rows, without, and with plain ones."""
    found = {}
    for name, statuses in {"none": [None], "committed": ["committed", None], "old": ["committed", "aborted"]}.items():
        table = pa.table({"value": [b"x"] * len(statuses), "__txn_status": pa.array(statuses, pa.string())})
        pq.write_table(table, tmp_path / name)
        found[name] = _shows_aborted(pq.read_metadata(tmp_path / name))
    assert found == {"none": False, "committed": False, "old": True}


def test_object_with_a_path_that_iceberg_can_t_name_is_refused(
    log: Log, catalog: Catalog, bucket: Bucket, tmp_path: Path
) -> None:
    """Offload to a folder with a '#' in its name, which engines take for the end of a path."""
    log.set_policies(offload_uri=f"{tmp_path}/cold#1")
    two_closed(log)
    with pytest.raises(InvalidArgumentError, match=r"cold#1.*can't name"):
        log.export_iceberg("orders", catalog, TABLE)
    assert catalog.load_table(TABLE).current_snapshot() is None


@pytest.mark.parametrize(
    ("given", "table", "said"),
    [
        ({"type": "sql", "uri": "nonsense://x", "warehouse": "x"}, TABLE, "can't be opened"),
        (7, TABLE, "is no catalog"),
        (None, "orders", "names no Iceberg table"),
    ],
)
def test_catalog_or_table_that_can_t_be_is_refused(
    log: Log, catalog: Catalog, given: Any, table: str, said: str
) -> None:
    """Give properties that no catalog has, a number for a catalog, and a table without a namespace."""
    two_closed(log)
    with pytest.raises(InvalidArgumentError, match=said):
        log.export_iceberg("orders", catalog if given is None else given, table)
