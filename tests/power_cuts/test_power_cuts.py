"""The power fails at any moment: what was acknowledged before is there, nothing damaged is served, and the log goes on.

Each scenario runs over a disk that forgets what wasn't synced (``forgetful_disk.py``) and says what was promised to it.
Then every state in which the disk may come back is opened as a log.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Hashable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest

from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED
from tests.power_cuts.forgetful_disk import CrashState, ForgetfulDisk
from txn_source import Log, connect
from txn_source.storage.folders import make_folder
from txn_source.storage.root import LogRoot

LOG = "log"
"""The promise that the log is there; others are tuples of a word and what it is about."""
Scenario = Callable[[ForgetfulDisk, Path], None]


def first_flush(disk: ForgetfulDisk, root: Path) -> None:
    """Make a log, a topic and a message."""
    with connect(root) as log:
        disk.promise(LOG)
        log.create_topic("orders")
        disk.promise(("topic", "orders"))
        with log.producer("orders", batching=BY_HAND) as producer:
            send(disk, producer, "orders", b"1")


def flushes(disk: ForgetfulDisk, root: Path) -> None:
    """Flush twice to each of two partitions, from two producers, over a rolled ledger."""
    with connect(root) as log:
        disk.promise(LOG)
        log.create_topic("orders", 2)
        with log.producer("orders", batching=BY_HAND) as one, log.producer("orders", batching=BY_HAND) as other:
            send(disk, one, "orders", b"1", partition=0)
            send(disk, other, "orders", b"2", partition=1)
            send(disk, one, "orders", b"3", b"4", partition=0)
            log.roll_ledger("orders", 0)
            send(disk, one, "orders", b"5", partition=0)
        with log.producer("orders", batching=BY_HAND) as producer:
            send(disk, producer, "orders", b"6")


def transactions(disk: ForgetfulDisk, root: Path) -> None:
    """Commit a transaction over two topics, abort one, and leave one open."""
    with connect(root) as log:
        disk.promise(LOG)
        for topic in ("orders", "payments"):
            log.create_topic(topic)
        with log.producer("orders", batching=BY_HAND) as one, log.producer("payments", batching=BY_HAND) as other:
            for number, end in enumerate(["commit", "abort", "open"]):
                txn = log.begin_transaction()
                sent = [b"txn %d %s" % (number, half) for half in (b"debit", b"credit")]
                for producer, value in zip((one, other), sent, strict=True):
                    producer.send(value, txn=txn)
                    producer.flush()
                    disk.promise(("row", producer.topic, value, UNCOMMITTED))
                if end == "commit":
                    txn.commit()
                    disk.promise(("row", "orders", sent[0], COMMITTED), ("row", "payments", sent[1], COMMITTED))
                elif end == "abort":
                    txn.abort()
            # An open transaction holds back what lies behind it.
            one.send(b"behind")
            one.flush()
            disk.promise(("row", "orders", b"behind", UNCOMMITTED))


def offload(disk: ForgetfulDisk, root: Path, target: str | None = None) -> None:
    """Offload two ledgers, delete their hot copies, then the objects of what was offloaded after it."""
    with connect(root) as log:
        disk.promise(LOG)
        log.create_topic("orders", offload_uri=target)
        with log.producer("orders", batching=BY_HAND) as producer:
            for value in (b"1", b"2"):
                send(disk, producer, "orders", value)
                log.roll_ledger("orders")
            log.offload("orders")
            disk.promise("offloaded")
            log.delete_hot("orders")
            disk.promise("deleted hot")
            send(disk, producer, "orders", b"3")
            log.roll_ledger("orders")
            log.offload("orders")
        log.maintain()


def offload_elsewhere(disk: ForgetfulDisk, root: Path) -> None:
    """Offload into a folder outside the root that isn't there yet."""
    offload(disk, root, str(root.parent / "cold" / "objects"))


def offload_again(disk: ForgetfulDisk, root: Path) -> None:
    """Delete the objects of a topic and offload it once more."""
    with connect(root) as log:
        disk.promise(LOG)
        log.create_topic("orders")
        with log.producer("orders", batching=BY_HAND) as producer:
            send(disk, producer, "orders", b"1")
        log.roll_ledger("orders")
        log.offload("orders")
        log.delete_offloaded("orders")
        disk.promise("deleted objects")
        log.offload("orders")
        log.delete_hot("orders")
        disk.promise("deleted hot")


