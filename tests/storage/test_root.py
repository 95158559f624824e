"""A log's root: which folder is a log, which may become one, and that looking changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    """Make a root step by step, in folders that aren't there yet: it exists after the last step only."""
    root = LogRoot.at(tmp_path / "a" / "log")
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


def test_marker_can_be_read_by_other_users(tmp_path: Path) -> None:
    """Look at the permissions of the marker: a temporary file's own would shut others out."""
    assert (make(tmp_path / "log").path / "txnlog.json").stat().st_mode & 0o777 == 0o644


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
    with pytest.raises(LogNotFoundError, match=r"folder is not empty \(it has 'data\.csv'\)"):
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


@pytest.mark.parametrize("data", BAD_MARKERS, ids=repr)
def test_marker_that_is_not_ours_is_no_log(tmp_path: Path, data: bytes) -> None:
    """Put other content where the version should be, binary too: it is neither used nor written over."""
    (tmp_path / "txnlog.json").write_bytes(data)
    with pytest.raises(LogNotFoundError, match=r"its txnlog\.json is not one of txnlog's\. Check the path\."):
        LogRoot.at(tmp_path).check()
    assert contents(tmp_path) == {"txnlog.json": data}


def test_marker_that_cannot_be_read_is_no_log(tmp_path: Path) -> None:
    """Put a folder where the marker should be: the error gives the system's reason."""
    (tmp_path / "txnlog.json").mkdir()
    with pytest.raises(LogNotFoundError, match=r"can't be read: Is a directory\. Check the permissions\."):
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
    with pytest.raises(StorageWriteError, match=r"No such file or directory\. Check permissions and free space\."):
        LogRoot.at(tmp_path / "gone").finish()
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
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


def test_home_of_nobody_is_an_ordinary_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the home folder of a user who isn't there: no other error than that there is no log."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LogNotFoundError, match=r"~no-such-user/log: it does not exist"):
        LogRoot.at("~no-such-user/log").check()


@pytest.mark.parametrize(
    "path", ["s3://bucket/log", "s3a://bucket/log", "hdfs://host/log", "gs://bucket/log", "http://x/y"]
)
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
