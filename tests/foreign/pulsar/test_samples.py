"""What brokers offloaded, row by row in every field as Pulsar's own reader returned it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.foreign.pulsar.sample_cases import (
    CASES,
    UNCOMMITTED,
    Case,
    as_pulsar_says,
    partitions,
    rows_of,
    unpack,
    whole,
)
from txn_source.foreign.pulsar.entries import look_into, txn_bits
from txn_source.model.position import Position
from txn_source.model.transaction import TransactionState
from txn_source.model.visibility import NO_TXN

pytestmark = pytest.mark.xdist_group("pulsar_samples")

_FEW = ("value", "__ledger_id", "__entry_id", "__batch_index", "__first_chunk")


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return unpack(request.param, tmp_path_factory.mktemp("case"))


@pytest.fixture
def tail(tmp_path: Path) -> Case:
    return unpack("txn-tail", tmp_path)


def _expected(case: Case) -> dict[str, list[dict[str, Any]]]:
    expected = defaultdict(list)
    for row in case.lines("expected.jsonl.gz"):
        expected[row.pop("topic")].append(row)
    return expected


def _without_hot(rows: list[dict[str, Any]], end: Position) -> list[dict[str, Any]]:
    return [row for row in rows if Position(row["id"]["ledger"], row["id"]["entry"]) < end]


def test_reads_what_pulsars_reader_returned(case: Case) -> None:
    """Read every topic at read_committed, in several pieces; all columns, in the same order."""
    expected = _expected(case)
    seen = 0
    for partition in partitions(case.log(ledgers=case.infos(), snapshots=case.snapshots())):
        rows = [as_pulsar_says(row) for row in rows_of(partition, whole(partition), unit_bytes=5000)]
        assert rows == _without_hot(expected.pop(partition.topic), partition.bounds().log_end)
        seen += len(rows)
    assert seen > 20
    assert not expected


@pytest.mark.parametrize("case", ["txn-tail", "fs-txn"], indirect=True)
def test_objects_alone_are_enough(case: Case) -> None:
    """Read without the managed ledger's list and without snapshots: the same rows, up to what is undecided."""
    for partition in partitions(case.log()):
        rows = [as_pulsar_says(row) for row in rows_of(partition, whole(partition))]
        assert rows == _without_hot(_expected(case)[partition.topic], partition.bounds().last_stable)


def test_shows_all_but_markers_uncommitted(case: Case) -> None:
    """Read at read_uncommitted: each message that was sent, with what became of its transaction."""
    sent: dict[str, dict[tuple[int, int, int], str]] = defaultdict(dict)
    for line in case.lines("sent.jsonl.gz"):
        place = line["id"]["ledger"], line["id"]["entry"], line["id"]["batch_index"]
        sent[line["topic"]][place] = line["outcome"].lower()
    unlisted = {"special": 3}.get(case.folder.name, 0)
    for partition in partitions(case.log(snapshots=case.snapshots())):
        of = whole(partition, UNCOMMITTED)
        rows = rows_of(partition, of, UNCOMMITTED, (*_FEW, "__txn_status"))
        states = {
            (row["__ledger_id"], row["__entry_id"], row["__batch_index"]): row["__txn_status"] or "none" for row in rows
        }
        assert len(states) == len(rows)
        wanted = {place: how for place, how in sent[partition.topic].items() if Position(*place[:2]) < of.end}
        assert len(wanted) == len(rows) - unlisted
        # A client may put a plain message into a transaction's batch; the entry counts, not what the program meant.
        assert {place: states[place] for place, how in wanted.items() if how != "none"} == {
            place: how for place, how in wanted.items() if how != "none"
        }


@pytest.mark.parametrize("case", ["multi-block", "fs-txn"], indirect=True)
def test_entries_are_bookkeepers(case: Case) -> None:
    """Compare each entry's bytes with what BookKeeper had before it was offloaded."""
    name = "bk-entries.jsonl.gz" if case.folder.name == "txn-tail" else "bk-entries-sha256.jsonl.gz"
    wanted = {(line["ledger"], line["entry"]): line["sha256"] for line in case.lines(name)}
    compared = 0
    for partition in partitions(case.log()):
        for ledger in partition.ledgers.ledgers:
            source = ledger.source(partition._system)
            for raw in source.read(0, source.entries):
                for at, (start, end) in enumerate(zip(raw.starts.tolist(), raw.ends.tolist(), strict=True)):
                    found = hashlib.sha256(raw.data[start:end].tobytes()).hexdigest()
                    assert found == wanted[ledger.ledger_id, raw.first + at]
                    compared += 1
    assert compared >= 42