def deletion(disk: ForgetfulDisk, root: Path) -> None:
    """Delete a topic, make it again, trim another one, and collect garbage."""
    with connect(root) as log:
        disk.promise(LOG)
        for topic in ("orders", "payments"):
            log.create_topic(topic)
            with log.producer(topic, batching=BY_HAND) as producer:
                send(disk, producer, topic, b"old " + topic.encode())
        disk.promise(("going", "orders", b"old orders"))
        log.delete_topic("orders")
        disk.promise(("gone", "orders", b"old orders"))
        log.create_topic("orders")
        with log.producer("orders", batching=BY_HAND) as producer:
            send(disk, producer, "orders", b"new")
        log.roll_ledger("payments")
        disk.promise(("going", "payments", b"old payments"))
        log.trim("payments", keep_bytes=0)
        disk.promise(("gone", "payments", b"old payments"))
        log.collect_garbage(0)
        disk.promise("collected")


def after_a_kill(disk: ForgetfulDisk, root: Path) -> None:
    """Find a log, and folders for its segments and objects, of a process that was killed before it synced them."""
    with mock.patch.object(LogRoot, "settle"):
        connect(root).close()
    with connect(root, create=False) as log:
        disk.promise(LOG)
        log.create_topic("orders")
        disk.promise(("topic", "orders"))
        for folder in ("segments/1/0", "tiered/public/default/orders/0"):
            (root / folder).mkdir(parents=True)
        with log.producer("orders", batching=BY_HAND) as producer:
            send(disk, producer, "orders", b"1")
        log.roll_ledger("orders")
        log.offload("orders")
        log.delete_hot("orders")
        disk.promise("deleted hot")
    assert sorted(path.name for path in (root / "segments").iterdir()) == ["1"]


