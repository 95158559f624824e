"""Messages as the console shows them: every one once, at either level, whatever they are made of."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.console.asked import Asked
from tests.selection import for_each, mostly_long
from txn_source import Log
from txn_source.client.reading import batch_assembly
from txn_source.console import browsing
from txn_source.console.api import messages as api

pytestmark = pytest.mark.xdist_group("console_messages")

GONE = "hot_deleted_at_ms IS NOT NULL"


def fill(log: Log, *, count: int = 60) -> None:
    """Make a topic of three partitions with committed, aborted and open transactions, hot and tiered ledgers."""
    log.create_topic("t", partitions=3)
    with log.producer("t") as producer:
        for number in range(count):
            producer.send(b"v", key=f"k{number}".encode(), partition=number % 3)
            if number % 23 == 0:
                producer.flush()
            if number % 10 == 0:
                txn = log.begin_transaction()
                for each in range(3):
                    producer.send(b"in a transaction", key=f"t{number}.{each}".encode(), partition=each, txn=txn)
                producer.flush()
                if number % 20 == 0:
                    txn.abort()
                else:
                    txn.commit()
            if number == count // 2:
                producer.flush()
                log.roll_ledger("t")
                log.offload("t")
                log.roll_ledger("t")
        producer.send(b"open", key=b"open", partition=1, txn=log.begin_transaction(timeout=900))
        producer.flush()
        for number in range(10):
            producer.send(b"behind", key=f"b{number}".encode(), partition=number % 3)


def all_pages(asked: Asked, **query: Any) -> list[dict[str, Any]]:
    """Return the rows of all pages in order."""
    rows: list[dict[str, Any]] = []
    answer = asked.get("messages", **query).json
    while True:
        assert len(answer["rows"]) <= query["limit"]
        rows += answer["rows"]
        if answer["done"]:
            return rows
        answer = asked.get("messages", **query | {"cursor": answer["next"]}).json


def places(rows: list[dict[str, Any]]) -> list[tuple[int, str, int]]:
    return [(row["partition"], row["position"], row["index"]) for row in rows]


def scanned(log: Log, level: str) -> list[tuple[int, str, int]]:
    """Return the places of all messages that a level shows."""
    names = ["__partition", "__ledger_id", "__entry_id", "__batch_index"]
    rows = log.scan("t", level, columns=names, consistent_cut=False).read_all().to_pylist()
    return [(r["__partition"], f"{r['__ledger_id']}:{r['__entry_id']}", r["__batch_index"]) for r in rows]


@pytest.fixture(scope="module")
def filled(shared: Asked) -> Asked:
    """A log with messages of all kinds, which its tests leave as it is."""
    fill(shared.log)
    return shared


@pytest.mark.parametrize("level", mostly_long(["read_committed", "read_uncommitted"], "read_uncommitted"))
@pytest.mark.parametrize("start", ["latest", pytest.param("earliest", marks=pytest.mark.long)])
def test_pages_have_each_message_once(filled: Asked, level: str, start: str) -> None:
    """Page through a topic from both ends: what a scan reads, each once, by the time of publishing."""
    rows = all_pages(filled, topic="t", level=level, limit=4, from_=start)
    assert sorted(places(rows)) == sorted(scanned(filled.log, level))
    times = [row["publish_ms"] for row in rows]
    assert times == sorted(times, reverse=start == "latest")
    of_one = places(all_pages(filled, topic="t", level=level, limit=4, from_=start, partition=1))
    assert sorted(of_one) == [place for place in sorted(places(rows)) if place[0] == 1]


def test_a_partition_from_a_place_on(filled: Asked) -> None:
    """Begin at a message, at an entry, and at a time."""
    whole = all_pages(filled, topic="t", partition=0, limit=500, from_="earliest")
    for at in (0, 5, len(whole) - 1):
        row = whole[at]
        place = f"{row['position']}:{row['index']}"
        assert places(filled.get("messages", topic="t", partition=0, from_=place).rows)[0] == places([row])[0]
        found = filled.get("messages", topic="t", partition=0, from_=f"@{row['publish_ms']}").rows
        assert found[0]["publish_ms"] == row["publish_ms"]
        assert filled.get("messages", topic="t", partition=0, full=1, position=place).rows == [row]
    assert filled.get("messages", topic="t", from_="1:0").status == 400
    assert filled.get("messages", topic="t", partition=0, from_="1:0:0:0").status == 400
    assert filled.get("messages", topic="t", partition=3).status == 404
    assert filled.get("messages", topic="t", partition=0, full=1, position="1:999").status == 400
    assert filled.get("messages", topic="t", from_="@99999999999999").json["done"]


def test_statuses_at_read_uncommitted(filled: Asked) -> None:
    """Look at what became of each message's transaction."""
    rows = all_pages(filled, topic="t", level="read_uncommitted", limit=500)
    by_key = {row["key"]: row["status"] for row in rows}
    assert (by_key["open"], by_key["t0.1"], by_key["t10.2"], by_key["b0"]) == ("open", "aborted", "committed", None)


