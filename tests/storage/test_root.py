"""A log's root: which folder is a log, which may become one, and that looking changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.selection import for_each
from txn_source.model.errors import InvalidArgumentError, LogNotFoundError, LogVersionError, StorageWriteError
from txn_source.storage.root import FORMAT_VERSION, LogRoot


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return all files below a folder, and the folders as None."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def make(path: Path) -> LogRoot:
    root = LogRoot.at(path)
    root.check_creatable()
    root.make_folder()
    root.finish()
    return root


def test_folder_becomes_a_log_when_it_is_finished(tmp_path: Path) -> None:
    """Make a root step by step, in a folder that isn't there yet: it exists after the last step only."""
    root = LogRoot.at(tmp_path / "log")
    root.check_creatable()
    assert contents(tmp_path) == {}
    root.make_folder()
    assert not root.exists
    with pytest.raises(LogNotFoundError):
        root.check()
    root.finish()
    assert root.exists
    root.check()
    assert contents(root.path).keys() == {"txnlog.json"}
    assert json.loads((root.path / "txnlog.json").read_text()) == {"format_version": FORMAT_VERSION}


def test_log_is_made_once_by_many(tmp_path: Path) -> None:
    """Finish a root again, as the slower of two processes does: it stays the log it was, with nothing left over."""
    make(tmp_path / "log")
    before = contents(tmp_path)
    make(tmp_path / "log").check()
    assert contents(tmp_path) == before


def test_missing_folder_is_no_log(tmp_path: Path) -> None:
    """Check a path where nothing is: the error says so and what to do, and nothing is made."""
    with pytest.raises(LogNotFoundError) as caught:
        LogRoot.at(tmp_path / "log").check()
    assert str(caught.value) == (
        f"[TXNLOG_LOG_NOT_FOUND] There is no log at {tmp_path / 'log'}: it does not exist."
        " Check the path, or make a log there with txn_source.connect(path) or `txnlog topics create`."
    )
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    "content", [{}, {"notes.txt": b"mine"}, {"metadata.db": b""}], ids=["empty", "other", "half-made"]
)
def test_folder_without_marker_is_no_log(tmp_path: Path, content: dict[str, bytes]) -> None:
    """Check folders that are empty, somebody's, and half-made: each stays as it was."""
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    root = LogRoot.at(tmp_path)
    assert not root.exists
    with pytest.raises(LogNotFoundError, match="it is not a txnlog root"):
        root.check()
    assert contents(tmp_path) == content


def test_file_is_no_log(tmp_path: Path) -> None:
    """Check a file, and a path below a file; neither may become a log."""
    file = tmp_path / "data.csv"
    file.write_bytes(b"a,b")
    for path, reason in ((file, "it is not a txnlog root"), (file / "log", "it does not exist")):
        with pytest.raises(LogNotFoundError, match=reason):
            LogRoot.at(path).check()
        with pytest.raises(LogNotFoundError, match=r"it is not a folder\. Name an empty or new folder"):
            LogRoot.at(file).check_creatable()
    with pytest.raises(
        StorageWriteError, match=r"A log can't be made at .*/log: (Not a directory|File exists)\. Check"
    ):
        LogRoot.at(file / "log").make_folder()
    assert contents(tmp_path) == {"data.csv": b"a,b"}


def test_log_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    """Check a root with the next format version: the error names both versions, and nothing is changed."""
    marker = make(tmp_path).path / "txnlog.json"
    marker.write_text(json.dumps({"format_version": FORMAT_VERSION + 1, "news": True}))
    before = contents(tmp_path)
    with pytest.raises(LogVersionError) as caught:
        LogRoot.at(tmp_path).check()
    assert str(caught.value) == (
        f"[TXNLOG_LOG_VERSION] The log at {tmp_path} has format version {FORMAT_VERSION + 1};"
        f" this release reads up to {FORMAT_VERSION}. Upgrade txn-source."
    )
    assert contents(tmp_path) == before


BAD_MARKERS = [
    b"",
    b"{",
    b"[]",
    b"{}",
    b'"1"',
    b'{"format_version": null}',
    b'{"format_version": "x"}',
    b"\xff\xfe\x00\x80",
]