SCENARIOS = (first_flush, flushes, transactions, offload, offload_elsewhere, offload_again, deletion, after_a_kill)
EACH_TIME = (transactions, after_a_kill)


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if the machine has one: what is synced is only noted here, so it need not take its time."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.mark.parametrize("scenario", EACH_TIME, ids=lambda scenario: scenario.__name__)
def test_what_was_acknowledged_survives_a_power_cut(quick_folder: Path, scenario: Scenario) -> None:
    """Cut the power at every moment of a scenario; look at some of the states that say most."""
    disk = watched(quick_folder, scenario, 5)
    assert disk.moments > 15
    states = list(disk.states.values())
    step = max(1, len(states) // 12)
    check_all(quick_folder, states[::step])


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_what_was_acknowledged_survives_many_power_cuts(quick_folder: Path, scenario: Scenario) -> None:
    """The same with up to hundreds of states of each moment; prints how many."""
    disk = watched(quick_folder, scenario, 300)
    print(f"{scenario.__name__}: {disk.moments} moments, {len(disk.states)} states")
    check_all(quick_folder, list(disk.states.values()))


def nothing(*_: object) -> None:
    """Sync nothing."""


def only_make(folder: Path, below: Path | None = None) -> None:
    """Make a folder and sync nothing."""
    folder.mkdir(parents=True, exist_ok=True)


def sync_what_is_new(folder: Path, below: Path | None = None) -> None:
    """Sync only the folders that weren't there."""
    if not folder.is_dir():
        make_folder(folder, below)


LEFT_OUT = {
    "a segment's folders, of another process": (
        after_a_kill, "txn_source.storage.segment.make_folder", sync_what_is_new,
    ),
    "an object's folders, of another process": (
        after_a_kill, "txn_source.storage.object_store.make_folder", sync_what_is_new,
    ),
    "another process's root": (after_a_kill, "txn_source.storage.root.LogRoot.settle", nothing),
    "a segment's bytes": (flushes, "txn_source.storage.segment.SegmentWriter.sync", nothing),
    "a segment's name": (flushes, "txn_source.storage.segment.sync_folder", nothing),
    "a segment's folders": (first_flush, "txn_source.storage.segment.make_folder", only_make),
    "the root": (first_flush, "txn_source.storage.root.make_folder", only_make),
    "the root's marker": (first_flush, "txn_source.storage.root.sync_folder", nothing),
    "an object": (offload, "txn_source.storage.object_store.sync_file", nothing),
    "an object's folders": (offload_elsewhere, "txn_source.storage.object_store.make_folder", only_make),
    "deleted objects": (offload_again, "txn_source.storage.object_store.ObjectStore.sync_deleted", nothing),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("left_out", LEFT_OUT)
def test_each_sync_is_needed(quick_folder: Path, left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out one sync: some power cut breaks a promise, which shows that the tests above would tell."""
    scenario, place, instead = LEFT_OUT[left_out]
    monkeypatch.setattr(place, instead)
    disk = watched(quick_folder, scenario, 5)
    monkeypatch.undo()
    newest_first = reversed(disk.states.values())
    assert any(problem(state, quick_folder) for state in newest_first)


def watched(place: Path, scenario: Scenario, most: int) -> ForgetfulDisk:
    """Run a scenario over a disk that notes in which states it may come back, at most so many for each moment."""
    folder = place / "disk"
    folder.mkdir()
    with ForgetfulDisk(folder, most) as disk:
        scenario(disk, folder / "log")
    return disk


def check_all(place: Path, states: list[CrashState]) -> None:
    """Check every state."""
    broken = [found for state in states if (found := problem(state, place))]
    assert not broken, f"{len(broken)} of {len(states)} states are broken, the first ones:\n" + "\n".join(broken[:5])


def problem(state: CrashState, place: Path) -> str | None:
    """Return what is wrong with a state, if anything is."""
    folder = place / "disk"  # its place: an object's address may be absolute
    shutil.rmtree(folder)
    state.build(folder)
    try:
        check(folder / "log", set(state.promises))
    except Exception as error:
        listed = ", ".join(path for path, _ in state.tree)
        return f"after {state.after}, with {state.promises[-1:]} promised and [{listed}]: {error!r}"[:600]
    return None


def check(root: Path, promises: set[Hashable]) -> None:
    """Open a log after a power cut: all promises hold, nothing is torn, and it takes and keeps what is sent now."""
    facts = [fact for fact in promises if isinstance(fact, tuple)]
    gone = {(topic, value) for word, topic, value in (f for f in facts if f[0] == "gone")}
    with connect(root, create=LOG not in promises) as log:
        topics = log.topics()
        assert {fact[1] for fact in facts if fact[0] == "topic"} <= set(topics)
        before = {topic: {level: read(log, topic, level) for level in (COMMITTED, UNCOMMITTED)} for topic in topics}
        for topic, found in before.items():
            assert set(found[COMMITTED]) <= set(found[UNCOMMITTED])
            for rows in found.values():
                assert len(rows) == len(set(rows)), rows
                assert not {(topic, row) for row in rows} & gone
        for _, topic, value, level in (fact for fact in facts if fact[0] == "row"):
            if ("going", topic, value) not in facts:
                assert topic in topics, f"topic {topic} is gone"
                assert value in before[topic][level], f"{value!r} is gone"
        if "payments" in before:
            halves = [{r.split()[1] for r in before[t][COMMITTED] if r.startswith(b"txn")} for t in topics]
            assert len(halves) < 2 or halves[0] == halves[1], halves
        if not topics:
            log.create_topic("orders")
        log.maintain()
        for topic in log.topics():
            with log.producer(topic, batching=BY_HAND) as producer:
                producer.send(b"next")
                producer.flush()
            assert sorted(read(log, topic, UNCOMMITTED)) == sorted(
                [*before.get(topic, {}).get(UNCOMMITTED, []), b"next"]
            )
        check_no_object_is_unknown(root)


def check_no_object_is_unknown(root: Path) -> None:
    """Check that no object lies there that the database doesn't know, as a copy or as a file to be deleted."""
    with closing(sqlite3.connect(root / "metadata.db")) as database:
        known = {uri for (uri,) in database.execute("SELECT uri FROM copies UNION SELECT uri FROM doomed_files")}
    found = [*root.rglob("*.parquet"), *(root.parent / "cold").rglob("*.parquet")]
    assert {path.resolve() for path in found} <= {(root / uri).resolve() for uri in known}


def read(log: Log, topic: str, level: str) -> list[bytes]:
    """Scan a topic by partition; no copy of it may fail."""
    reader = log.scan(topic, level, ["value"])
    found = [row["value"] for row in reader.read_all().to_pylist()]
    assert not log.copies_read(reader).failures
    return found


def send(disk: ForgetfulDisk, producer: object, topic: str, *sent: bytes, **options: int) -> None:
    """Send values, flush, and promise what the flush does."""
    for value in sent:
        producer.send(value, **options)  # type: ignore[attr-defined]
    producer.flush()  # type: ignore[attr-defined]
    disk.promise(*(("row", topic, value, level) for value in sent for level in (COMMITTED, UNCOMMITTED)))
