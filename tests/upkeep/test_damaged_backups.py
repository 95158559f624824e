"""Backups that can't be made or can't be used: it is told why, and nothing is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import txn_source
from tests.log.reading import send_each
from tests.log.sites import log_on_postgres
from tests.upkeep.filled import files, fill, seen
from txn_source import DataLossError, InvalidArgumentError, LogNotFoundError, UnavailableError
from txn_source.model.errors import LogVersionError, SegmentUnreadableError, StorageWriteError
from txn_source.upkeep import backup as making
from txn_source.upkeep import restore as restoring
from txn_source.upkeep.manifest import MANIFEST, Manifest


def test_backup_is_no_log_and_half_of_one_no_backup(root: Path, tmp_path: Path) -> None:
    """Open a backup as a log, back it up, and restore a folder without a manifest: each is told for what it is."""
    with txn_source.connect(root) as log:
        fill(log)
    txn_source.backup(root, tmp_path / "backup")
    with pytest.raises(LogNotFoundError):
        txn_source.connect(tmp_path / "backup")
    with pytest.raises(LogNotFoundError, match="is a backup, not a log"):
        txn_source.backup(tmp_path / "backup", tmp_path / "other")
    (tmp_path / "backup" / MANIFEST).unlink()
    with pytest.raises(LogNotFoundError, match="was not finished"):
        txn_source.restore(tmp_path / "backup", tmp_path / "restored")
    with pytest.raises(LogNotFoundError, match="does not exist"):
        txn_source.restore(tmp_path / "nowhere", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("call", [txn_source.backup, txn_source.restore])
def test_folder_with_something_in_it_is_left_alone(root: Path, tmp_path: Path, call: Callable[..., Any]) -> None:
    """Name a folder with a file of somebody's, one that isn't there, one in the other's, also by a link, and one
    that is in use."""
    with txn_source.connect(root) as log:
        log.create_topic("t")
        send_each(log.producer("t"), [b"m"])
    txn_source.backup(root, tmp_path / "backup")
    source = root if call is txn_source.backup else tmp_path / "backup"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").write_text("dear")
    with pytest.raises(InvalidArgumentError, match="'letter'"):
        call(source, tmp_path / "full")
    assert files(tmp_path / "full") == ["letter"]
    with pytest.raises(LogNotFoundError, match="no folder"):
        call(source, tmp_path / "no" / "such")
    (root / "segments").rename(tmp_path / "disk")
    (root / "segments").symlink_to(tmp_path / "disk")
    linked = [tmp_path / "disk" / "backup"] if call is txn_source.backup else []
    for inside in (source / "in", tmp_path, *linked):
        with pytest.raises(InvalidArgumentError, match="lies in"):
            call(source, inside)
    (tmp_path / "empty").mkdir()
    call(source, tmp_path / "empty")
    with pytest.raises(InvalidArgumentError, match="not empty"):
        call(source, tmp_path / "empty")


def test_logs_that_it_cannot_copy_are_refused(tmp_path: Path) -> None:
    """Its metadata in PostgreSQL, or its segments on an object store: the remedy tells what to do instead."""
    with log_on_postgres(tmp_path / "log"), pytest.raises(InvalidArgumentError, match="pg_dump"):
        txn_source.backup(tmp_path / "log", tmp_path / "backup")
    with pytest.raises(InvalidArgumentError, match="versioning"):
        txn_source.backup("s3://bucket/log", tmp_path / "backup")
    with pytest.raises(LogNotFoundError):
        txn_source.backup(tmp_path / "nothing", tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_file_that_is_missing_for_good_is_named(root: Path, tmp_path: Path) -> None:
    """Without a tiered copy it is data loss, and nothing is left; with one it is a remark, and all rows are there."""
    with txn_source.connect(root) as log:
        fill(log)
        expected = seen(log)
        segments = sorted((root / "segments").rglob("*.arrow"))
        [only] = [path for path in segments if b"open" in path.read_bytes()]
        spare = next(path for path in segments if b"1-1" in path.read_bytes())  # of a ledger that is offloaded, too
        gone = spare.relative_to(root).as_posix()
        spare.unlink()
        done = txn_source.backup(root, tmp_path / "backup")
        assert [note for note in done.notes if gone in note]
        txn_source.restore(tmp_path / "backup", tmp_path / "restored")
        with txn_source.connect(tmp_path / "restored") as restored:
            assert seen(restored) == expected
        only.write_bytes(only.read_bytes()[:-1])
        with pytest.raises(DataLossError, match=only.name):
            txn_source.backup(root, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def flip(path: Path) -> bytes:
    """Change a byte in the middle of a file; return what it was."""
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :])
    return whole


def test_damage_in_the_log_is_found_by_the_scan(root: Path, tmp_path: Path) -> None:
    """Flip a byte of a segment that lies nowhere else: a backup that is checked is refused, and names the topic. Of an
    object whose ledger has its hot copy: that is told, and what is restored has all messages."""
    with txn_source.connect(root) as log:
        fill(log)
        before = seen(log)
    path = sorted(root.glob("segments/**/*.arrow"))[-1]
    whole = flip(path)
    with pytest.raises(DataLossError, match="Topic 't' at read_"):
        txn_source.backup(root, tmp_path / "refused")
    path.write_bytes(whole)
    for number, pattern in enumerate(("tiered/**/ledger*.parquet", "tiered/**/*.aborted")):
        path = sorted(root.glob(pattern))[-1]
        whole = flip(path)
        told = txn_source.backup(root, tmp_path / f"backup-{number}")
        assert "damaged" in "".join(told.notes)
        txn_source.restore(tmp_path / f"backup-{number}", tmp_path / f"log-{number}")
        with txn_source.connect(tmp_path / f"log-{number}") as again:
            assert seen(again) == before
        path.write_bytes(whole)
    assert txn_source.backup(root, tmp_path / "backup").notes == ()


@pytest.mark.parametrize("lies", ["segment", "object"])
def test_backup_takes_each_message_from_a_sound_copy(root: Path, tmp_path: Path, lies: str) -> None:
    """Flip a byte in the own root of what lies in another one, too, or of what an object has: the backup has it all."""
    with txn_source.connect(root) as log:
        if lies == "segment":
            log.add_root("b", tmp_path / "b")
            log.set_policies(hot_copies="main,b")
        log.create_topic("t")
        send_each(log.producer("t"), [b"1", b"2"])
        log.roll_ledger("t")
        if lies == "object":
            log.offload("t")
        before = seen(log)
    flip(next(iter(root.glob("segments/**/*.arrow*"))))
    told = txn_source.backup(root, tmp_path / "backup")
    assert "damaged in the log" in told.notes[0]
    txn_source.restore(tmp_path / "backup", tmp_path / "again")
    with txn_source.connect(tmp_path / "again") as again:
        assert seen(again) == before


def test_damaged_backup_is_told_and_nothing_made(root: Path, tmp_path: Path) -> None:
    """Flip a byte in each file, cut one, take one away: each is named, and no folder is left."""
    with txn_source.connect(root) as log:
        fill(log)
    txn_source.backup(root, tmp_path / "backup")
    names = [name for name in files(tmp_path / "backup") if name != MANIFEST]
    for name in names:
        path = tmp_path / "backup" / name
        whole = path.read_bytes()
        for damaged in (bytes([whole[0] ^ 1]) + whole[1:], whole[:-1], whole + b"x", None):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            with pytest.raises(SegmentUnreadableError, match=path.name):
                txn_source.restore(tmp_path / "backup", tmp_path / "restored")
            assert not (tmp_path / "restored").exists()
            path.write_bytes(whole)
    for name in names:
        path = tmp_path / "backup" / name
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SegmentUnreadableError, match=f"and {len(names) - 5} more"):
        txn_source.restore(tmp_path / "backup", tmp_path / "restored")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", SegmentUnreadableError),
        ("[]", SegmentUnreadableError),
        ('{"version": 1}', SegmentUnreadableError),
        ('{"version": 99}', LogVersionError),
        ("../../evil", SegmentUnreadableError),
        ("/etc/passwd", SegmentUnreadableError),
    ],
)
def test_manifest_that_cant_be_is_refused(root: Path, tmp_path: Path, text: str, error: type[Exception]) -> None:
    """No name in it leads out of the folder."""
    txn_source.connect(root).close()
    txn_source.backup(root, tmp_path / "backup")
    path = tmp_path / "backup" / MANIFEST
    if text and text[0] not in "[{":
        value = json.loads(path.read_text())
        value["files"][text] = [0, 0, 0]
        text = json.dumps(value)
    path.write_text(text)
    with pytest.raises(error):
        txn_source.restore(tmp_path / "backup", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_full_disk_leaves_nothing(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target takes some bytes and then no more, at each file."""
    with txn_source.connect(root) as log:
        fill(log)
    txn_source.backup(root, tmp_path / "backup")
    count = len(Manifest.read(tmp_path / "backup").files)
    for module, call, source in (
        (making, txn_source.backup, root),
        (restoring, txn_source.restore, tmp_path / "backup"),
    ):
        real = module.copy_file
        for full_after in range(count - 1):
            left = [full_after]

            def copy(*of: Any, real: Any = real, left: list[int] = left) -> Any:
                if not left[0]:
                    raise OSError(28, "No space left on device")
                left[0] -= 1
                return real(*of)

            monkeypatch.setattr(module, "copy_file", copy)
            with pytest.raises(StorageWriteError, match="No space left"):
                call(source, tmp_path / "made")
            assert not (tmp_path / "made").exists()
        monkeypatch.setattr(module, "copy_file", real)


def test_two_at_once_make_one(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin another one to the same folder in the middle of the first: it is refused, and the first one is whole."""
    with txn_source.connect(root) as log:
        fill(log)
    refused: list[Exception] = []

    def progress(*_: int) -> None:
        with pytest.raises(UnavailableError, match="Somebody is making something") as found:
            txn_source.backup(root, tmp_path / "backup")
        refused.append(found.value)

    txn_source.backup(root, tmp_path / "backup", progress=progress)
    assert refused
    txn_source.restore(tmp_path / "backup", tmp_path / "restored")


def test_log_that_somebody_makes_meanwhile_stays(root: Path, tmp_path: Path) -> None:
    """Make a log in the folder that a log is restored to, before it has files: the restore gives way."""
    with txn_source.connect(root) as log:
        log.create_topic("t")
    txn_source.backup(root, tmp_path / "backup")

    def progress(*_: int) -> None:
        with txn_source.connect(tmp_path / "restored") as other:
            other.create_topic("mine")

    with pytest.raises(UnavailableError, match="Somebody is making a log"):
        txn_source.restore(tmp_path / "backup", tmp_path / "restored", progress=progress)
