"""What the console tells of topics, partitions and open transactions."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from tests.console.asked import Asked
from txn_source.console import snapshot
from txn_source.console.drawing import drawn
from txn_source.metadata.store.figures import PartitionFigures
from txn_source.metadata.store.strips import DrawnTransaction, Strip


def held_back(asked: Asked) -> str:
    """Make a topic of two partitions with an open transaction on the first; return its id."""
    asked.log.create_topic("t", partitions=2)
    asked.log.create_subscription("t", "waits", initial_position="earliest")
    asked.log.create_subscription("t", "sees", isolation_level="read_uncommitted", initial_position="earliest")
    with asked.log.producer("t", name="writer") as producer:
        for number in range(4):
            producer.send(b"before", partition=number % 2)
        aborted = asked.log.begin_transaction()
        producer.send(b"aborted", partition=1, txn=aborted)
        producer.flush()
        aborted.abort()
        txn = asked.log.begin_transaction()
        producer.send(b"own", partition=0, txn=txn)
        producer.flush()
        for _ in range(3):
            producer.send(b"behind", partition=0)
    return str(txn.id)


def test_an_empty_log_has_figures(asked: Asked) -> None:
    """Look at a log without topics."""
    found = asked.get("overview").json
    assert (found["topics"], found["partitions"], found["messages"], found["attention"]) == (0, 0, 0, [])
    for path in ("topics", "partitions", "blockers", "subscriptions"):
        assert asked.get(path).json["total"] == 0
    about = asked.get("about").json
    assert about["log_id"] == asked.log.metadata.log_id
    assert (about["tokens"], about["caller"], about["may"]["administer"]) == (False, None, True)


def test_who_blocks_whom(asked: Asked) -> None:
    """Hold back a partition by an open transaction: what it holds back, whose messages, who waits behind it."""
    txn = held_back(asked)
    [row] = asked.get("blockers").rows
    assert (row["txn"], row["producer"], row["topics"], row["may_abort"]) == (txn, "writer", ["t"], True)
    assert (row["held_back_messages"], row["own_messages"], row["partitions_total"]) == (4, 1, 1)
    [part] = row["partitions"]
    assert (part["topic"], part["partition"], part["held_back_messages"], part["is_first"]) == ("t", 0, 4, True)
    assert row["subscriptions"] == [{"topic": "t", "name": "waits", "waiting_messages": 4}]
    found = asked.get("overview").json
    assert (found["open_transactions"], found["held_back_messages"], found["backlog"]) == (1, 4, 4 + 9)


def test_lists_are_not_sorted_by_what_has_no_order(asked: Asked) -> None:
    """Sort by columns that have parts, one of them absent in the first row."""
    held_back(asked)
    assert asked.get("partitions", sort="partition", descending=1).rows[0]["blocker"] is None
    for path, by in (("partitions", "blocker"), ("blockers", "producers"), ("blockers", "partitions")):
        assert asked.get(path, sort=by).status == 400


def test_an_old_transaction_asks_for_attention(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time be later: the transaction that others wait for is what somebody should look at first."""
    held_back(asked)
    began_ms = asked.get("blockers").rows[0]["started_ms"]
    monkeypatch.setattr(type(asked.service), "now_ms", lambda _: began_ms + 59_000)
    [finding] = asked.get("overview").json["attention"]
    assert (finding["severity"], finding["code"]) == ("warning", "TRANSACTION_HOLDS_BACK")
    monkeypatch.setattr(type(asked.service), "now_ms", lambda _: began_ms + 61_000)
    [finding] = asked.get("overview").json["attention"]
    assert finding["severity"] == "critical"
    assert finding["link"].startswith("#/blockers")


