"""Tables about a log say what its other calls say, typed for queries, each as of one moment."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import duckdb
import pytest

from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, send_each
from tests.log.sites import ManualClock
from txn_source import InvalidArgumentError, Log, Position, TopicNotFoundError
from txn_source.metadata.store import log_tables
from txn_source.storage.log_tables import LOG_TABLES


@pytest.fixture
def busy(clocked_log: Log, clock: ManualClock) -> Log:
    """Two topics: ended and open transactions, an offloaded ledger, one without a hot copy, and subscriptions."""
    log = clocked_log
    log.create_topic("orders", partitions=2)
    log.create_topic("tenant/space/bills")
    with log.producer("orders", name="till", batching=BY_HAND) as producer:
        for end in ("commit", "abort"):
            txn = log.begin_transaction(60)
            for partition in (0, 1):
                send_each(producer, [b"a", b"b"], partition=partition, txn=txn)
            getattr(txn, end)()
        log.roll_ledger("orders")
        log.offload("orders")
        log.delete_hot("orders")
        txn = log.begin_transaction(800)
        send_each(producer, [b"open"], partition=1, txn=txn)
        send_each(producer, [b"waits", b"too"], partition=1)
    log.begin_transaction(800).id  # noqa: B018 - it begins when its id is asked for
    log.subscribe("orders", "billing", initial_position="earliest").close()
    clock.advance(5)
    return log


def rows(log: Log, table: str, topic: str | None = None) -> list[dict[str, Any]]:
    return log.metadata_table(table, topic).to_pylist()  # type: ignore[no-any-return]


def at(position: Position | None) -> dict[str, int] | None:
    return None if position is None else {"ledger_id": position.ledger_id, "entry_id": position.entry_id}


def test_every_table_has_its_columns_of_all_topics_and_of_one(busy: Log) -> None:
    for name, schema in LOG_TABLES.items():
        whole, some = busy.metadata_table(name), busy.metadata_table(name.upper(), "orders")
        assert whole.schema == some.schema == schema
        assert set(some["topic"].to_pylist()) == {"orders"}
        assert some.num_rows < whole.num_rows or name == "subscriptions"
        assert busy.metadata_table(name, "tenant/space/bills").num_rows == (name in ("partitions", "ledgers"))


def test_partitions_are_as_the_stats_say(busy: Log) -> None:
    for row, stats in zip(rows(busy, "partitions", "orders"), busy.stats("orders").partitions, strict=True):
        for bound in ("log_start", "last_stable", "high_watermark", "log_end"):
            assert row[bound] == at(getattr(stats, bound))
        assert (row["messages"], row["bytes"], row["ledgers"]) == (stats.messages, stats.bytes, len(stats.ledgers))
        of = f"orders-partition-{stats.partition}"
        visible = {level: busy.count(of, level, start=stats.last_stable) for level in (COMMITTED, UNCOMMITTED)}
        assert visible == {COMMITTED: 0, UNCOMMITTED: row["held_back_messages"]}
        assert isinstance(row["last_publish_time"], datetime)
    assert [row["held_back_messages"] for row in rows(busy, "partitions")] == [0, 3, 0]
    assert rows(busy, "partitions")[2] | {"last_publish_time": None, "bytes": 0} == rows(busy, "partitions")[2]


def test_ledgers_are_as_the_stats_say(busy: Log) -> None:
    found = rows(busy, "ledgers", "orders")
    known = [(p.partition, ledger) for p in busy.stats("orders").partitions for ledger in p.ledgers]
    for row, (partition, ledger) in zip(found, known, strict=True):
        assert row["partition"] == partition
        for name in ("ledger_id", "entries", "messages", "bytes", "offloaded_at"):
            assert row[name] == getattr(ledger, name)
        tiers = {str(tier) for tier in ledger.tiers}
        assert (row["open"], row["hot"], row["tiered"]) == (
            not ledger.closed, "bookkeeper" in tiers, "tiered" in tiers,
        )  # fmt: skip
        assert (row["object_uri"] is not None) == (row["object_bytes"] is not None) == row["tiered"]
        assert (row["closed_at"] is None) == row["open"]
        assert (row["hot_deleted_at"] is None) == row["hot"]


def test_subscriptions_are_as_the_stats_say(busy: Log) -> None:
    stats = busy.stats("orders").subscriptions["billing"]
    found = rows(busy, "subscriptions")
    assert [row["backlog"] for row in found] == [p.backlog for p in stats.partitions] == [2, 2]
    holder = busy.transactions("open", "orders")[0].id
    assert [row["held_back_by"] for row in found] == [[], [str(holder)]]
    assert {(row["subscription"], row["type"], row["isolation_level"], row["epoch"]) for row in found} == {
        ("billing", "exclusive", COMMITTED, 0)
    }
    with busy.subscribe("orders", "billing") as consumer:
        first = consumer.receive(10)
        assert first is not None
        consumer.acknowledge(first)
        eventually = rows(busy, "subscriptions")
        assert [row["consumers"] for row in eventually] == [1, 1]
    assert sorted(row["backlog"] for row in rows(busy, "subscriptions")) == [1, 2]


def test_transactions_say_who_holds_readers_back(busy: Log) -> None:
    found = {row["txn_id"]: row for row in rows(busy, "transactions") if row["state"] == "open"}
    for info in busy.transactions("open"):
        row = found.pop(str(info.id))
        assert (row["age_seconds"], row["timeout_seconds"]) == (info.age, info.timeout)
        assert (info.age, info.timeout) == (pytest.approx(5, abs=1), 800)  # the client measures until its first call
        assert (row["deadline"] - row["began_at"]).total_seconds() == 800
        assert row["producers"] == list(info.producers)
        assert row["held_back_messages"] == info.held_back_messages
        assert row["topic"] == (info.partitions[0].topic if info.partitions else None)
    assert not found
    database = duckdb.connect()
    database.register("txns", busy.metadata_table("transactions", "orders"))
    one = database.sql(
        "SELECT topic, partition, producers[1], held_back_messages, first_position.entry_id FROM txns"
        " WHERE state = 'open' AND held_back_messages > 0 ORDER BY age_seconds DESC LIMIT 1"
    )
    assert one.fetchall() == [("orders", 1, "till", 3, 0)]
    ended = [row for row in rows(busy, "transactions") if row["state"] != "open"]
    assert {(row["state"], row["end_reason"], row["messages"]) for row in ended} == {
        ("committed", "client", 2), ("aborted", "client", 2),
    }  # fmt: skip
    assert all(row["marker_position"] and row["ended_at"] and not row["held_back_messages"] for row in ended)


def test_pages_are_of_one_moment(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """End a transaction, and let another one come and go, between the pages of a table."""
    monkeypatch.setattr(log_tables, "PAGE_TRANSACTIONS", 2)
    log.create_topic("orders")
    with log.producer("orders") as producer:
        for _ in range(5):
            with log.begin_transaction() as txn:
                producer.send(b"x", txn=txn)
        last = log.begin_transaction()
        producer.send(b"open", txn=last)
        producer.flush()
        before = rows(log, "transactions")
        original, calls = log.metadata.transport.call, []

        def meddling(method: str, request: Any) -> Any:
            answer = original(method, request)
            if method == "ReadTable" and not calls:
                calls.append(method)
                last.commit()
                with log.begin_transaction() as late:
                    producer.send(b"late", txn=late)
            return answer

        monkeypatch.setattr(log.metadata.transport, "call", meddling)
        found = rows(log, "transactions")
    assert calls
    assert _timeless(found) == _timeless(before)
    assert [row["state"] for row in found] == ["open", *["committed"] * 5]
    assert [row["state"] for row in rows(log, "transactions")] == ["committed"] * 7


def _timeless(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "age_seconds"} for row in found]


def test_a_table_or_topic_that_is_not_there_is_refused(log: Log) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'snapshots' is no table .*ledgers, partitions, subscriptions"):
        log.metadata_table("snapshots")
    with pytest.raises(TopicNotFoundError, match="'orders'"):
        log.metadata_table("ledgers", "orders")
    for name in LOG_TABLES:
        assert log.metadata_table(name).num_rows == 0