@for_each("data", BAD_MARKERS)
def test_marker_that_is_not_ours_is_no_log(tmp_path: Path, data: bytes) -> None:
    """Put other content where the version should be, binary too: it is neither used nor written over."""
    (tmp_path / "txnlog.json").write_bytes(data)
    with pytest.raises(LogNotFoundError, match=r"its txnlog\.json is not one of txnlog's\. Check the path\."):
        LogRoot.at(tmp_path).check()
    assert contents(tmp_path) == {"txnlog.json": data}


def test_marker_that_cannot_be_read_is_no_log(tmp_path: Path) -> None:
    """Put a folder where the marker should be: the error gives the system's reason."""
    (tmp_path / "txnlog.json").mkdir()
    with pytest.raises(LogNotFoundError, match=r"can't be read: Is a directory\. Check the path and its permissions\."):
        LogRoot.at(tmp_path).check()


@pytest.mark.parametrize("name", ["metadata.db", "metadata.db-wal", "txnlog.json.a1b2", ".DS_Store"])
def test_half_made_root_may_be_finished(tmp_path: Path, name: str) -> None:
    """Leave what a crash of another creation leaves: the folder may still become a log."""
    (tmp_path / name).write_bytes(b"")
    make(tmp_path).check()


def test_folder_of_somebody_else_never_becomes_a_log(tmp_path: Path) -> None:
    """Ask to make a log among other files: the error names one of them, and they stay alone."""
    (tmp_path / "b.txt").write_bytes(b"mine")
    (tmp_path / "a.txt").write_bytes(b"mine")
    with pytest.raises(LogNotFoundError) as caught:
        LogRoot.at(tmp_path).check_creatable()
    assert str(caught.value) == (
        f"[TXNLOG_LOG_NOT_FOUND] There is no log at {tmp_path}, and the folder is not empty (it has 'a.txt')."
        " Name an empty or new folder to make a log, or the root of one that exists."
    )
    assert contents(tmp_path).keys() == {"a.txt", "b.txt"}


def test_marker_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """Finish a root whose folder is gone: that is an error of writing, and nothing is made."""
    with pytest.raises(StorageWriteError, match=r"No such file or directory\. Check the path, permissions and"):
        LogRoot.at(tmp_path / "gone").finish()
    assert contents(tmp_path) == {}


@for_each(
    ("path", "local"),
    [
        ("/data/log", "/data/log"),
        (Path("/data/log"), "/data/log"),
        ("file:/data/log", "/data/log"),
        ("file:///data/log", "/data/log"),
        ("/data/../log:1", "/data/../log:1"),
    ],
)
def test_path_may_be_a_file_uri(path: str | Path, local: str) -> None:
    """Name one folder in the ways in which people and Spark do."""
    root = LogRoot.at(path)
    assert root.path == Path(local)
    assert root.database_url == f"sqlite:///{local}/metadata.db"


def test_relative_path_stays_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name a folder relatively and by the home folder, then move on: the root doesn't move along."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    relative, home = LogRoot.at("log"), LogRoot.at("~/log")
    monkeypatch.chdir("/")
    assert relative.path == tmp_path / "log"
    assert home.path == tmp_path / "me" / "log"


