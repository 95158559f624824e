"""Garbage: segment files that nothing refers to go once they are old; everything else stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.log.reading import BY_HAND, UNCOMMITTED, send_each, values
from tests.log.sites import Site
from txn_source import InvalidArgumentError, TopicNotFoundError

_DAY_S = 24 * 3600


def segments(site: Site) -> set[str]:
    return {path.relative_to(site.root).as_posix() for path in (site.root / "segments").rglob("*.arrow")}


def age(path: Path, seconds: float) -> None:
    """Make a file look as if it was last written so long ago."""
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def abandoned(site: Site, name: str, size: int, seconds: float) -> str:
    """Leave a segment file behind that was never registered."""
    path = site.root / "segments" / "1" / "0" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    age(path, seconds)
    return path.relative_to(site.root).as_posix()


def test_only_old_files_that_nothing_refers_to_are_removed(site: Site) -> None:
    """Leave old and young files behind beside old ones with committed, aborted and open messages."""
    log = site.connect()
    log.create_topic("orders", partitions=2)
    send_each(log.producer("orders"), [b"plain"])
    for end in ("commit", "abort", "roll_ledger"):
        transaction = log.begin_transaction()
        send_each(log.producer("orders"), [end.encode()], txn=transaction)
        getattr(transaction, end)() if end != "roll_ledger" else log.roll_ledger("orders")
    referenced = segments(site)
    assert len(referenced) == 4
    for path in referenced:
        age(site.root / path, 10 * _DAY_S)
    old = {abandoned(site, "old-1.arrow", 100, 2 * _DAY_S), abandoned(site, "old-2.arrow", 11, 2 * _DAY_S)}
    young = {abandoned(site, "young.arrow", 7, _DAY_S / 2)}

    found = log.collect_garbage(dry_run=True)
    assert (set(found.paths), found.bytes) == (old, 111)
    assert segments(site) == referenced | old | young
    assert log.collect_garbage() == found
    assert segments(site) == referenced | young
    assert log.collect_garbage().paths == ()
    assert sorted(values(log, "orders", UNCOMMITTED)) == [b"abort", b"commit", b"plain", b"roll_ledger"]


def test_age_of_garbage_can_be_chosen(site: Site) -> None:
    """Collect files older than a minute, then all of them."""
    log = site.connect()
    log.create_topic("orders")
    old, new = abandoned(site, "old.arrow", 1, 100), abandoned(site, "new.arrow", 1, 10)
    assert log.collect_garbage(older_than=60).paths == (old,)
    assert log.collect_garbage(older_than=0).paths == (new,)
    with pytest.raises(InvalidArgumentError, match="-1 s is not an age"):
        log.collect_garbage(older_than=-1)


def test_what_a_producer_has_not_registered_is_garbage_only_when_it_is_old(site: Site) -> None:
    """Lose the answer of a registration for good: the bytes lie there, and go with the others of their age."""
    log = site.connect()
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    transaction = log.begin_transaction()
    transaction.abort()
    producer.send(b"refused", txn=transaction.id)
    with pytest.raises(Exception, match="can't take more messages"):
        producer.flush()
    [left] = segments(site)
    assert log.collect_garbage().paths == ()
    age(site.root / left, 2 * _DAY_S)
    assert log.collect_garbage().paths == (left,)


def test_deleted_topic_takes_its_folder_along(site: Site) -> None:
    """Delete one of two topics: its files go at once, the other's stay."""
    log = site.connect()
    for topic in ("orders", "bills"):
        log.create_topic(topic, partitions=2)
        for partition in (0, 1):
            send_each(log.producer(topic), [b"x"], partition=partition)
    assert len(segments(site)) == 4
    log.delete_topic("orders")
    assert sorted(path.name for path in (site.root / "segments").iterdir()) == ["2"]
    assert values(log, "bills") == [b"x", b"x"]


def test_files_of_a_deleted_topic_that_were_left_are_garbage(site: Site) -> None:
    """Put a file back into the folder of a deleted topic, as a producer that went on would."""
    log = site.connect()
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    log.delete_topic("orders")
    producer.send(b"late")
    with pytest.raises(TopicNotFoundError):
        producer.flush()
    [left] = segments(site)
    assert log.collect_garbage(older_than=0).paths == (left,)
    assert segments(site) == set()
