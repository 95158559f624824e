"""Tiers under everything that can happen to a log and to its files, against a model of plain lists: a read gives
exactly the right rows, or the right error if every copy of a ledger that it needs is damaged or trimmed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests.log import test_state_machine, tiers
from tests.log.reading import COMMITTED, UNCOMMITTED
from tests.log.test_state_machine import PARTITIONS, LogMachine
from txn_source import DataLossError, IsolationLevel, OnlyCopyError, Position, ReadPriority, SegmentUnreadableError
from txn_source.client.reading.columns import select_columns
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import resolve
from txn_source.metadata.store import copies, pages, sealing, views
from txn_source.model.copies import Tier
from txn_source.model.position import PositionRange
from txn_source.reading.plan import ReadPlan, plan
from txn_source.reading.request import ReadRequest, Selection
from txn_source.storage import tiered

OFFLOAD_AFTER_S, DELETION_LAG_S, RETENTION_S = 20, 30, 8000
DAMAGE = {"removed": tiers.remove, "cut": tiers.cut_in_half, "overwritten": tiers.overwrite}
partition, number = st.integers(0, PARTITIONS - 1), st.integers(0, 99)


@dataclass
class LedgerModel:
    """What is known of a ledger's copies; times in seconds."""

    closed_at: float | None = None
    hot: bool = True
    offloaded_at: float | None = None


@dataclass(frozen=True)
class Row:
    """A message that a read must give: where it lies, and what it is."""

    partition: int
    entry: int
    seen: tuple[bytes, str | None]


