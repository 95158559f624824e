"""Repair of hot copies: of roots that are lost, damaged, or come back, and after the policy was changed."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

import pytest

from tests.log.reading import BY_HAND, send_each, values
from tests.log.roots import Roots, log, roots, spoil
from tests.selection import mostly_long
from txn_source import Log
from txn_source.client import segment_copying
from txn_source.client.tiering.garbage import collect_garbage
from txn_source.client.tiering.hot_repair import RepairReport
from txn_source.model.errors import SegmentUnreadableError, TransactionEndedError
from txn_source.model.topic_name import TopicName
from txn_source.storage.segment_store import LocalSegments

__all__ = ["log", "roots"]
T = TopicName.parse("t")
_LATER_S = 10.0**10


def contents(roots: Roots, name: str) -> dict[str, bytes]:
    return {path.relative_to(roots[name]).as_posix(): path.read_bytes() for path in roots.segments(name)}


def sets(log: Log) -> list[int]:
    """Return of each segment the set of the roots that have it, as the service knows it."""
    return [segment.roots for segment in log.metadata.list_hot_segments(T)]


@pytest.fixture
def written(log: Log, roots: Roots) -> dict[str, bytes]:
    """Six messages, a segment each; return what each root has."""
    send_each(log.producer("t", batching=BY_HAND), [b"%d" % n for n in range(6)])
    return contents(roots, "main")


@pytest.mark.parametrize("lost", mostly_long(["main", "b", "c"], "main"))
def test_lost_root_is_filled_again(log: Log, roots: Roots, written: dict[str, bytes], lost: str) -> None:
    """Lose all of a root: while it is away nothing is given up; made anew it gets all files."""
    shutil.rmtree(roots[lost] / "segments" if lost == "main" else roots[lost])
    if lost != "main":
        away = log.maintain()
        assert [where for where, _ in away.failures] == [f"root {lost}"]
        assert away.copies == RepairReport()
        assert sets(log) == [0b111] * 6
        log.add_root(lost, roots[lost])
    assert log.maintain().copies == RepairReport(copied=6)
    assert contents(roots, lost) == written
    assert log.maintain().copies == RepairReport()
    assert [root.short_entries for root in log.roots()] == [0, 0, 0]


@pytest.mark.parametrize("damage", mostly_long(["gone", "short", "flipped"], "gone", "flipped"))
def test_single_files_are_mended(log: Log, roots: Roots, written: dict[str, bytes], damage: str) -> None:
    """Damage a file in each root: what is gone or short is found by its size, what is flipped by reading all."""
    for n, name in enumerate(("main", "b", "c")):
        spoil(roots.segments(name)[n], damage)
    found = log.maintain().copies
    assert found == (RepairReport() if damage == "flipped" else RepairReport(copied=3))
    assert log.maintain(verify=True).copies == (RepairReport(copied=3) if damage == "flipped" else RepairReport())
    assert [contents(roots, name) for name in ("main", "b", "c")] == [written] * 3
    assert sets(log) == [0b111] * 6


def test_file_that_begins_with_a_refused_entry_is_copied(log: Log, roots: Roots) -> None:
    """Write one copy of an entry of a transaction that has ended, then one that counts, and ask for more copies."""
    log.set_policies("t", hot_copies="main")
    producer = log.producer("t", batching=BY_HAND)
    txn = log.begin_transaction()
    producer.send(b"late", txn=txn)
    log.metadata.end_transaction(txn.id, commit=False)
    with pytest.raises(TransactionEndedError):
        producer.flush()
    send_each(producer, [b"1"])
    log.set_policies("t", hot_copies="main,b", acknowledge_copies=1)
    assert log.maintain().copies == RepairReport(copied=1)
    for path in roots.segments("main"):
        path.unlink()
    assert values(log, "t") == [b"1"]


@pytest.mark.parametrize("window", mostly_long([1, 300, 1000], 300))
def test_long_segments_are_copied_window_by_window(
    log: Log, roots: Roots, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """Windows that have one entry, some, or many: no read and no part of a write is longer, and each copy is whole, of
    one root or put together."""
    monkeypatch.setattr(segment_copying, "_WINDOW_BYTES", window)
    producer = log.producer("t", batching=BY_HAND)
    with log.begin_transaction() as txn:
        for n in range(9):
            log.update_topic("t", n + 1)
            producer.send(b"%d" % n, partition=n, txn=txn)
        producer.flush()
    [path] = roots.segments("main")
    name = path.relative_to(roots.main)
    whole = path.read_bytes()
    entries = log.metadata.list_segment_entries(T, name.as_posix()).to_pylist()
    longest = max(window, entries[0]["offset"] + entries[0]["length"])
    lengths: list[int] = []
    read = LocalSegments.read

    def noted(self: LocalSegments, path: str, start: int, end: int) -> bytes:
        lengths.append(end - start)
        return read(self, path, start, end)

    monkeypatch.setattr(LocalSegments, "read", noted)
    (roots.c / name).unlink()
    assert log.maintain().copies == RepairReport(copied=1)
    assert (roots.c / name).read_bytes() == whole
    for number, entry in enumerate(entries):
        root = roots[("main", "b", "c")[number % 3]]
        damaged = bytearray((root / name).read_bytes())
        damaged[entry["offset"] + entry["length"] - 1] ^= 0xFF
        (root / name).write_bytes(damaged)
    assert log.maintain(verify=True).copies == RepairReport(copied=3)
    assert [(roots[root] / name).read_bytes() for root in ("main", "b", "c")] == [whole] * 3
    assert max(lengths) <= longest


def test_segment_that_changes_while_it_is_copied_is_not_written(
    log: Log, roots: Roots, written: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage the one sound copy between the look at it and the copy: nothing of it is written, and nothing left."""
    first, *_ = sorted(written)
    (roots.b / first).unlink()
    put_all = LocalSegments.put_all

    def late(self: LocalSegments, path: str, size: int, parts: Iterable[bytes]) -> None:
        for name in ("main", "c"):
            spoil(roots[name] / first, "flipped")
        put_all(self, path, size, parts)

    monkeypatch.setattr(LocalSegments, "put_all", late)
    log.maintain()
    assert not (roots.b / first).exists()
    assert len(roots.segments("b")) == len(written) - 1


