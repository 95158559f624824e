"""Sealing closed ledgers changes no answer: entries and decisions of any range, compared with the plain rows."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

import txn_source
from tests.selection import examples
from txn_source.client.log import Log
from txn_source.metadata.store import pages, sealing
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.tables import entries, entry_pages, transaction_partitions
from txn_source.model.kinds import ABORTED, DATA, OPEN
from txn_source.model.position import Position, PositionRange
from txn_source.storage.root import LogRoot

STEPS = st.lists(st.sampled_from(["plain", "begin", "append", "commit", "abort", "roll"]), min_size=10, max_size=60)


@pytest.fixture
def tiny_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pages of three rows, and seal ledgers from two rows on."""
    monkeypatch.setattr(pages, "PAGE_ROWS", 3)
    monkeypatch.setattr(sealing, "_SEAL_FROM_ROWS", 2)


def _write(log: Log, steps: list[str]) -> None:
    log.create_topic("t", ledger_max_entries=7)
    producer, opened = log.producer("t"), []
    for number, step in enumerate(steps):
        if step == "plain":
            producer.send(b"%d" % number)
        elif step == "begin":
            opened.append(log.begin_transaction())
            producer.send(b"%d" % number, txn=opened[-1])
        elif step == "append" and opened:
            producer.send(b"%d" % number, txn=opened[number % len(opened)])
        elif step in ("commit", "abort") and opened:
            getattr(opened.pop(number % len(opened)), step)()
        elif step == "roll":
            log.roll_ledger("t")
        producer.flush()


@pytest.mark.usefixtures("tiny_pages")
@settings(max_examples=examples(8), deadline=None, derandomize=True)
@given(STEPS, st.data())
def test_any_range_has_the_same_entries_and_decisions_as_the_rows(steps: list[str], data: st.DataObject) -> None:
    """Write a random log with small ledgers and pages, and compare a random range at a random moment with its rows."""
    with TemporaryDirectory() as folder, txn_source.connect(Path(folder) / "log") as log:
        _write(log, steps)
        stub = log.metadata
        [view] = stub.get_view(stub.list_topics()).topics
        partition = view.partitions[0]
        ledgers = [ledger.ledger_id for ledger in log.stats("t").ledgers]
        edges = sorted(Position(data.draw(st.sampled_from(ledgers)), data.draw(st.integers(0, 8))) for _ in range(2))
        of = PositionRange(*edges)
        up_to = data.draw(st.integers(0, len(steps)))
        database = open_database(LogRoot.at(log.root).database_url)
        with database.read() as connection:
            rows = connection.execute(select(entries).order_by(entries.c.position)).all()
            traces = connection.execute(select(transaction_partitions)).all()
        database.close()

        listed = [
            key
            for page in stub.list_entries(partition.partition_id, of)
            for key in page.entries["position"].to_pylist()
        ]
        assert listed == [r.position for r in rows if r.kind == DATA and of.start.key <= r.position < of.end.key]
        for aborted_only in (True, False):
            decided = stub.list_decisions(partition.partition_id, of, aborted_only=aborted_only, decisions=up_to)
            expected = {
                (t.txn, t.first_position, t.marker_position, t.state)
                for t in traces
                if t.state != OPEN
                and t.marker_position >= of.start.key
                and t.first_position < of.end.key
                and t.decision <= up_to
                and (t.state == ABORTED or not aborted_only)
            }
            found = list(
                zip(
                    *(decided[c].to_pylist() for c in ("txn", "first_position", "marker_position", "state")),
                    strict=True,
                )
            )
            assert sorted(found) == sorted(expected)


@pytest.mark.usefixtures("tiny_pages")
def test_closed_ledgers_are_sealed_whoever_closes_them(tmp_path: Path) -> None:
    """Close ledgers by an append, by a marker and by hand, and look for their pages."""
    with txn_source.connect(tmp_path / "log") as log:
        log.create_topic("t", ledger_max_entries=3)
        producer = log.producer("t")
        for _ in range(3):
            producer.send(b"closed by the append")
            producer.flush()
        txn = log.begin_transaction()
        for _ in range(2):
            producer.send(b"closed by the marker", txn=txn)
            producer.flush()
        txn.commit()
        for _ in range(2):
            producer.send(b"closed by hand")
            producer.flush()
        log.roll_ledger("t")
        closed = [ledger.ledger_id for ledger in log.stats("t").ledgers if ledger.closed]
        database = open_database(LogRoot.at(log.root).database_url)
        with database.read() as connection:
            sealed = connection.execute(select(entry_pages.c.first_position)).scalars().all()
        database.close()
    assert len(closed) == 3
    assert {Position.from_key(key).ledger_id for key in sealed} == set(closed)
