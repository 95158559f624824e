"""Opening a log: what lies at a path, what doesn't, and names that only look odd."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.log.reading import send_each, values
from txn_source import InvalidArgumentError, Log, LogNotFoundError, LogVersionError, connect


def test_new_folder_becomes_a_log_that_is_there_next_time(tmp_path: Path) -> None:
    """Connect to a path that isn't there, write, and connect again."""
    with connect(tmp_path / "log") as log:
        log.create_topic("orders")
        send_each(log.producer("orders"), [b"x"])
    with connect(str(tmp_path / "log"), create=False) as log:
        assert values(log, "orders") == [b"x"]


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