def test_unsound_bytes_are_never_copied(log: Log, roots: Roots, written: dict[str, bytes]) -> None:
    """Damage the last copy of an entry: it isn't copied, repair says so, the others are as they were, and a copy that
    is put back is taken."""
    first, *_ = sorted(written)
    (roots.b / first).unlink()
    (roots.c / first).unlink()
    spoil(roots.main / first, "flipped")
    damaged = (roots.main / first).read_bytes()
    for _ in range(2):
        report = log.maintain(verify=True)
        assert report.copies.lost == 1
        assert any("no root has a sound copy" in why for _, why in report.failures)
        assert not (roots.b / first).exists()
        assert (roots.main / first).read_bytes() == damaged
    with pytest.raises(SegmentUnreadableError):
        values(log, "t")
    (roots.c / first).write_bytes(written[first])
    log.maintain(verify=True)
    assert len(values(log, "t")) == 6
    assert [contents(roots, name) for name in ("main", "b", "c")] == [written] * 3


def test_raised_policy_copies_what_is_there(log: Log, roots: Roots) -> None:
    """Write one copy, in files that grow, and ask for more: all is copied, whole, and read from there alone. The file
    that a producer still appends to is copied once more."""
    log.set_policies("t", hot_copies="main")
    producer = log.producer("t", batching=BY_HAND)
    send_each(producer, [b"1", b"2"])
    log.roll_ledger("t")
    send_each(producer, [b"3"])
    log.set_policies("t", hot_copies="main,b", acknowledge_copies=1)
    assert log.maintain().copies.copied == 1
    assert sets(log) == [0b011]  # of both ledgers: the producer noticed late that the first one was closed
    send_each(producer, [b"4"])
    assert log.maintain().copies.copied == 1
    assert sets(log) == [0b011, 0b011]
    send_each(producer, [b"5"])
    assert sets(log) == [0b011, 0b001]
    assert log.maintain().copies.copied == 1
    kept = roots.main / "segments"
    kept.rename(kept.with_name("away"))
    assert values(log, "t") == [b"1", b"2", b"3", b"4", b"5"]