@pytest.mark.parametrize("case", ["txn-mix", "txn-tail"], indirect=True)
def test_transactions_end_as_they_were_ended(case: Case) -> None:
    """Compare the outcome of each transaction with what the program did, and what its rows say at read_uncommitted."""
    told = {tuple(map(int, txn.strip("()").split(","))): how for txn, how in _told(case).items()}
    for partition in partitions(case.log(snapshots=case.snapshots())):
        known = partition.outcomes()
        for txn, outcome in known.items():
            if txn_bits(txn) in told:
                assert outcome.state.value == told[txn_bits(txn)].lower()
        rows = rows_of(partition, whole(partition, UNCOMMITTED), UNCOMMITTED, ("__txn_id", "__txn_status"))
        states = {str(txn_bits(txn)).replace(" ", ""): outcome.state.value for txn, outcome in known.items()}
        assert all(row["__txn_status"] == states.get(row["__txn_id"]) for row in rows)


def _told(case: Case) -> dict[str, str]:
    """Return how the program ended each transaction, by its id as text."""
    told: dict[str, str] = case.json("txns.json")
    return told


def test_undecided_bound_the_offloaded_part(tail: Case) -> None:
    """Open a topic whose markers are in a ledger that is not offloaded: without a snapshot they are undecided."""
    [partition] = partitions(tail.log())
    known = partition.outcomes()
    undecided = [t for t in known.values() if t.state is TransactionState.OPEN]
    bounds = partition.bounds()
    assert len(undecided) == 3
    assert bounds.last_stable == Position.from_key(min(t.open_from for t in undecided))
    assert bounds.log_end == Position(12, 50)


def test_snapshot_resolves_what_the_objects_cannot(tail: Case) -> None:
    """Give the broker's snapshot: all is decided, as the program ended it; and the list says which ledger is next."""
    [partition] = partitions(tail.log(ledgers=tail.infos(), snapshots=tail.snapshots()))
    assert partition.bounds().last_stable == partition.bounds().log_end == Position(12, 50)
    assert partition.ledgers.next_ledger == 13
    alone = tail.log().partition(partition.name).outcomes()
    undecided = {txn for txn, outcome in alone.items() if outcome.state is TransactionState.OPEN}
    told = {txn: how.lower() for txn, how in _told(tail).items()}
    assert {txn: partition.outcomes()[txn].state.value for txn in undecided} == {
        txn: told[str(txn_bits(txn)).replace(" ", "")] for txn in undecided
    }


@pytest.mark.parametrize("case", ["txn-mix", "txn-tail"], indirect=True)
def test_snapshots_agree_with_markers(case: Case) -> None:
    """Where an object has a transaction's marker, a snapshot that covers it says the same."""
    plain, helped = case.log(), case.log(snapshots=case.snapshots())
    for partition, other in zip(partitions(plain), partitions(helped), strict=True):
        known = partition.outcomes()
        assert {
            txn: outcome.state
            for txn, outcome in other.outcomes().items()
            if known[txn].state is not TransactionState.OPEN
        } == {txn: outcome.state for txn, outcome in known.items() if outcome.state is not TransactionState.OPEN}


def test_open_transaction_hides_what_follows(tmp_path: Path) -> None:
    """The sample with a transaction left open at 51:19: what is behind it is hidden, also what was committed."""
    case = unpack("txn-open", tmp_path)
    [partition] = partitions(case.log())
    assert partition.bounds().last_stable == Position(51, 19)
    [first] = [ledger for ledger in partition.ledgers.ledgers if ledger.ledger_id == 51]
    source = first.source(partition._system)
    [raw] = source.read(0, source.entries)
    assert look_into(raw, source.uri, 51).txns[19] != NO_TXN