@pytest.mark.parametrize(
    ("level", "start"),
    mostly_long([("read_committed", "latest"), ("read_uncommitted", "earliest")], ("read_uncommitted", "earliest")),
)
def test_a_search_by_key(filled: Asked, level: str, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search for keys with next to no budget: it goes on where it was, and says how far it is."""
    monkeypatch.setattr(browsing, "READ_MESSAGES", 1)
    monkeypatch.setattr(browsing, "_SEARCHED_AT_ONCE", 1)
    total = len(scanned(filled.log, level))
    for key, found in (("k41", 1), ("t20.0", level == "read_uncommitted"), ("nothing", 0)):
        query = {"topic": "t", "level": level, "key": key, "from_": start}
        rows, answer, searched = [], filled.get("messages", **query).json, [0]
        while True:
            rows += answer["rows"]
            searched.append(answer["searched_messages"])
            assert answer["to_search"] == total
            if answer["done"]:
                break
            answer = filled.get("messages", **query, cursor=answer["next"]).json
        assert [row["key"] for row in rows] == [key] * found
        assert searched == sorted(searched)
        assert searched[-1] == total
        assert len(searched) > 3


def test_a_search_ends_at_its_limit_and_goes_on(asked: Asked) -> None:
    """Search for a key that many messages have: page after page, each once."""
    asked.log.create_topic("t", partitions=2)
    with asked.log.producer("t") as producer:
        for number in range(30):
            producer.send(f"{number}".encode(), key=b"same" if number % 3 else b"\xff\x00", partition=number % 2)
    for start in ("earliest", "latest"):
        rows = all_pages(asked, topic="t", key="same", limit=3, from_=start)
        assert sorted(int(row["value"]) for row in rows) == [number for number in range(30) if number % 3]
        found = [int(row["value"]) for row in rows if row["partition"] == 1]
        assert found == sorted(found, reverse=start == "latest")
    rows = all_pages(asked, topic="t", key_hex="ff00", limit=4)
    assert {str(row["key"]) for row in rows} == {str({"hex": "ff00"})}
    assert len(rows) == 10
    assert asked.get("messages", topic="t", key_hex="f").status == 400
    assert asked.get("messages", topic="t", key="a" * 3000).status == 400


def test_entries_that_left_the_database_are_shown(asked: Asked) -> None:
    """Browse a ledger of which only the object is left, from both ends."""
    fill(asked.log)
    asked.log.delete_hot("t")
    asked.service._database.write(
        lambda connection: [
            connection.exec_driver_sql(statement).close()
            for statement in (
                f"DELETE FROM entries WHERE position >> 32 IN (SELECT ledger_id FROM ledgers WHERE {GONE})",
                "DELETE FROM entry_pages",
                f"UPDATE ledgers SET purged = 1 WHERE {GONE}",
            )
        ]
    )
    for start in ("earliest", "latest"):
        rows = all_pages(asked, topic="t", limit=9, from_=start)
        assert sorted(places(rows)) == sorted(scanned(asked.log, "read_committed"))


def test_many_aborted_messages_are_passed_over(asked: Asked) -> None:
    """Look from the end of a topic whose last messages are all aborted."""
    asked.log.create_topic("t")
    with asked.log.producer("t") as producer:
        producer.send(b"first")
        producer.flush()
        txn = asked.log.begin_transaction()
        for _ in range(100):
            producer.send(b"aborted", txn=txn)
            producer.flush()
        txn.abort()
    assert [row["value"] for row in all_pages(asked, topic="t", limit=2)] == ["first"]


VALUES = {
    "i": (pa.int64(), (1 << 53) + 1, str((1 << 53) + 1)),
    "n": (pa.int64(), -5, -5),
    "f": (pa.float64(), math.nan, "nan"),
    "inf": (pa.float32(), -math.inf, "-inf"),
    "d": (pa.decimal128(10, 2), Decimal("1.50"), "1.50"),
    "t": (pa.timestamp("us", tz="UTC"), datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    "age": (pa.duration("us"), timedelta(seconds=1.5), 1.5),
    "b": (pa.binary(), b"\xff", {"hex": "ff"}),
    "s": (pa.string(), "<script>\u202e", "<script>\u202e"),
    "l": (pa.list_(pa.int64()), [1, None], [1, None]),
    "r": (pa.struct([("x", pa.binary())]), {"x": b"\xfe"}, {"x": {"hex": "fe"}}),
    "m": (pa.map_(pa.string(), pa.int64()), {"a": 1}, {"a": 1}),
    "none": (pa.string(), None, None),
    "flag": (pa.bool_(), True, True),
}


def test_values_of_all_types(asked: Asked) -> None:
    """Write a value of each type: each has a form that JSON and a browser can hold exactly."""
    asked.log.create_topic("t", schema=pa.schema([(name, kind) for name, (kind, *_) in VALUES.items()]))
    with asked.log.producer("t") as producer:
        producer.send({name: value for name, (_, value, _) in VALUES.items()}, properties={"p": "q"})
    [row] = asked.get("messages", topic="t").rows
    assert row["value"] == {name: shown for name, (*_, shown) in VALUES.items()}
    assert (row["key"], row["properties"], row["shortened"]) == (None, {"p": "q"}, False)
    for key in ("-5", "<script>\u202e", "true", "1.50"):
        assert len(asked.get("messages", topic="t", key=key).rows) == 1, key
    assert asked.get("messages", topic="t", key="nothing").rows == []


def test_long_values_are_shortened(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Show long values by their beginnings, whole where the message is asked for alone, unless it is gigantic."""
    asked.log.create_topic("t")
    with asked.log.producer("t") as producer:
        for value in (b"a" * 2_000, b"a" * 2_001, "é".encode() * 1_001, b"\xff" * 3_000, b"a" * (5 << 20)):
            producer.send(value)
    rows = asked.get("messages", topic="t", from_="earliest").rows
    assert [row["shortened"] for row in rows] == [False, True, True, True, True]
    assert [row["bytes"] for row in rows] == [2_000, 2_001, 2_002, 3_000, 5 << 20]
    assert [len(row["value"]) for row in rows[:3]] == [2_000, 2_000, 1_000]
    assert len(rows[3]["value"]["hex"]) == 4_000
    whole = [
        asked.get("messages", topic="t", partition=0, full=1, position=f"{row['position']}:{row['index']}").rows[0]
        for row in rows
    ]
    assert [len(row["value"]) for row in whole[:3]] == [2_000, 2_001, 1_001]
    assert [row["shortened"] for row in whole] == [False, False, False, False, True]


def test_a_page_of_gigantic_messages_is_cut(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for more bytes than a request may read: a part comes from the end asked for, the rest with the next pages."""
    monkeypatch.setattr(browsing, "READ_BYTES", 3 << 18)
    monkeypatch.setattr(browsing, "_PIECE_BYTES", 1 << 18)
    monkeypatch.setattr(batch_assembly, "TARGET_BYTES", 1 << 18)
    asked.log.create_topic("t", partitions=2)
    with asked.log.producer("t") as producer:
        for number in range(24):
            producer.send(b"%03d" % number + b"x" * (1 << 18), partition=number % 2)
            producer.flush()
    for start in ("earliest", "latest"):
        first = asked.get("messages", topic="t", limit=500, from_=start).json
        assert 0 < len(first["rows"]) < 24
        ends = {"earliest": ["000", "001"], "latest": ["023", "022"]}
        assert [row["value"][:3] for row in first["rows"][:2]] == ends[start]
        rows = all_pages(asked, topic="t", limit=500, from_=start)
        assert sorted(row["value"][:3] for row in rows) == [f"{number:03}" for number in range(24)]


def test_what_is_trimmed_or_deleted_meanwhile(asked: Asked) -> None:
    """Go on with a cursor after what it points to was trimmed, and after the topic was deleted and made anew."""
    asked.log.create_topic("t")
    with asked.log.producer("t") as producer:
        for number in range(10):
            producer.send(f"{number}".encode())
            producer.flush()
            asked.log.roll_ledger("t")
    first = asked.get("messages", topic="t", limit=2, from_="earliest").json
    ledgers = asked.log.stats("t").partitions[0].ledgers
    asked.log.trim("t", before=f"{ledgers[6].ledger_id}:0")
    rows = asked.get("messages", topic="t", limit=500, cursor=first["next"]).rows
    assert [row["value"] for row in rows] == ["6", "7", "8", "9"]
    asked.log.delete_topic("t")
    assert asked.get("messages", topic="t", cursor=first["next"]).status == 404
    asked.log.create_topic("t")
    assert asked.get("messages", topic="t", cursor=first["next"]).rows == []


@for_each("cursor", ["x", "e30=", "W10=", "bnVsbA==", "W3RydWUse30sMCwwLDBd", "W3RydWUseyJhIjoiMSJ9LDAsMF0="])
def test_foreign_cursors_are_refused(filled: Asked, cursor: str) -> None:
    """Send what is no cursor."""
    answer = filled.get("messages", topic="t", cursor=cursor)
    assert (answer.status, answer.code) == (400, "INVALID_ARGUMENT")


def test_any_numbers_in_a_cursor_do_no_harm(filled: Asked) -> None:
    """Send cursors that were made up: they lead to some page of the same topic, or are refused."""
    for key in (0, 1, 1 << 40, 1 << 70, (1 << 96) - 1, 1 << 96, -1):
        for backwards in (False, True):
            cursor = api.Cursor(backwards, {0: key, 7: 5}).text()
            assert filled.get("messages", topic="t", cursor=cursor).status in (200, 400), key


def test_too_many_partitions_at_once(asked: Asked) -> None:
    """Look at a topic with more partitions than are read together: one of them can be looked at, and all searched."""
    asked.log.create_topic("t", partitions=65)
    with asked.log.producer("t") as producer:
        producer.send(b"v", key=b"k", partition=64)
    assert asked.get("messages", topic="t").status == 400
    assert len(asked.get("messages", topic="t", partition=64).rows) == 1
    assert len(all_pages(asked, topic="t", key="k", limit=5)) == 1