def test_many_slow_transactions_are_told_as_the_oldest_and_how_many_more(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let five hold back messages on a partition each: three are findings of their own, two are one."""
    asked.log.create_topic("t", partitions=5)
    held = [asked.log.begin_transaction(timeout=900) for _ in range(5)]
    with asked.log.producer("t") as producer:
        for partition, txn in enumerate(held):
            producer.send(b"v", partition=partition, txn=txn)
            producer.flush()
    rows = asked.get("blockers").rows
    monkeypatch.setattr(type(asked.service), "now_ms", lambda _: rows[-1]["started_ms"] + 30_000)
    findings = asked.get("overview").json["attention"]
    links = [f"#/blockers?txn={quote(row['txn'], '')}" for row in rows[:3]]
    assert [finding["link"] for finding in findings] == [*links, "#/blockers"]
    assert findings[-1]["fact"] == "2 more transactions hold back messages."
    held.pop().abort()
    assert all("txn=" in finding["link"] for finding in asked.get("overview").json["attention"])  # one more is itself
    for txn in held:
        txn.abort()


def test_a_partition_to_scale(asked: Asked) -> None:
    """Look at the strips of both partitions: messages before each piece, the open one and the aborted one in place."""
    txn = held_back(asked)
    first, second = asked.get("partitions", topic="t", sort="partition").rows
    strip = first["strip"]
    assert (strip["from"], strip["to"], strip["stable"], strip["high"]) == (0, 6, 2, 6)
    assert strip["open"] == [{"txn": txn, "from": 2, "to": 3, "messages": 1, "is_first": True}]
    assert first["blocker"]["txn"] == txn
    assert [(x["from"], x["to"], x["messages"]) for x in second["strip"]["aborted"]] == [(2, 3, 1)]
    assert second["blocker"] is None
    [whole] = [asked.get("partition", topic="t", partition=0).json]
    assert whole["max_read"] == str(asked.log.stats("t").partitions[0].max_read_position)
    for bound in ("log_start", "last_stable", "high_watermark", "log_end"):
        assert whole[bound] == str(getattr(asked.log.stats("t").partitions[0], bound))


def test_ledgers_by_tier(asked: Asked) -> None:
    """Close, offload and trim ledgers: each one's tiers are told, the strip begins at what is left."""
    asked.log.create_topic("t")
    with asked.log.producer("t") as producer:
        for _ in range(3):
            for _ in range(5):
                producer.send(b"m")
            producer.flush()
            asked.log.roll_ledger("t")
    asked.log.offload("t")
    ledgers = asked.log.stats("t").partitions[0].ledgers
    asked.log.trim("t", before=f"{ledgers[1].ledger_id}:0")
    strip = asked.get("partition", topic="t", partition=0).json["strip"]
    assert (strip["from"], strip["to"]) == (5, 15)
    kinds = [(x["from"], x["to"], x["state"], x["hot"], x["tiered"]) for x in strip["ledgers"]]
    assert kinds == [(5, 10, "closed", True, True), (10, 15, "closed", True, True), (15, 15, "open", True, False)]
    listed = asked.get("ledgers", topic="t", partition=0).rows
    assert [row["id"] for row in listed] == [ledger.ledger_id for ledger in reversed(ledgers[1:])]
    assert asked.get("ledgers", topic="t", partition=0, offset=1, limit=1).rows == listed[1:2]


def test_entries_that_left_the_database_keep_their_place(asked: Asked) -> None:
    """Draw aborted transactions whose entries are known no more: they lie where their ledger's size says."""
    asked.log.create_topic("t")
    with asked.log.producer("t") as producer:
        for number in range(6):
            txn = asked.log.begin_transaction()
            producer.send(b"m", txn=txn)
            producer.flush()
            txn.abort() if number == 3 else txn.commit()
    before = asked.get("partition", topic="t", partition=0).json["strip"]["aborted"]
    asked.service._database.write(  # as an hour after an offload
        lambda connection: connection.exec_driver_sql("DELETE FROM entries").close()
    )
    after = asked.get("partition", topic="t", partition=0).json["strip"]["aborted"]
    assert [piece["txn"] for piece in after] == [piece["txn"] for piece in before]
    assert abs(after[0]["from"] - before[0]["from"]) <= 1


def test_many_pieces_become_few() -> None:
    """Draw a thousand aborted transactions: no more pieces than can be told apart, which stand for all of them."""
    part = PartitionFigures(1, 1, 0, 0, 0, 0, 3000, 3000, 0, 0, 0, 0, 0, 0, 3000, 0)
    aborted = tuple(DrawnTransaction(number, number * 3, number * 3 + 1, 1) for number in range(1000))
    strip = drawn(part, Strip((), 0, 0, (), False, aborted, True), None, 200)
    assert len(strip["aborted"]) == 200
    assert sum(piece["merged"] for piece in strip["aborted"]) == 1000
    assert sum(piece["messages"] for piece in strip["aborted"]) == 1000
    assert (strip["aborted"][0]["from"], strip["aborted"][-1]["to"]) == (0, 2998)
    assert strip["more_aborted"]


def test_lists_are_searched_sorted_and_paged(asked: Asked) -> None:
    """Look at a part of many topics."""
    for number in range(12):
        asked.log.create_topic(f"orders-{number:02}", partitions=1 + number % 3)
    asked.log.create_topic("persistent://a/b/other")
    asked.log.create_topic("Orders-too")
    assert [row["name"][:12] for row in asked.get("topics").rows[:2]] == ["persistent:/", "orders-00"]
    assert asked.get("topics", sort="name", search="orders").rows[-1]["name"] == "Orders-too"
    asked.log.delete_topic("Orders-too")
    whole = asked.get("topics", search="ORDERS", sort="name", descending=1).rows
    assert [row["name"] for row in whole] == [f"orders-{number:02}" for number in reversed(range(12))]
    page = asked.get("topics", search="orders", sort="partitions", descending=1, offset=2, limit=3).json
    assert page["total"] == 12
    assert [row["partitions"] for row in page["rows"]] == [3, 3, 2]
    assert asked.get("topics", sort="last_publish_ms").json["total"] == 13  # none has one


def test_rates_are_known_from_the_second_look_on(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Append between two snapshots: their difference is the rate; one snapshot is made for all who look at once."""
    monkeypatch.setattr(snapshot, "RATE_S", 0.0)
    asked.log.create_topic("t")
    assert asked.get("overview").json["rate_messages"] is None
    with asked.log.producer("t") as producer:
        for _ in range(10):
            producer.send(b"m")
    found = asked.get("overview").json
    assert found["rate_messages"] > 0
    assert asked.get("overview").json["history"]["rate_messages"][1] == found["rate_messages"]
    monkeypatch.setattr(snapshot, "FRESH_S", 1e9)
    first = asked.get("overview").json["now_ms"]
    assert [asked.ask("GET", "/api/overview").json["now_ms"] for _ in range(3)] == [first] * 3


def test_a_topic_made_a_moment_ago_is_found(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a topic and a subscription after a snapshot that is still good."""
    monkeypatch.setattr(snapshot, "FRESH_S", 1e9)
    asked.get("overview")
    asked.log.create_topic("new", schema="id bigint not null, name string")
    fields = asked.ask("GET", "/api/topic?name=new").json["schema"]
    assert fields == [
        {"name": "id", "type": "int64", "nullable": False},
        {"name": "name", "type": "string", "nullable": True},
    ]
    asked.log.create_subscription("new", "s")
    assert asked.ask("GET", "/api/subscription?topic=new&name=s").json["name"] == "s"
    assert asked.ask("GET", "/api/topic?name=gone").status == 404


def test_who_guesses_names_costs_no_snapshot(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for topics and subscriptions that aren't there: the figures of the log aren't found anew for each."""
    monkeypatch.setattr(snapshot, "FRESH_S", 1e9)
    asked.log.create_topic("t")
    asked.get("overview")
    monkeypatch.setattr(snapshot, "look", None)
    for path in ("topic?name=guessed", "messages?topic=guessed", "subscription?topic=t&name=guessed"):
        assert asked.ask("GET", f"/api/{path}").status == 404, path


def test_a_transaction_past_its_deadline_is_shown_as_ended(asked: Asked) -> None:
    """Look after a deadline: whoever looks ends it, as any reader does."""
    held_back(asked)
    asked.service._database.write(
        lambda connection: connection.exec_driver_sql("UPDATE transactions SET deadline_ms = 1 WHERE state = 0").close()
    )
    assert asked.get("blockers").rows == []
    assert asked.get("overview").json["held_back_messages"] == 0


def test_without_its_database_the_console_says_so(asked: Asked, tmp_path: Path) -> None:
    """Break the database: the page is there, its questions are answered with what is wrong."""
    asked.get("overview")
    asked.service.close_database()
    broken = tmp_path / "broken"
    for path in asked.root.glob("metadata.db*"):
        broken.write_bytes(b"no database" * 1000)
        broken.replace(path)  # the log's connections map the -shm file: to cut it short kills the process (SIGBUS)
    assert asked.ask("GET", "/").status == 200
    answer = asked.get("overview")
    assert (answer.status, answer.code) == (503, "UNAVAILABLE")
