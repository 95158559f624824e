"""What filters and limits spare: tasks, entries and bytes; and what they must not spare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.log import tiers
from tests.log.predicates import literal
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, send_each
from tests.log.sites import ManualClock, Site
from txn_source import DataLossError, IsolationLevel, Log
from txn_source.client.reading.columns import columns_beside, select_columns
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import resolve
from txn_source.reading.filters import Filters
from txn_source.reading.plan import ReadPlan, plan
from txn_source.reading.request import ReadRequest, Selection
from txn_source.storage import tiered
from txn_source.storage.schema import RAW_SCHEMA

COLUMNS = ["value", *columns_beside(RAW_SCHEMA)]


def where(op: str, column: str, type: str, value: Any) -> dict[str, Any]:
    return {"op": op, "column": [column], "value": literal(type, value)}


def planned(log: Log, *filters: dict[str, Any], level: str = COMMITTED, **options: Any) -> ReadPlan:
    request = ReadRequest(IsolationLevel.parse(level), filters=Filters.parse(json.dumps(filters)), **options)
    return plan(OwnLog(log.access), resolve(log.metadata, Selection.of("orders")), request)


def ledgers_in(pinned: ReadPlan) -> list[int]:
    """Return the ledgers that the slices of a plan begin in."""
    return [piece.range.start.ledger_id for task in pinned.tasks for piece in task]


def read(log: Log, pinned: ReadPlan, columns: list[str] | None = None) -> list[dict[str, Any]]:
    schema = select_columns(log.schema("orders"), COLUMNS if columns is None else columns)
    pieces = (piece for task in pinned.tasks for piece in task)
    return pa.Table.from_batches(pinned.reader(OwnLog(log.access), schema).read(pieces), schema).to_pylist()  # type: ignore[no-any-return]


@pytest.fixture
def ledgers(clocked_log: Log, clock: ManualClock) -> Log:
    """Two partitions with three ledgers of three messages each, ten seconds apart."""
    log = clocked_log
    log.create_topic("orders", partitions=2)
    with log.producer("orders", batching=BY_HAND) as producer:
        for number in range(3):
            for index in range(3):
                for partition in (0, 1):
                    send_each(producer, [b"%d%d" % (number, index)], partition=partition)
                clock.advance(10)
            log.roll_ledger("orders")
    return log


def test_only_ledgers_that_may_have_wanted_messages_are_planned(ledgers: Log, clock: ManualClock) -> None:
    """Filter by partition, place and publish time, each of which the metadata knows."""
    ids = {p.partition: [x.ledger_id for x in p.ledgers if x.closed] for p in ledgers.stats("orders").partitions}
    start = clock.now_us - 90_000_000
    cases: list[tuple[list[dict[str, Any]], list[int]]] = [
        ([where("=", "__partition", "integer", 1)], [ids[1][0]]),
        ([where("=", "__topic", "string", "bills")], []),
        ([where("=", "__ledger_id", "long", ids[0][1])], [ids[0][1]]),
        ([where(">", "__ledger_id", "long", ids[1][1])], [ids[0][2], ids[1][2]]),
        ([where(">=", "__entry_id", "long", 3)], []),
        ([{"op": "in", "column": ["__ledger_id"], "values": [literal("long", ids[1][2])]}], [ids[1][2]]),
        ([{"op": "not", "of": [where("<=", "__ledger_id", "long", ids[1][1])]}], [ids[0][2], ids[1][2]]),
    ]
    times = [literal("timestamp", None) | {"value": start + at} for at in (30_000_000, 50_000_001)]
    of_times = [{"op": op, "column": ["__publish_time"], "value": time} for op, time in zip((">=", "<"), times)]  # noqa: B905
    cases.append((of_times, [ids[0][1], ids[1][1]]))
    for filters, expected in cases:
        assert ledgers_in(planned(ledgers, *filters)) == expected, filters
    assert {row["value"] for row in read(ledgers, planned(ledgers, *of_times))} == {b"10", b"11", b"12"}


def test_large_ledgers_are_cut_and_only_pieces_are_planned(clocked_log: Log, clock: ManualClock) -> None:
    """Filter a ledger that is cut into tasks, by the publish time and by the place of its last entries."""
    log = clocked_log
    log.create_topic("orders")
    with log.producer("orders") as producer:
        for number in range(20):
            send_each(producer, [b"%d" % number])
            clock.advance(1)
    last = {"op": ">=", "column": ["__publish_time"], "value": {"type": "timestamp", "value": clock.now_us - 2_000_000}}
    for filters in ([last], [where(">=", "__entry_id", "long", 18)]):
        whole, some = planned(log, min_partitions=10), planned(log, *filters, min_partitions=10)
        assert len(some.tasks) < len(whole.tasks) / 2
        assert {b"18", b"19"} <= {row["value"] for row in read(log, some)}


def test_messages_of_a_clock_that_was_ahead_are_found_by_their_times(clocked_log: Log, clock: ManualClock) -> None:
    """Publish times that lie in the future stay, whatever the ledgers' own times were mended to."""
    log = clocked_log
    log.create_topic("orders")
    with log.producer("orders", batching=BY_HAND) as producer:
        send_each(producer, [b"before"])
        started = clock.now_us
        clock.advance(30_000)
        send_each(producer, [b"ahead"])
        ahead = clock.now_us
        clock.advance(-30_000)
        send_each(producer, [b"after"])
        clock.pass_by(1200, lambda: send_each(producer, [b"later"]))
    between = {"type": "timestamp", "value": (started + ahead) // 2}
    late, early = ({"op": op, "column": ["__publish_time"], "value": between} for op in (">", "<="))
    for state in ("open", "closed", "tiered"):
        if state != "open":
            log.roll_ledger("orders")
        if state == "tiered":
            log.offload("orders")
            log.delete_hot("orders")
        rows = read(log, planned(log))
        for given, wanted in ((late, lambda at: at > between["value"]), (early, lambda at: at <= between["value"])):
            expected = {row["value"] for row in rows if wanted(round(row["__publish_time"].timestamp() * 1e6))}
            assert expected == {row["value"] for row in read(log, planned(log, given))} != set()


def test_row_groups_that_statistics_rule_out_are_not_read(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Count the row groups that a filter on a sorted column reads, of the messages and of the aborted ones."""
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 10)
    groups: list[int] = []
    original = tiered.TieredReader.read_row_group
    monkeypatch.setattr(
        tiered.TieredReader, "read_row_group", lambda self, n, fields: groups.append(n) or original(self, n, fields)
    )
    with Site("embedded", tmp_path / "log", clock) as site, site.connect() as log:
        log.create_topic("orders", schema=pa.schema([("value", pa.int64())]))
        with log.producer("orders", batching=BY_HAND) as producer:
            for start in range(0, 400, 5):
                txn = log.begin_transaction() if start % 20 == 0 else None
                producer.send_batch(pa.table({"value": range(start, start + 5)}), txn=txn)
                producer.flush()
                if txn is not None:
                    txn.abort()
        log.roll_ledger("orders")
        log.offload("orders")
        log.delete_hot("orders")
        wanted = [where(">=", "value", "long", 200), where("<", "value", "long", 210)]
        for level, rows, read_groups in ((COMMITTED, 5, 1), (UNCOMMITTED, 10, 2)):
            groups.clear()
            found = {row["value"] for row in read(log, planned(log, *wanted, level=level), ["value"])}
            assert len([value for value in found if 200 <= value < 210]) == rows
            assert len(groups) == read_groups
            groups.clear()
            read(log, planned(log, level=level), ["value"])
            assert len(groups) >= 20 * read_groups


def test_what_is_skipped_need_not_be_there(tmp_path: Path, clock: ManualClock) -> None:
    """Lose the files of all ledgers but one, and read that one; then trim what a plan has skipped."""
    with Site("embedded", tmp_path / "log", clock) as site, site.connect() as log:
        log.create_topic("orders")
        tiers.write_ledgers(log)
        ids = tiers.closed_ledgers(log, "orders")
        wanted = where("=", "__ledger_id", "long", ids[1])
        expected = read(log, planned(log, wanted))
        assert {row["__ledger_id"] for row in expected} == {ids[1]}
        skipping, whole = planned(log, wanted), planned(log)
        for segment in tiers.segments(site.root):
            if not segment.name.startswith(f"{ids[1]}-"):
                tiers.remove(segment)
        assert read(log, planned(log, wanted)) == expected
        log.trim("orders", before={"orders": {0: f"{ids[1]}:0"}})
        assert read(log, skipping) == expected
        with pytest.raises(DataLossError):
            read(log, whole)


@pytest.mark.parametrize("level", [COMMITTED, UNCOMMITTED])
def test_a_limit_spares_what_it_does_not_need(ledgers: Log, level: str) -> None:
    """Ask for every number of rows: so many come, or all there are, from as few ledgers as have them."""
    with ledgers.producer("orders") as producer:
        txn = ledgers.begin_transaction()
        send_each(producer, [b"aborted"] * 3, partition=1, txn=txn)
        txn.abort()
    whole = [row["value"] for row in read(ledgers, planned(ledgers, level=level))]
    assert read(ledgers, planned(ledgers, level=level, limit=len(whole) + 1), ["value"]) == [
        {"value": v} for v in whole
    ]
    for limit in range(len(whole) + 1):
        pinned = planned(ledgers, level=level, limit=limit, min_partitions=8)
        assert len(ledgers_in(pinned)) == -(-limit // 3)
        for task in pinned.tasks:
            schema = select_columns(ledgers.schema("orders"), ["value"])
            assert sum(len(batch) for batch in pinned.reader(OwnLog(ledgers.access), schema).read(task)) <= limit
        assert [row["value"] for row in read(ledgers, pinned)] == whole[:limit]


def test_a_limit_with_filters_leaves_out_nothing(ledgers: Log) -> None:
    """A filter decides after the read which rows count, so the limit can't stop before."""
    last = where("=", "value", "binary", b"22")
    assert [row["value"] for row in read(ledgers, planned(ledgers, last, limit=1))].count(b"22") == 2