def test_folder_that_is_named_like_an_address_or_a_home_can_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name such folders in full, or have them there: they are ordinary names then."""
    monkeypatch.chdir(tmp_path)
    for name in ("localhost:6650", "~no-such-user"):
        assert LogRoot.at(f"./{name}").path == tmp_path / name
        with pytest.raises(InvalidArgumentError):
            LogRoot.at(name)
        (tmp_path / name).mkdir()
        assert LogRoot.at(name).path == tmp_path / name


@for_each(
    ("path", "said"),
    [
        ("localhost:6650", r"'localhost:6650' is the address of a service, not a path\. Use endpoint='localhost:6650'"),
        ("127.0.0.1:6650", "is the address of a service"),
        ("[::1]:6650", "is the address of a service"),
        ("my-host.example.org:80", "is the address of a service"),
        ("~no-such-user/log", "names the home folder of 'no-such-user', whom this machine doesn't know"),
        ("a\0b", "has a NUL in it"),
        ("a\ud800b", "is not a path in UTF-8"),
        (b"a\xff", "is not a path in UTF-8"),
        (None, "None is not a path"),
        (5, "5 is not a path"),
    ],
)
def test_what_can_be_no_path_is_refused(path: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name what can't be meant as a folder: the error says what it is taken for, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match=said):
        LogRoot.at(path)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("name", ["x" * 256, "x/" * 2500])
def test_name_that_is_too_long_is_refused(tmp_path: Path, name: str) -> None:
    """Name a folder that no file system takes: looking there, and making a log there, end in errors of ours."""
    root = LogRoot.at(tmp_path / name)
    assert not root.exists
    with pytest.raises(LogNotFoundError, match=r"can't be read: File name too long\. Check the path"):
        root.check()
    with pytest.raises(StorageWriteError, match=r"A log can't be made at .*: File name too long\."):
        root.check_creatable()


def test_log_is_made_only_in_a_folder_that_is_there(tmp_path: Path) -> None:
    """Name a folder in one that is missing, as a slip in a path does: it is refused, and nothing is made."""
    with pytest.raises(LogNotFoundError) as caught:
        LogRoot.at(tmp_path / "dta" / "log").check_creatable()
    assert str(caught.value) == (
        f"[TXNLOG_LOG_NOT_FOUND] There is no log at {tmp_path}/dta/log, and no folder {tmp_path}/dta to make one in."
        " Check the path, or make that folder first."
    )
    assert contents(tmp_path) == {}


def test_log_that_another_process_makes_meanwhile_is_no_foreign_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let another process finish the root, and write, after we saw that there is none: that is the log to open."""
    root = make(tmp_path / "log")
    (root.path / "segments").mkdir()
    root.check_creatable()


def test_leftovers_of_other_creations_are_cleared_away(tmp_path: Path) -> None:
    """Leave the temporary file of a process that was killed, and take away our own under our hands."""
    (tmp_path / "txnlog.json.dead").write_bytes(b"{")
    make(tmp_path)
    assert contents(tmp_path).keys() == {"txnlog.json"}


def test_marker_that_is_not_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the creation before the marker has its name, and let the other process win: both end well."""
    root = LogRoot.at(tmp_path / "log")
    root.make_folder()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        root.finish()
    assert contents(root.path) == {}
    monkeypatch.undo()
    replace = os.replace

    def overtaken(source: Path, target: Path) -> None:
        monkeypatch.undo()
        make(root.path)
        replace(source, target)

    monkeypatch.setattr(os, "replace", overtaken)
    root.finish()
    assert contents(root.path).keys() == {"txnlog.json"}
    root.check()


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_follow_the_mask_of_whoever_makes_it(tmp_path: Path, mask: int, mode: int) -> None:
    """Make a log under several masks: the marker is as readable as the folder."""
    before = os.umask(mask)
    try:
        root = make(tmp_path / "log")
    finally:
        os.umask(before)
    assert (root.path / "txnlog.json").stat().st_mode & 0o777 == mode
    assert root.path.stat().st_mode & 0o777 == 0o777 & ~mask


@for_each("path", ["s3://bucket/log", "s3a://bucket/log", "hdfs://host/log", "gs://bucket/log", "http://x/y"])
def test_path_of_another_storage_is_refused(path: str) -> None:
    """Name roots elsewhere: better an error than a local folder of that name."""
    with pytest.raises(InvalidArgumentError) as caught:
        LogRoot.at(path)
    assert str(caught.value) == (
        f"[TXNLOG_INVALID_ARGUMENT] {path!r} is not a local path. Use a folder of this machine, or connect by endpoint."
    )


def test_empty_path_is_refused() -> None:
    """Name nothing: the working folder isn't meant."""
    with pytest.raises(InvalidArgumentError, match=r"The path of the log is empty\. Name the folder that holds it\."):
        LogRoot.at("")
