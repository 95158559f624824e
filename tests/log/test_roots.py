"""Roots: which can be added and removed, and which policies name what there is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import txn_source
from tests.log.reading import BY_HAND, send_each, values
from tests.log.roots import Roots, log, roots
from tests.selection import for_each
from txn_source import Log
from txn_source.model.errors import InvalidArgumentError, UnavailableError

__all__ = ["log", "roots"]


@for_each(
    ("policies", "why"),
    [
        ({"hot_copies": "main,d"}, "names the root 'd', and the log has none"),
        ({"hot_copies": "main,main"}, "not a list of different roots"),
        ({"hot_copies": ""}, "not a list of different roots"),
        ({"hot_copies": "main,b", "acknowledge_copies": 3}, "acknowledge_copies is 3, and hot_copies has 2"),
        ({"acknowledge_copies": 0}, "not a number of copies"),
        ({"hot_copies": None, "acknowledge_copies": 2}, "acknowledge_copies is 2, and hot_copies has 1"),
    ],
)
def test_contradictions_are_refused(log: Log, policies: dict[str, object], why: str) -> None:
    """Set what can't be, for a topic, a namespace and the broker, and for a new topic: nothing is changed."""
    for place in ({"topic": "t"}, {"namespace": "public/default"}, {}):
        if policies.get("hot_copies", "") is None and place != {"topic": "t"}:
            continue
        with pytest.raises(InvalidArgumentError, match=why):
            log.set_policies(**place, **policies)
    if "hot_copies" in policies:
        with pytest.raises(InvalidArgumentError, match=why):
            log.create_topic("new", **policies)
    assert log.policies("t")["hot_copies"].value == "main,b,c"
    assert [name.short for name in log.metadata.list_topics()] == ["t"]


def test_roots_that_cannot_be_are_refused(log: Log, roots: Roots, tmp_path: Path) -> None:
    """Add roots with names and places that are taken, or lie in each other, or are no root's."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    txn_source.connect(tmp_path / "other").close()
    for name, place, why in (
        ("main", tmp_path / "d", "own root"),
        ("B", tmp_path / "d", "not the name of a root"),
        ("b", tmp_path / "d", "There is a root 'b'"),
        ("d", roots.b, "lies in the root 'b'"),
        ("d", roots.main / "inside", "lies in the root 'main'"),
        ("d", tmp_path, "or that one in it"),
        ("d", tmp_path / "full", "has 'file' in it"),
        ("d", tmp_path / "other", "own root of a log"),
        ("d", "ftp://host/d", "no file system for ftp"),
        ("d", "s3://user:secret@bucket/d", "a user or a password"),
    ):
        with pytest.raises(InvalidArgumentError, match=why):
            log.add_root(name, place)
    assert [root.name for root in log.roots()] == ["main", "b", "c"]
    with txn_source.connect(tmp_path / "other") as other, pytest.raises(InvalidArgumentError, match="holds copies of"):
        other.add_root("b", roots.b)


def test_root_is_removed_when_nothing_needs_it(log: Log, roots: Roots) -> None:
    """Remove a root that a policy names, that has something alone, and then one that may go: its id isn't reused."""
    send_each(log.producer("t", batching=BY_HAND), [b"1"])
    with pytest.raises(InvalidArgumentError, match="hot_copies of topic 't' names the root 'c'"):
        log.remove_root("c")
    log.set_policies("t", hot_copies="c")
    log.maintain()
    log.set_policies("t", hot_copies="main,b")
    with pytest.raises(InvalidArgumentError, match="1 segments lie in the root 'c' alone"):
        log.remove_root("c")
    log.maintain()
    log.remove_root("c")
    assert values(log, "t") == [b"1"]
    with pytest.raises(InvalidArgumentError, match="no root of this log"):
        log.remove_root("c")
    with pytest.raises(InvalidArgumentError, match="own root"):
        log.remove_root("main")
    shutil.rmtree(roots.c)
    log.add_root("c", roots.c)
    assert [root.root_id for root in log.metadata.roots] == [1, 3]


def test_unmounted_root_is_not_written_to(log: Log, roots: Roots) -> None:
    """Leave an empty folder in a root's place, as a disk that isn't mounted does: nothing is written there."""
    producer = log.producer("t", batching=BY_HAND)
    roots.lose("b")
    roots.b.mkdir()
    producer.send(b"1")
    with pytest.raises(UnavailableError):
        producer.flush()
    assert list(roots.b.iterdir()) == []
    [b] = [root for root in log.roots() if root.name == "b"]
    assert (b.reachable, b.why, b.short_entries) == (False, "its txnlog-copies.json is missing", 1)
    roots.b.rmdir()
    roots.bring_back("b")
    assert len(producer.flush()) == 1
