"""Streams over ledgers that come late, or are trimmed behind the stream: what can be known is, and is told."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.foreign.pulsar.offload_writer import Frame, Sent, marker, single, write_ledger
from tests.foreign.pulsar.test_objects import TOPIC
from tests.foreign.pulsar.test_streams import Query
from txn_source.foreign.pulsar import trace
from txn_source.foreign.pulsar.trace import PASSED
from txn_source.model.errors import DataLossError
from txn_source.reading.limits import StreamLimits


def offload(folder: Path, ledger: int, *values: bytes, index: int | None = None) -> Path:
    """Write a ledger; ``index`` is the broker's number of its first message."""
    frames = [Frame(broker=None if index is None else (1, index + at)) for at in range(len(values))]
    entries = [single(Sent(value), frame) for value, frame in zip(values, frames, strict=True)]
    return write_ledger(folder, ledger, entries, name=uuid.UUID(int=ledger))


def trim(path: Path) -> None:
    path.unlink()
    path.with_name(f"{path.name}-index").unlink()


def write_list(folder: Path, *ledgers: tuple[int, int]) -> dict[str, str]:
    """Write a list of ledgers, with entries where they are offloaded, and return the option that names it."""
    rows: list[dict[str, Any]] = [
        {"ledgerId": ledger, "entries": entries}
        | ({"isOffloaded": True, "offloadedContextUuid": str(uuid.UUID(int=ledger))} if entries else {})
        for ledger, entries in ledgers
    ]
    path = folder.with_name("list.json")
    path.write_text(json.dumps({TOPIC: {"ledgers": rows}}))
    return {"managedLedgers": str(path)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a name that no other test has: objects have no names of their own here, and what is known is kept."""
    made = tmp_path / uuid.uuid4().hex
    made.mkdir()
    return made


def test_ledger_that_comes_late_is_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A ledger below what the query has passed fails it, after a restart too; without failing it is passed over."""
    query, careless = Query(folder), Query(folder, fail_on_data_loss=False)
    for ledger in (3, 9):
        offload(folder, ledger, b"%d" % ledger)
        assert query.run_all() == careless.run_all()
    offload(folder, 6, b"6")
    for _ in range(2):
        with pytest.raises(DataLossError, match=r"has ledger 6 now, which came when the query was at 9:1 already"):
            query.run()
    offload(folder, 12, b"12")
    assert careless.run_all() == [b"3", b"9", b"12"]
    assert "ledger 6 now" in caplog.text
    caplog.clear()
    offload(folder, 15, b"15")
    assert careless.run_all() == [b"3", b"9", b"12", b"15"]
    assert "ledger 6 now" not in caplog.text


def test_batch_that_is_replayed_leaves_out_what_came_late(folder: Path) -> None:
    """A ledger that comes between two of a batch, after it was planned, isn't in its replay, nor are its markers."""
    write_ledger(folder, 3, [single(Sent(b"t"), Frame(txn=(0, 1))), single(Sent(b"a"))])
    write_ledger(folder, 9, [marker((0, 1), commit=True), single(Sent(b"b"))])
    query = Query(folder)
    assert query.run_all() == [b"t", b"a", b"b"]
    write_ledger(folder, 6, [single(Sent(b"late")), marker((0, 1), commit=False)])
    assert query.replay() == [b"t", b"a", b"b"]


def test_older_ledger_than_the_first_is_late_too(folder: Path) -> None:
    """One that comes below the first one was passed over as well, though the query began above it."""
    query = Query(folder)
    offload(folder, 5, b"5")
    query.run_all()
    offload(folder, 2, b"2")
    with pytest.raises(DataLossError, match="has ledger 2 now"):
        query.run()


def test_trace_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint notes the last ledgers only: one that is late by more isn't noticed."""
    monkeypatch.setattr(trace, "PASSED", 3)
    query = Query(folder)
    for ledger in range(10, 20, 2):
        offload(folder, ledger, b"x")
    query.run_all()
    offload(folder, 13, b"late")
    assert not query.run()
    offload(folder, 15, b"late")
    with pytest.raises(DataLossError, match="has ledger 15 now"):
        query.run()
    assert PASSED > 100


@pytest.mark.parametrize("numbered", [False, True])
def test_read_ledger_that_is_trimmed(folder: Path, numbered: bool) -> None:
    """All that was read is trimmed before the next ledger comes: with the broker's numbers it's known to be the next.

    Without them nobody can tell if there was one between.
    """
    query = Query(folder)
    first = offload(folder, 3, b"a", b"b", index=70 if numbered else None)
    query.run_all()
    offload(folder, 8, b"c", index=72 if numbered else None)
    trim(first)
    if numbered:
        assert query.run_all() == [b"a", b"b", b"c"]
        return
    with pytest.raises(DataLossError, match="begins at 8:0"):
        query.run()


def test_unread_ledger_that_is_trimmed_is_lost(folder: Path) -> None:
    """The broker's numbers show that there was another ledger between; so they do where a part was read only."""
    query = Query(folder)
    first = offload(folder, 3, b"a", index=70)
    query.run_all()
    trim(first)
    offload(folder, 9, b"c", index=73)
    with pytest.raises(DataLossError, match="begins at 9:0"):
        query.run()
    partly = Query(folder, limits=StreamLimits(max_messages=1))
    begun = offload(folder, 20, b"d", b"e", index=74)
    partly.run(), partly.run()
    trim(folder / f"{uuid.UUID(int=9)}-ledger-9")
    trim(begun)
    offload(folder, 22, b"f", index=76)
    with pytest.raises(DataLossError, match="begins at 22:0"):
        partly.run()


def test_list_tells_which_ledger_is_next(folder: Path) -> None:
    """With the list the next ledger is known before it is offloaded, so that trimming the one before loses nothing."""
    options = write_list(folder, (3, 2), (8, 0))
    query = Query(folder, options=options)
    first = offload(folder, 3, b"a", b"b")
    assert query.run_all() == [b"a", b"b"]
    write_list(folder, (8, 0))
    trim(first)
    other = offload(folder, 1, b"other's")  # of an offload that failed: the list doesn't have it
    assert query.run_all() == [b"a", b"b"]
    write_list(folder, (8, 1), (11, 0))
    offload(folder, 8, b"c")
    assert query.run_all() == [b"a", b"b", b"c"]
    write_list(folder, (15, 1), (16, 0))
    offload(folder, 15, b"d")
    trim(other)
    with pytest.raises(DataLossError, match="begins at 15:0"):
        query.run()


def test_topic_that_is_trimmed_wholly_is_waited_for(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A topic of which nothing is left, and of which all was read, has lost nothing: the query waits, and says so."""
    write_ledger(folder, 2, [single(Sent(b"x"))], "public/default/persistent/other")
    query = Query(folder, topics=("orders", "other"))
    first = offload(folder, 3, b"a", index=5)
    assert query.run_all() == [b"a", b"x"]
    trim(first)
    assert query.run_all() == [b"a", b"x"]
    assert "It was read to its end; the query waits for new ones" in caplog.text
    offload(folder, 7, b"b", index=6)
    assert query.run_all() == [b"a", b"x", b"b"]
    trim(folder / f"{uuid.UUID(int=7)}-ledger-7")
    assert query.run_all() == [b"a", b"x", b"b"]
    offload(folder, 11, b"d", index=9)
    with pytest.raises(DataLossError, match="begins at 11:0"):
        query.run()


def test_topic_that_vanishes_unread_is_lost(folder: Path) -> None:
    """A topic that wasn't read to its end, and of which nothing is left, is data loss."""
    write_ledger(folder, 2, [single(Sent(b"x"))], "public/default/persistent/other")
    query = Query(folder, limits=StreamLimits(max_messages=1))
    first = offload(folder, 3, b"a", b"b")
    query.run()
    trim(first)
    with pytest.raises(DataLossError, match="no topic 'orders'"):
        query.run()