class TierMachine(LogMachine):
    """The log's machine, with offloads, deletions, trims, and files that are damaged and restored.

    Its topic stays, with the partitions that it has: what is known of copies here goes by them.
    """

    add_partitions = delete_and_create_anew = None

    def __init__(self) -> None:
        self.copies: list[list[LedgerModel]] = [[] for _ in range(PARTITIONS)]
        self.trimmed = [0] * PARTITIONS  # ledgers
        self.damaged_entries: dict[tuple[int, int], tuple[Path, int]] = {}
        self.damaged_objects: dict[tuple[int, int], dict[Path, bytes]] = {}  # and what was in their files
        self.pinned: list[tuple[ReadPlan, list[Row], list[int], list[int]]] = []
        super().__init__()
        self.log.set_policies(
            "t", offload_after_age=OFFLOAD_AFTER_S, offload_deletion_lag=DELETION_LAG_S, retention_age=RETENTION_S
        )
        self.ids: list[list[int]] = [[] for _ in range(PARTITIONS)]
        for number in (0, 1):
            self.fill_a_ledger(number)
        self._look()

    # The model

    @property
    def _now(self) -> float:
        return self.clock.now_us / 1e6

    def _look(self) -> None:
        """Notice ledgers that were opened and closed by the step before."""
        for each, stats in enumerate(self.log.stats("t").partitions):
            known = self.copies[each]
            known += [LedgerModel() for _ in self.model.ledgers[each][len(known) :]]
            for ledger in known[:-1]:
                ledger.closed_at = self._now if ledger.closed_at is None else ledger.closed_at
            self.ids[each] = self.ids[each][: self.trimmed[each]] + [x.ledger_id for x in stats.ledgers]

    def _place(self, each: int, entry: int) -> tuple[int, int]:
        """Return the number of an entry's ledger, and its id there."""
        for ledger, entries in enumerate(self.model.ledgers[each]):
            if entry < entries:
                return ledger, entry
            entry -= entries
        raise AssertionError

    def _first(self, each: int, ledger: int) -> int:
        return sum(self.model.ledgers[each][:ledger])

    def _stable_ledger(self, each: int) -> int:
        """Return the ledger of the bound of read_committed; those before it may be offloaded and trimmed."""
        bound = self.model.last_stable(each)
        entries = self.model.entries[each]
        return len(self.model.ledgers[each]) - 1 if bound == len(entries) else self._place(each, bound)[0]

    def _rows(self, level: str) -> list[Row]:
        """Return what a read must give, partition after partition."""
        found = []
        for each in range(PARTITIONS):
            bound = self.model.last_stable(each) if level == COMMITTED else len(self.model.entries[each])
            for index in range(self._first(each, self.trimmed[each]), bound):
                entry = self.model.entries[each][index]
                status = self.model.status(entry.txn)
                if level == UNCOMMITTED or status in (None, "committed"):
                    found += [Row(each, index, (value, status)) for value in entry.values]
        return found

    def _unreadable(self, rows: Sequence[Row], first: Sequence[int], ends: Sequence[int]) -> tuple[bool, bool]:
        """Tell whether a read of ledgers ``[first, ends)`` must fail, and whether it may: no copy gives what it needs,
        or one that would have to be opened, only to find that nothing of it is needed."""
        must = may = False
        wanted: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for row in rows:
            wanted.setdefault((row.partition, self._place(row.partition, row.entry)[0]), set()).add(
                (row.partition, row.entry)
            )
        for each in range(PARTITIONS):
            for ledger in range(max(first[each], self.trimmed[each]), ends[each]):
                known = self.copies[each][ledger]
                needed = wanted.get((each, ledger), set())
                hot = known.hot and not needed & self.damaged_entries.keys()
                if not hot and (known.offloaded_at is None or self._fails(each, ledger, needed)):
                    may, must = True, must or bool(needed)
        return must, may

    def _fails(self, each: int, ledger: int, needed: set[tuple[int, int]]) -> bool:
        """Tell whether a file of the tiered copy is damaged that a read of some entries opens."""
        damaged = {path.suffix for path in self.damaged_objects.get((each, ledger), ())}
        aborted = any(self.model.status(self.model.entries[e][i].txn) == "aborted" for e, i in needed)
        return ".parquet" in damaged or (".aborted" in damaged and aborted)

    # Steps

    @rule(partition=partition)
    def fill_a_ledger(self, partition: int) -> None:
        for count in (1, 2):
            self._append("plain", partition, count, None)
        self.roll(partition)

    @precondition(lambda self: len(self.model.open()) < 4)
    @rule(partition=partition, commit=st.booleans())
    def spread_a_transaction(self, partition: int, commit: bool) -> None:
        """Write one over three ledgers and end it in the last of them."""
        self.begin(50, partition)
        txn = list(self.model.transactions)[-1]
        for _ in range(2):
            self.roll(partition)
            self._append("plain", partition, 1, txn)
        self.handles[txn].commit() if commit else self.handles[txn].abort()
        self.model.end(txn, "committed" if commit else "aborted")

    @rule()
    def let_an_hour_pass(self) -> None:
        self.let_time_pass(4000)

    @rule()
    def offload(self) -> None:
        if self._offloads(lambda ledger: True):
            with pytest.raises(SegmentUnreadableError):
                self.log.offload("t")
        else:
            self.log.offload("t")

    def _offloads(self, due: Callable[[LedgerModel], bool]) -> bool:
        """Offload in the model all but ledgers whose hot copy is damaged; return whether there are such."""
        damaged = {(each, self._place(each, entry)[0]) for each, entry in self.damaged_entries}
        found = False
        for each in range(PARTITIONS):
            for ledger in range(self.trimmed[each], self._stable_ledger(each)):
                known = self.copies[each][ledger]
                if known.offloaded_at is None and due(known):
                    if (each, ledger) in damaged:
                        found = True
                    else:
                        known.offloaded_at = self._now
        return found

    @rule()
    def delete_hot(self) -> None:
        if any(self.copies[each][ledger].hot for each, ledger in self.damaged_objects):
            with pytest.raises(OnlyCopyError):
                self.log.delete_hot("t")
            return
        self.log.delete_hot("t")
        self._deletes_hot(lambda known: True)

    def _deletes_hot(self, due: Callable[[LedgerModel], bool]) -> bool:
        """Delete hot copies in the model, but where the object is damaged; return whether there are such."""
        kept = False
        for each in range(PARTITIONS):
            for ledger, known in enumerate(self.copies[each]):
                if ledger >= self.trimmed[each] and known.hot and known.offloaded_at is not None and due(known):
                    if (each, ledger) in self.damaged_objects:
                        kept = True
                    else:
                        known.hot = False
        self._forget_damage()
        return kept

    @rule()
    def delete_offloaded(self) -> None:
        offloaded = [k for each in range(PARTITIONS) for k in self.copies[each][self.trimmed[each] :] if k.offloaded_at]
        if not all(known.hot for known in offloaded):
            with pytest.raises(OnlyCopyError):
                self.log.delete_offloaded("t")
            return
        assert self.log.delete_offloaded("t") == len(offloaded)
        for known in offloaded:
            known.offloaded_at = None
        self._forget_damage()

    @rule(partition=partition, number=number, planned=st.booleans())
    def trim(self, partition: int, number: int, planned: bool) -> None:
        if planned:
            self._plan(UNCOMMITTED, 1)
        ledger = len(self.ids[partition]) - 1 - number % (len(self.ids[partition]) - self.trimmed[partition])
        self.log.trim("t", before={"t": {partition: Position(self.ids[partition][ledger], 0)}})
        self._trims(partition, lambda index: index < ledger)

    def _trims(self, each: int, due: Callable[[int], bool]) -> None:
        while self.trimmed[each] < self._stable_ledger(each) and due(self.trimmed[each]):
            self.trimmed[each] += 1
        self._forget_damage()

    @rule()
    def maintain(self) -> None:
        report = self.log.maintain()
        now = self._now
        failed = self._offloads(lambda known: known.closed_at is not None and now - known.closed_at > OFFLOAD_AFTER_S)
        if not failed:
            failed = self._deletes_hot(
                lambda known: known.offloaded_at is not None and now - known.offloaded_at > DELETION_LAG_S
            )
        assert [topic for topic, _ in report.failures] == ["t"] * failed
        if not failed:
            for each in range(PARTITIONS):
                self._trims(each, lambda i, e=each: now - (self.copies[e][i].closed_at or now) > RETENTION_S)  # type: ignore[misc]

    # Damage

    @rule(partition=partition, number=number)
    def damage_an_entry(self, partition: int, number: int) -> None:
        """Flip a byte of an entry's hot copy."""
        known = self.copies[partition]
        first = self._first(partition, self.trimmed[partition])
        places = [
            i
            for i, entry in enumerate(self.model.entries[partition])
            if i >= first and entry.values and known[self._place(partition, i)[0]].hot
        ]
        if not places or (partition, entry := places[number % len(places)]) in self.damaged_entries:
            return
        ledger, entry_id = self._place(partition, entry)
        at = Position(self.ids[partition][ledger], entry_id)
        partition_id = resolve(self.log.metadata, Selection.of("t")).partitions[partition].view.partition_id
        [page] = self.log.metadata.list_entries(partition_id, PositionRange(at, at.plus(1)))
        [row] = page.entries.to_pylist()
        path, offset = self.log.root / page.segments[row["segment_id"]], row["offset"] + number % row["length"]
        tiers.flip(path, offset)
        self.damaged_entries[partition, entry] = (path, offset)

    @rule(number=number, how=st.sampled_from(sorted(DAMAGE)))
    def damage_an_object(self, number: int, how: str) -> None:
        found = [*tiers.objects(self.log.root), *tiers.second_files(self.log.root)]
        if not found:
            return
        path = found[number % len(found)]
        ledger_id = int(path.name.split("-")[1])
        [place] = [(e, ids.index(ledger_id)) for e, ids in enumerate(self.ids) if ledger_id in ids]
        self.damaged_objects.setdefault(place, {}).setdefault(path, path.read_bytes())
        DAMAGE[how](path)
        tiered._FOOTERS = tiered._FooterCache()  # as a reader in another process

    @precondition(lambda self: self.damaged_entries or self.damaged_objects)
    @rule()
    def restore(self) -> None:
        for path, offset in self.damaged_entries.values():
            tiers.flip(path, offset)
        for files in self.damaged_objects.values():
            for path, data in files.items():
                path.write_bytes(data)
        self.damaged_entries.clear()
        self.damaged_objects.clear()

    def _forget_damage(self) -> None:
        """Forget what lay in copies that are gone."""

        def there(each: int, ledger: int) -> LedgerModel | None:
            return self.copies[each][ledger] if ledger >= self.trimmed[each] else None

        for each, entry in list(self.damaged_entries):
            known = there(each, self._place(each, entry)[0])
            if known is None or not known.hot:
                del self.damaged_entries[each, entry]
        for each, ledger in list(self.damaged_objects):
            known = there(each, ledger)
            if known is None or known.offloaded_at is None:
                del self.damaged_objects[each, ledger]

    def _plan(self, level: str, tasks: int, loss_fails: bool = True) -> None:
        request = ReadRequest(IsolationLevel.parse(level), min_partitions=tasks, fail_on_data_loss=loss_fails)
        pinned = plan(OwnLog(self.log.access), resolve(self.log.metadata, Selection.of("t")), request)
        ends = [len(ledgers) for ledgers in self.model.ledgers]
        self.pinned = [*self.pinned[-1:], (pinned, self._rows(level), list(self.trimmed), ends)]

    @rule(level=st.sampled_from([COMMITTED, UNCOMMITTED]))
    def plan_a_read_that_may_lose(self, level: str) -> None:
        self._plan(level, 3, loss_fails=False)

    # What always holds

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        self._look()
        for level in (COMMITTED, UNCOMMITTED):
            rows = self._rows(level)
            must, may = self._unreadable(rows, self.trimmed, [len(ledgers) for ledgers in self.model.ledgers])
            for priority in ReadPriority:
                reader = self.log.scan("t", level, ["value", "__txn_status"], read_priority=priority)
                failed = self._check(reader, [row.seen for row in rows])
                assert failed in (
                    [SegmentUnreadableError] if must else [None, SegmentUnreadableError] if may else [None]
                )

    def _check(self, batches: Any, expected: list[tuple[bytes, str | None]]) -> type[Exception] | None:
        """Read to the end or to an error, which is returned; what came before it must be right, too."""
        found: list[Any] = []
        try:
            for batch in batches:
                found += [tuple(row.values()) for row in batch.to_pylist()]
        except (SegmentUnreadableError, DataLossError) as error:
            assert found == expected[: len(found)]
            return type(error)
        assert found == expected
        return None

    @invariant()
    def plans_read_what_they_read_when_they_were_made(self) -> None:
        schema = select_columns(pa.schema([("value", pa.binary())]), ["value", "__txn_status"])
        for pinned, rows, first, ends in self.pinned:
            lost = [each for each in range(PARTITIONS) if first[each] < self.trimmed[each]]
            kept = [row for row in rows if row.entry >= self._first(row.partition, self.trimmed[row.partition])]
            must, may = self._unreadable(kept, first, ends)
            reader = pinned.reader(OwnLog(self.log.access), schema)
            batches = reader.read(piece for task in pinned.tasks for piece in task)
            loss_fails = pinned.request.fail_on_data_loss
            failed = self._check(batches, [row.seen for row in (rows if loss_fails else kept)])
            allowed = {SegmentUnreadableError} if may else set()
            if lost and loss_fails:
                allowed |= {DataLossError}
                must = must or len(kept) < len(rows)
            assert failed in (allowed if must else allowed | {None})

    @invariant()
    def bounds_ledgers_and_open_transactions_are_those_of_the_model(self) -> None:
        self._look()
        partitions = self.log.stats("t").partitions
        for each, stats in enumerate(partitions):
            gone = self.trimmed[each]
            assert [ledger.entries for ledger in stats.ledgers] == self.model.ledgers[each][gone:]
            assert stats.log_start == Position(self.ids[each][gone], 0)
            assert stats.log_start <= stats.last_stable <= stats.high_watermark == stats.log_end
            below = self._first(each, gone) + test_state_machine.entries_below(stats, stats.last_stable)
            assert below == self.model.last_stable(each)
            assert {t.id: t.messages_held_back for t in stats.ongoing_transactions} == self.model.held_back(each)
            kept = self.model.entries[each][self._first(each, gone) :]
            assert stats.messages == sum(len(entry.values) for entry in kept)
            for ledger, known in zip(stats.ledgers, self.copies[each][gone:], strict=True):
                assert (Tier.BOOKKEEPER in ledger.tiers) == known.hot
                assert (Tier.TIERED in ledger.tiers) == (known.offloaded_at is not None)
        for before, after in zip(self.seen, partitions, strict=False):
            assert before.last_stable <= after.last_stable
            assert before.high_watermark <= after.high_watermark
        self.seen = list(partitions)


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 3)
    monkeypatch.setattr(tiered, "_FOOTERS", tiered._FooterCache())  # the machine puts others there


def test_tiers_behave_as_the_model() -> None:
    """Run the machine over the embedded log."""
    test_state_machine.run("embedded", 1, 30, TierMachine)


@pytest.mark.long
def test_tiers_with_tiny_pages_behave_as_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run it with sealed pages and answers of two rows."""
    monkeypatch.setattr(sealing, "_SEAL_FROM_ROWS", 1)
    for module in (pages, views, copies):
        monkeypatch.setattr(module, "PAGE_ROWS", 2)
    test_state_machine.run("embedded", 1, 25, TierMachine)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", ["embedded", "remote"])
def test_tiers_behave_as_the_model_for_long(kind: str) -> None:
    """Run longer and more often."""
    test_state_machine.run(kind, 300, 60, TierMachine)
