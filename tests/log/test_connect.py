"""Opening a log: what lies at a path, what doesn't, and names that only look odd."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.log.reading import send_each, told_by, values
from txn_source import InvalidArgumentError, Log, LogNotFoundError, LogVersionError, TxnLogError, connect
from txn_source.storage.root import LogRoot


def test_empty_folder_becomes_a_log(tmp_path: Path) -> None:
    """Connect to a folder with nothing in it, by path and as Spark spells it."""
    with connect(tmp_path) as log:
        log.create_topic("orders")
    with connect(f"file://{tmp_path}", create=False) as log:
        assert log.topics() == ["orders"]


def test_reader_never_makes_a_log(tmp_path: Path) -> None:
    """Connect without ``create`` to what isn't there: nothing is made."""
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(LogNotFoundError, match=rf"^\[TXNLOG_LOG_NOT_FOUND\] There is no log at {path}: it "):
            connect(path, create=False)
    assert list(tmp_path.iterdir()) == []


def test_lost_database_is_told_and_nothing_takes_its_place(tmp_path: Path) -> None:
    """Take the database of a log away, and connect: an empty one in its place would be taken for the log."""
    root = tmp_path / "log"
    connect(root).close()
    for file in root.glob("metadata.db*"):
        file.rename(tmp_path / file.name)
    for create in (True, False):
        with pytest.raises(
            LogNotFoundError, match=r"has lost its metadata: there is no metadata.db\. .*txnlog restore"
        ):
            connect(root, create=create)
    assert list(root.glob("metadata.db*")) == []
    (tmp_path / "metadata.db").rename(root / "metadata.db")
    with connect(root) as log:
        assert log.topics() == []


def test_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    """Connect to a folder with a file in it, and to that file."""
    (tmp_path / "notes.txt").write_text("mine")
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(LogNotFoundError, match="no log"):
            connect(path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_log_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    """Raise the version in the marker of a log."""
    connect(tmp_path / "log").close()
    marker = tmp_path / "log" / "txnlog.json"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"format_version": 99}))
    with pytest.raises(LogVersionError, match=r"version 99; this release reads up to"):
        connect(tmp_path / "log")


def test_path_or_endpoint_must_be_given_and_not_both(tmp_path: Path) -> None:
    """Connect to neither and to both."""
    with pytest.raises(InvalidArgumentError, match="Neither"):
        connect()
    with pytest.raises(InvalidArgumentError, match="Both"):
        connect(tmp_path, endpoint="localhost:6650")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a b", "a%20b", "a#b", "a?b", "a?mode=memory", "é", "a'b", "a&b=c", ":memory:"])
def test_root_may_have_any_name(tmp_path: Path, name: str) -> None:
    """Make a log at an odd path beside one at a plain path: each has its own files and topics."""
    with connect(tmp_path / "a") as beside, connect(tmp_path / name) as log:
        log.create_topic("orders")
        send_each(log.producer("orders"), [b"x"])
        assert beside.topics() == []
        assert (tmp_path / name / "metadata.db").is_file()
    with connect(tmp_path / name, create=False) as log:
        assert values(log, "orders") == [b"x"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a", name])


def test_closed_log_opens_what_it_needs_again(log: Log) -> None:
    """Close a log and call it: it is a handle, and no connection."""
    log.create_topic("orders")
    log.close()
    log.close()
    assert log.topics() == ["orders"]


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    "path",
    [
        "localhost:6650",
        "127.0.0.1:6650",
        "s3://bucket/log",
        "no\0good",
        "~no-such-user/log",
        "missing/log",
        "notes.txt",
        "notes.txt/log",
        "x" * 256,
        "x/" * 3000,
        "",
        5,
    ],
    ids=lambda path: repr(path)[:20] if not isinstance(path, bool) else str(path),
)
def test_odd_path_is_refused_in_our_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Any, create: bool
) -> None:
    """Connect to what is no folder, or one that a slip made: one of the log's errors, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TxnLogError) as caught:
        connect(path, create=create)
    assert caught.value.code in ("INVALID_ARGUMENT", "LOG_NOT_FOUND", "STORAGE_WRITE_FAILED")
    assert [found.name for found in tmp_path.iterdir()] == ["notes.txt"]


def test_address_instead_of_an_endpoint_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect to an address as if it were a path."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"Use endpoint='localhost:6650'"):
        connect("localhost:6650")


def test_new_log_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Make a log, and open it again: whoever looks at what is logged sees where one was made by mistake."""
    with caplog.at_level(logging.INFO, "txn_source"):
        connect(tmp_path / "log").close()
        connect(tmp_path / "log").close()
    assert told_by("client.target", caplog) == [f"made a new log at {tmp_path / 'log'}"]


LEFT = ["txnlog.json"]


def test_log_is_finished_after_a_crash_in_its_creation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the creation between each of its steps; whoever comes next makes one log of it."""
    steps = ("make_folder", "finish", "settle", "check")
    for step in steps:
        root = tmp_path / step

        def crash(_: LogRoot, *given: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(LogRoot, step, crash)
            with pytest.raises(KeyboardInterrupt):
                connect(root)
        with connect(root) as log:
            log.create_topic("orders")
        assert sorted(p.name for p in root.iterdir() if not p.name.startswith("metadata.db")) == LEFT
