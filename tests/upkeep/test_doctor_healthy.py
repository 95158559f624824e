"""Logs that nothing is wrong with: whatever happens to one, and while it happens, the doctor is silent."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis.stateful import invariant, rule

import txn_source
from tests.log import test_state_machine, tiers
from tests.log.reading import BY_HAND
from tests.log.roots import Roots, log, roots
from tests.log.sites import ManualClock
from tests.log.test_tier_state_machine import TierMachine
from tests.upkeep.doctored import age, look
from txn_source import Log, TxnLogError
from txn_source.client.tiering.garbage import collect_garbage
from txn_source.metadata.store import sealing
from txn_source.storage import tiered
from txn_source.upkeep.doctor.checks import segments as segments_of
from txn_source.upkeep.doctor.subject import Checksums, Surroundings

__all__ = ["log", "roots"]


class DoctoredMachine(TierMachine):
    """Does to a log what users do, but damages nothing, and has a look at it after each step."""

    damage_an_entry = damage_an_object = restore = None

    def __init__(self) -> None:
        super().__init__()
        self.log.create_subscription("t", "audit", "shared", initial_position="earliest")
        self.log.delete_subscription("t", "audit")

    @rule()
    def look_with_the_log_closed(self) -> None:
        self.crash_and_reopen(holding=False)

    def rows_are_those_of_the_model(self) -> None:
        """Others look at that."""

    def plans_read_what_they_read_when_they_were_made(self) -> None:
        """Others look at that."""

    @invariant()
    def bounds_ledgers_and_open_transactions_are_those_of_the_model(self) -> None:
        """Nothing is wrong with the log."""
        self._look()  # as somebody does now and then: what is past its deadline is aborted
        around = Surroundings(now_s=lambda: self.clock.now_us / 1e6, service_clock=self.clock)
        report = look(self.site.root, surroundings=around)
        assert report.findings == ()
        assert report.not_checked == ()


@pytest.mark.long
def test_random_histories_have_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the machine, from now on by its clock, with sealed pages of two rows."""
    monkeypatch.setattr(sealing, "_SEAL_FROM_ROWS", 2)
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 3)
    monkeypatch.setattr(ManualClock, "__init__", lambda self: setattr(self, "now_us", time.time_ns() // 1000))
    test_state_machine.run("embedded", 1, 12, DoctoredMachine)


class _Storm:
    """Threads that each do one thing to a log over and over, until the block ends; what they raise is raised there."""

    def __init__(self, root: Path, *deeds: Callable[[Log, int], object]) -> None:
        self._root = root
        self._over = threading.Event()
        self._errors: list[BaseException] = []
        self.rounds = [0] * len(deeds)
        self._threads = [threading.Thread(target=self._run, args=(n, deed)) for n, deed in enumerate(deeds)]

    def __enter__(self) -> _Storm:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _run(self, number: int, deed: Callable[[Log, int], object]) -> None:
        try:
            with txn_source.connect(self._root) as log:
                while not self._over.is_set():
                    deed(log, self.rounds[number])
                    self.rounds[number] += 1
        except BaseException as error:
            self._errors.append(error)


def _write(log: Log, number: int) -> None:
    with log.producer("t", batching=BY_HAND) as producer:
        for n in range(4):
            producer.send(b"plain %d" % n)
            producer.flush()
        transaction = log.begin_transaction()
        for n in range(4):
            producer.send(b"%d" % n, txn=transaction)
            producer.flush()
        transaction.abort() if number % 3 else transaction.commit()


def _consume(log: Log, number: int) -> None:
    with log.subscribe("t", "audit", "shared", initial_position="earliest") as consumer:
        while (message := consumer.receive(timeout=0.01)) is not None:
            consumer.acknowledge(message)
            if number % 2:
                break


def _keep_house(log: Log, number: int) -> None:
    log.roll_ledger("t")
    log.offload("t")
    log.delete_hot("t")
    log.trim("t", keep_bytes=20_000)
    if number % 4 == 0:
        log.roll_ledger("t")
        log.offload("t")
        log.delete_offloaded("t")


def _collect(log: Log, number: int) -> None:
    collect_garbage(log.access, 0.2, dry_run=False)


def _make_and_delete(log: Log, number: int) -> None:
    name = f"short-{number}"
    log.create_topic(name)
    with log.producer(name) as producer:
        producer.send(b"x")
    log.delete_topic(name)


def _tolerant(deed: Callable[[Log, int], object]) -> Callable[[Log, int], object]:
    """Let a deed be refused because another one was faster."""

    def do(log: Log, number: int) -> None:
        try:
            deed(log, number)
        except TxnLogError as error:
            if error.code not in ("ONLY_COPY", "INVALID_ARGUMENT", "STORAGE_WRITE_FAILED", "STALE_SEGMENT"):
                raise

    return do


def test_log_in_use_has_no_finding(tmp_path: Path) -> None:
    """Write, abort, offload, delete copies, trim, collect garbage, consume, make and delete topics, all at once, and
    look again and again: what went the ordinary way meanwhile is no finding."""
    root = tmp_path / "log"
    with txn_source.connect(root) as log:
        log.create_topic("t", partitions=2, ledger_max_entries=40)
        deeds = (_write, _write, _keep_house, _collect, _make_and_delete, _consume)
        with _Storm(root, *map(_tolerant, deeds)) as storm:
            looks = 0
            while looks < 3 or min(storm.rounds) < 2:
                report = look(root, checksums=Checksums.ALL)
                assert report.findings == ()
                looks += 1
        assert look(root).findings == ()


def test_topic_that_is_deleted_while_it_is_read_has_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete a topic after its damaged entries were read, and before they are looked at once more."""
    root = tmp_path / "log"
    with txn_source.connect(root) as log:
        for name in ("t", "u"):
            log.create_topic(name)
            with log.producer(name) as producer:
                producer.send(b"x")
        for path in (root / "segments").rglob("*.arrow"):
            tiers.flip_near_end(path)
        unsound = segments_of.unsound

        def deleting(stub: Any, topic: Any, *of: Any) -> Any:
            found = unsound(stub, topic, *of)
            log.delete_topic(topic.short)
            return found

        monkeypatch.setattr(segments_of, "unsound", deleting)
        report = look(root)
        assert (report.findings, report.not_checked) == ((), ())


def test_objects_that_go_while_they_are_listed_are_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete a topic's objects between the listing of their folder and the look at each, and then the folder itself."""
    root = tmp_path / "log"
    with txn_source.connect(root) as log:
        log.create_topic("orders")
        tiers.write_ledgers(log)
        log.offload("orders")
        walk = os.walk

        def deleting(folder: Path, *of: Any, **options: Any) -> Any:
            for found in walk(folder, *of, **options):
                if Path(folder).name == "tiered" and found[2]:
                    log.delete_topic("orders")
                    shutil.rmtree(folder)
                yield found

        monkeypatch.setattr(os, "walk", deleting)
        report = look(root)
        assert (report.findings, report.not_checked) == ((), ())
        assert not (root / "tiered").exists()
        assert look(root).findings == ()


def test_files_that_wait_for_their_deletion_are_no_garbage(tmp_path: Path) -> None:
    """Trim ledgers whose files are old, without the deletion that follows: nothing is found, since that is to come."""
    root = tmp_path / "log"
    with txn_source.connect(root) as log:
        log.create_topic("orders")
        tiers.write_ledgers(log)
        log.offload("orders")
        for path in [*tiers.segments(root), *tiers.objects(root), *tiers.second_files(root)]:
            age(path)
        log.metadata.trim_topic(log.metadata.list_topics()[0], {}, None, 0)
        assert len(list(log.metadata.list_doomed_files())) >= 4
        assert look(root).findings == ()


@pytest.mark.long
def test_log_with_copies_has_no_finding_while_roots_come_and_go(log: Log, roots: Roots) -> None:
    """Write with acknowledgements of two of three roots while the doctor looks: copies that are on their way are no
    finding."""
    log.set_policies("t", acknowledge_copies=2)

    def write(other: Log, number: int) -> None:
        with other.producer("t", batching=BY_HAND) as producer:
            producer.send(b"%d" % number)
            producer.flush()

    with _Storm(roots.main, write, lambda other, _: other.maintain()) as storm:
        looks = 0
        while looks < 3 or min(storm.rounds) < 2:
            assert look(roots.main).findings == ()
            looks += 1
