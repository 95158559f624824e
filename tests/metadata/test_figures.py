"""Figures of the whole log agree with those of each topic, subscription and transaction."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.log.sites import Site
from tests.selection import mostly_long
from txn_source import Log
from txn_source.metadata.store.backlog_figures import SubscriptionFigures, subscription_figures, waiting_subscriptions
from txn_source.metadata.store.figures import Blocker, LogFigures, blockers, log_figures

TOPICS = ("orders", "bills")
LEVELS = ("read_committed", "read_uncommitted")


def figures_of(site: Site) -> tuple[LogFigures, dict[tuple[str, str], SubscriptionFigures], list[Blocker]]:
    service, now_ms = site.service(), int(time.time() * 1000)
    try:
        return service.look(
            lambda connection: (
                found := log_figures(connection, now_ms),
                {
                    (found.topics[each.topic_id].rpartition("/")[2], each.name): each
                    for each in subscription_figures(connection, found.partitions, now_ms)
                },
                blockers(connection),
            )
        )
    finally:
        service.close()


def compare(site: Site, log: Log) -> None:
    """Compare with what is asked for topic by topic."""
    found, subscriptions, blocking = figures_of(site)
    held = {}
    for topic in TOPICS:
        stats = log.stats(topic)
        [topic_id] = [key for key, name in found.topics.items() if name.endswith(f"/{topic}")]
        of_topic = [p for p in found.partitions if p.topic_id == topic_id]
        assert sum(p.messages - p.messages_trimmed for p in of_topic) == stats.messages
        assert sum(p.bytes - p.bytes_trimmed for p in of_topic) == stats.bytes
        for part, told in zip(of_topic, stats.partitions, strict=True):
            assert (part.log_start, part.last_stable) == (told.log_start.key, told.last_stable.key)
            assert part.log_end == told.log_end.key
            most = max((t.messages_held_back for t in told.ongoing_transactions), default=0)
            assert part.held_back_messages == most
            assert (part.waits_since_us is None) == (most == 0)
            for txn in told.ongoing_transactions:
                held[txn.first_position.key, part.partition_id] = txn.messages_held_back, txn.bytes_held_back
        for name, subscription in stats.subscriptions.items():
            assert subscriptions[topic, name].backlog == subscription.backlog, (topic, name)
    assert {(b.first_position, b.partition_id): (b.held_back_messages, b.held_back_bytes) for b in blocking} == held
    assert found.open_transactions == len(list(log.transactions("open")))


@pytest.mark.parametrize(("kind", "seed"), mostly_long([("embedded", 0), ("postgres", 2)], ("embedded", 0)))
def test_figures_of_the_log_agree_with_those_of_topics(kind: str, seed: int, tmp_path: Path) -> None:
    """Write, commit, abort, acknowledge, seek, roll and trim at random; compare after each few steps."""
    with Site(kind, tmp_path / "log") as site:
        _disturb(site, random.Random(seed))


def _disturb(site: Site, rng: random.Random) -> None:
    log = site.connect()
    for topic in TOPICS:
        log.create_topic(topic, partitions=2)
        for level in LEVELS:
            log.create_subscription(topic, level, isolation_level=level)
            log.create_subscription(topic, f"shared {level}", type="shared", isolation_level=level)
    producers = {topic: log.producer(topic) for topic in TOPICS}
    opened = []
    for step in range(60):
        topic = rng.choice(TOPICS)
        match rng.randrange(10):
            case 0 | 1 | 2:
                for _ in range(rng.randrange(1, 6)):
                    producers[topic].send(b"plain", partition=rng.randrange(2))
                producers[topic].flush()
            case 3:
                opened.append(log.begin_transaction())
            case 4 | 5 if opened:
                txn = rng.choice(opened)
                for _ in range(rng.randrange(1, 6)):
                    producers[topic].send(b"in a transaction", txn=txn, partition=rng.randrange(2))
                producers[topic].flush()
            case 6 if opened:
                txn = opened.pop(rng.randrange(len(opened)))
                txn.commit() if rng.random() < 0.4 else txn.abort()
            case 7:
                name = rng.choice([level if rng.random() < 0.5 else f"shared {level}" for level in LEVELS])
                with log.subscribe(
                    topic, name, type="shared" if name.startswith("shared") else "exclusive"
                ) as consumer:
                    for _ in range(rng.randrange(1, 8)):
                        message = consumer.receive(timeout=0)
                        if message is not None and rng.random() < 0.7:
                            consumer.acknowledge(message)
            case 8:
                log.roll_ledger(topic)
            case 9 if rng.random() < 0.3:
                log.trim(topic)
        if step % 10 == 9:
            compare(site, log)
    for producer in producers.values():
        producer.close()


def test_who_waits_for_whom(embedded_site: Site) -> None:
    """Leave a transaction open: its partition's read_committed subscription waits, the other doesn't."""
    log = embedded_site.connect()
    log.create_topic("orders", partitions=2)
    for level in LEVELS:
        log.create_subscription("orders", level, isolation_level=level)
    txn = log.begin_transaction()
    with log.producer("orders") as producer:
        producer.send(b"a", txn=txn, partition=1)
        producer.flush()
        producer.send(b"b", partition=1)
    found, subscriptions, blocking = figures_of(embedded_site)
    by_id = {p.partition_id: p for p in found.partitions}
    [partition_id] = {b.partition_id for b in blocking}
    waiting = waiting_subscriptions(subscriptions.values(), by_id)
    assert {key: [each.name for each in of] for key, of in waiting.items()} == {partition_id: ["read_committed"]}
    assert by_id[partition_id].index == 1
    assert [(b.held_back_messages, b.is_first) for b in blocking] == [(2, True)]
    assert {name: each.backlog for (_, name), each in subscriptions.items()} == dict(zip(LEVELS, (0, 2), strict=True))
    txn.commit()
    assert figures_of(embedded_site)[2] == []