def test_lowered_policy_gives_up_what_is_too_much(log: Log, roots: Roots, written: dict[str, bytes]) -> None:
    """Ask for fewer copies: the others are given up, and their files are garbage when they are old."""
    log.set_policies("t", hot_copies="main,c")
    assert log.maintain().copies == RepairReport(given_up=6)
    assert sets(log) == [0b101] * 6
    assert contents(roots, "b") == written
    assert collect_garbage(log.access, 24 * 3600, dry_run=False).paths == ()
    gone = collect_garbage(log.access, 24 * 3600, dry_run=False, clock=lambda: _LATER_S)
    assert gone.paths == tuple(f"b:{path}" for path in sorted(written))
    assert contents(roots, "b") == {}
    assert contents(roots, "main") == contents(roots, "c") == written
    assert len(values(log, "t")) == 6


def test_copy_is_given_up_only_where_all_others_are_sound(log: Log, roots: Roots, written: dict[str, bytes]) -> None:
    """Ask for one copy, whose bytes have changed: it is written anew of the others before these are given up."""
    path = sorted(written)[2]
    (roots.main / path).write_bytes(bytes(len(written[path])))
    log.set_policies("t", hot_copies="main")
    assert log.maintain().copies == RepairReport(copied=1, given_up=10)
    assert log.maintain().copies == RepairReport(given_up=2)
    assert contents(roots, "main") == written


def test_copies_move_from_root_to_root(log: Log, roots: Roots, written: dict[str, bytes]) -> None:
    """Name other roots: what is there is copied first, and given up only where all others have it."""
    log.set_policies("t", hot_copies="b")
    log.maintain()
    log.set_policies("t", hot_copies="c")
    roots.lose("c")
    log.maintain()
    assert sets(log) == [0b010] * 6
    roots.bring_back("c")
    shutil.rmtree(roots.c / "segments")
    log.maintain()
    assert sets(log) == [0b110] * 6
    log.maintain()
    assert sets(log) == [0b100] * 6
    assert contents(roots, "c") == written
    assert len(values(log, "t")) == 6


def test_trimming_and_offloading_know_all_roots(log: Log, roots: Roots) -> None:
    """Offload, delete hot copies, and delete the topic: no root keeps a file; what one has that is away goes when
    it is back. An offloaded ledger without hot copies needs none."""
    producer = log.producer("t", batching=BY_HAND)
    for n in range(3):
        send_each(producer, [b"%d" % n])
        log.roll_ledger("t")
    log.offload("t")
    roots.lose("b")
    log.delete_hot("t")
    assert [len(roots.segments(name)) for name in ("main", "c")] == [0, 0]
    assert len(log.metadata.list_doomed_files()) == 3
    assert log.maintain().copies == RepairReport()
    roots.bring_back("b")
    assert len(roots.segments("b")) == 3
    log.maintain()
    assert roots.segments("b") == []
    assert log.metadata.list_doomed_files() == []
    assert values(log, "t") == [b"0", b"1", b"2"]
    send_each(producer, [b"3"])
    log.delete_topic("t")
    assert [roots.segments(name) for name in ("main", "b", "c")] == [[], [], []]


def test_garbage_is_collected_in_all_roots(log: Log, roots: Roots, written: dict[str, bytes]) -> None:
    """Leave a file of a closed producer in each root: it is doomed once and deleted in all."""
    opened, _ = log.metadata.open_producer(TopicName.parse("t"), None, None)
    log.metadata.close_producer(opened)
    path = f"segments/1/{opened.producer_id}-aaaaaaaaaaaa.arrows"
    for name in ("main", "b", "c"):
        (roots[name] / path).write_bytes(b"x" * 10)
    found = collect_garbage(log.access, 0, dry_run=False, clock=lambda: _LATER_S)
    assert (found.paths, found.bytes) == ((path,), 30)
    assert [contents(roots, name) for name in ("main", "b", "c")] == [written] * 3


def test_copies_of_an_offloaded_ledger_are_checked_in_any_root(log: Log, roots: Roots) -> None:
    """Delete the object of a ledger whose hot copy is in one root alone: that is enough; in none it is refused."""
    send_each(log.producer("t", batching=BY_HAND), [b"1"])
    log.roll_ledger("t")
    log.offload("t")
    for name in ("main", "b"):
        shutil.rmtree(roots[name] / "segments")
    hidden = roots.c / "segments"
    hidden.rename(roots.c / "away")
    with pytest.raises(Exception, match="no sound copy"):
        log.delete_offloaded("t")
    (roots.c / "away").rename(hidden)
    assert log.delete_offloaded("t") == 1
    assert values(log, "t") == [b"1"]
