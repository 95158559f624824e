"""The worked cases of ``vectors/isolation.json``, end to end through the log.

One message per entry and one ledger, so an entry id is the position. A high watermark is set as a short entry would
set it, and the log's start as trimming would, in the database: so each case says just where they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.log.reading import BY_HAND, rows, send_each
from tests.log.sites import Site
from txn_source import Position, Transaction
from txn_source.metadata.store.change_states import read_states
from txn_source.metadata.store.opening import open_database
from txn_source.model.position import PositionRange
from txn_source.model.topic_name import TopicName
from txn_source.storage.root import LogRoot

pytestmark = pytest.mark.also("copies")

_FILE = Path(__file__).parents[1] / "vectors" / "isolation.json"
CASES = {case["name"]: case["steps"] for case in json.loads(_FILE.read_text(encoding="utf-8"))["cases"]}


class Runner:
    """Carries out the steps of a case; transactions begin when they are first named."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.log = log = site.connect()
        log.create_topic("t")
        self.producer = log.producer("t", batching=BY_HAND)
        self.transactions: dict[str, Transaction] = {}

    def transaction(self, name: str) -> Transaction:
        if name not in self.transactions:
            self.transactions[name] = self.log.begin_transaction()
        return self.transactions[name]

    def append(self, what: dict[str, Any]) -> None:
        txn = None if what["txn"] is None else self.transaction(what["txn"])
        send_each(self.producer, [b"x"] * what["messages"], txn=txn)

    def commit(self, name: str) -> None:
        self.transaction(name).commit()

    def abort(self, name: str) -> None:
        self.transaction(name).abort()

    def high_watermark(self, at: int) -> None:
        """Have the entry at a position lack copies, and no other."""
        self.site.execute("DELETE FROM short_entries")
        self.site.execute(
            "INSERT INTO short_entries (partition_id, position, segment_id, needed) VALUES (:partition, :at, 0, 2)",
            partition=self._partition_id,
            at=self._position(at),
        )

    def log_start(self, at: int) -> None:
        """Have the log begin at a position."""
        self.site.execute("UPDATE partitions SET log_start = :at", at=self._position(at))

    @property
    def _partition_id(self) -> int:
        return self.log.metadata.get_view([TopicName.parse("t")]).topics[0].partitions[0].partition_id

    def _position(self, at: int) -> int:
        [partition] = self.log.stats("t").partitions
        return Position(partition.log_end.ledger_id, at).key

    def aborted(self, what: dict[str, Any]) -> None:
        """Ask for the aborted transactions that a read of a range needs."""
        [view] = self.log.metadata.get_view([TopicName.parse("t")]).topics
        [partition] = view.partitions
        ledger = partition.bounds.log_start.ledger_id
        of = PositionRange(Position(ledger, what["start"]), Position(ledger, what["end"]))
        table = self.log.metadata.list_decisions(partition.partition_id, of, aborted_only=True, decisions=1 << 40)
        names = {t.id.least_sig_bits: name for name, t in self.transactions.items()}
        assert sorted(names[txn] for txn in table["txn"].to_pylist()) == what["is"]

    def expect(self, what: dict[str, Any]) -> None:
        """Compare bounds and visible entries at both levels."""
        [partition] = self.log.stats("t").partitions
        firsts = [max(t.first_position, partition.log_start).entry_id for t in partition.ongoing_transactions]
        found = {
            "first_unstable": min(firsts, default=None),
            "last_stable": partition.last_stable.entry_id,
            "high_watermark": partition.high_watermark.entry_id,
            "log_end": partition.log_end.entry_id,
        }
        for level in ("read_committed", "read_uncommitted"):
            found[level] = [row["__entry_id"] for row in rows(self.log, "t", level, ["__entry_id"])]
        assert found == what


@pytest.mark.parametrize("name", CASES)
def test_case_holds_through_the_log(site: Site, name: str) -> None:
    """Do what each step says, and check each expectation where it stands."""
    runner = Runner(site)
    for step in CASES[name]:
        for action, what in step.items():
            getattr(runner, action)(what)


def test_all_cases_are_run() -> None:
    """Count them: a change of the file's format must not empty this module unnoticed."""
    assert len(CASES) >= 17
    assert {"high_watermark", "log_start"} <= {name for steps in CASES.values() for step in steps for name in step}


def test_copies_that_come_are_a_change(site: Site) -> None:
    """Compare what is looked at for consumers that aren't told, before an entry has its copies and then."""
    runner = Runner(site)
    runner.append({"txn": None, "messages": 1})
    runner.high_watermark(0)
    states = []
    database = open_database(site.url or LogRoot.at(site.root).database_url)
    try:
        for _ in range(2):
            with database.read() as connection:
                states.append(read_states(connection, [1]))
            site.execute("DELETE FROM short_entries")
    finally:
        database.close()
    assert states[0].keys() == states[1].keys() == {(1, 0)}
    assert states[0] != states[1]
