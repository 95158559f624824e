"""Each metric moves when its cause happens: a real service, scraped over HTTP."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.watched import Figures, Watched
from tests.log.reading import eventually
from tests.log.sites import ClockedTarget, ManualClock, service_over
from txn_source import Log, StaleEpochError, StorageWriteError, TopicExistsError, TopicNotFoundError, connect
from txn_source.http.metric_list import COUNTER, METRICS
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.store import sqlite_file
from txn_source.metadata.stub.metadata_stub import MetadataStub


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with Watched(tmp_path / "log") as made:
        yield made


@pytest.fixture
def log(watched: Watched) -> Log:
    made = watched.connect()
    made.create_topic("orders", partitions=2)
    return made


def test_every_sample_is_of_a_listed_metric_with_its_labels(watched: Watched, log: Log) -> None:
    """Compare what a scrape has with the list: names, kinds and labels; nothing else but the process's own."""
    log.create_subscription("orders", "s")
    with log.producer("orders") as producer:
        producer.send(b"a")
    watched.get("/ready")
    found = watched.scrape()
    by_sample = {name: metric for metric in METRICS.values() for name in metric.exported}
    for sample in found.samples:
        if sample.name.startswith("process_"):
            continue
        metric = by_sample[sample.name]
        assert sample.labels.keys() - {"le"} == set(metric.labels), sample
    for metric in METRICS.values():
        family = found.families.get(metric.name.removesuffix("_total") if metric.kind == COUNTER else metric.name)
        assert family is not None, metric.name
        assert (family.type, family.documentation) == (metric.kind, metric.text)


def test_room_on_the_disks_of_the_log_is_told(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Look at the root and the SQLite file; a disk that hasn't answered for a minute is left out."""
    disks, size = watched.monitoring._disks, shutil.disk_usage(tmp_path).total
    disks.stop()
    for place in ("root", "database"):
        disks.look(place, tmp_path)
        found = watched.scrape()
        assert found.one("txnlog_disk_size_bytes", place=place) == size
        assert 0 < found.one("txnlog_disk_free_bytes", place=place) <= size
    disks.look("root", tmp_path / "unmounted")  # no error, and no figure
    monkeypatch.setattr("txn_source.http.disks._STALE_S", -1.0)
    assert watched.scrape().all("txnlog_disk_free_bytes") == []


def test_calls_are_counted_by_outcome(watched: Watched, log: Log) -> None:
    """Ask for a topic that is there, and for one that isn't."""
    before = watched.scrape()
    log.stats("orders")
    with pytest.raises(TopicNotFoundError):
        log.stats("nothing")
    after = watched.scrape()

    def grown(name: str, **labels: str) -> float:
        return after.one(name, **labels) - before.one(name, **labels)

    assert grown("txnlog_calls_total", call="GetView", code="OK") == 1
    assert grown("txnlog_calls_total", call="GetView", code="TOPIC_NOT_FOUND") == 1
    assert grown("txnlog_call_seconds_count", call="GetView") == 2
    assert grown("txnlog_call_seconds_bucket", call="GetView", le="30.0") == 2
    assert grown("txnlog_database_seconds_count", kind="read") >= 2


def test_writes_are_counted_whoever_makes_them(watched: Watched, log: Log) -> None:
    """Write through the service and beside it: entries are those of the service, messages all."""
    before = watched.scrape()
    with log.producer("orders") as producer:
        for _ in range(3):
            producer.send(b"1234")
        producer.flush()
        assert watched.scrape().one("txnlog_active_producers") == 1
    txn = log.begin_transaction()
    with log.producer("orders") as producer:
        producer.send(b"5678", txn=txn)
    txn.commit()
    after = watched.scrape()
    assert after.one("txnlog_appended_messages_total") - before.one("txnlog_appended_messages_total") == 4
    assert after.one("txnlog_appended_entries_total") >= 2
    assert after.one("txnlog_writes_total", code="OK") >= 2
    assert after.one("txnlog_topic_messages", topic="orders") == after.one("txnlog_messages") == 4
    assert after.one("txnlog_topic_appended_messages_total", topic="orders") == 4
    assert after.one("txnlog_appended_bytes_total") == after.one("txnlog_topic_bytes", topic="orders") > 16
    assert after.one("txnlog_topic_last_append_timestamp_seconds", topic="orders") > 1.7e9
    assert (after.one("txnlog_topics"), after.one("txnlog_partitions")) == (1, 2)


def test_what_was_appended_does_not_go_down_with_a_topic(watched: Watched, log: Log) -> None:
    """Delete a topic: of the log as a whole a counter must not fall, or it looks like a restart."""
    assert watched.scrape().one("txnlog_appended_messages_total") == 0
    with log.producer("orders") as producer:
        producer.send(b"a")
    assert watched.scrape().one("txnlog_appended_messages_total") == 1
    log.delete_topic("orders")
    log.create_topic("bills")
    with log.producer("bills") as producer:
        producer.send(b"b")
    found = watched.scrape()
    assert found.one("txnlog_appended_messages_total") == 2
    assert found.one("txnlog_messages") == 1


def test_what_was_appended_begins_at_nothing_after_a_restart(tmp_path: Path) -> None:
    """Delete a topic and start the service again: a total that fell to what is left would look like so many appends."""
    with Watched(tmp_path / "log") as watched:
        log = watched.connect()
        for topic, count in (("orders", 3), ("bills", 2)):
            log.create_topic(topic)
            with log.producer(topic) as producer:
                for _ in range(count):
                    producer.send(b"a")
        log.delete_topic("bills")
    with Watched(tmp_path / "log") as watched:
        found = watched.scrape()
        assert found.one("txnlog_appended_messages_total") == found.one("txnlog_appended_bytes_total") == 0
        assert found.one("txnlog_topic_appended_messages_total", topic="orders") == 3
        with watched.connect().producer("orders") as producer:
            producer.send(b"a")
        assert watched.scrape().one("txnlog_appended_messages_total") == 1


def test_transactions_that_time_out_are_counted_once(watched: Watched, log: Log) -> None:
    """Leave two to their timeout, abort one: who ends them, and how often it is looked for, changes no count."""
    for _ in range(2):
        log.metadata.begin_transaction(200)
    ended = log.begin_transaction()
    assert ended.id is not None
    ended.abort()
    eventually(lambda: not log.transactions())
    assert watched.scrape().one("txnlog_transactions_timed_out_total") == 2
    log.stats("orders")
    watched.service.maintain()
    assert watched.scrape().one("txnlog_transactions_timed_out_total") == 2


def test_timeouts_count_once_they_are_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse the write that finds one past its timeout: it is aborted and counts. Fail the commit: it does neither."""
    clock, counts = ManualClock(), list[int]()
    with connect(tmp_path / "log") as log:
        log.create_topic("orders")
    service = service_over(tmp_path / "log", clock)
    service.observe(lambda *_: None, counts.append)
    stub = MetadataStub(InProcessTransport(service))
    monkeypatch.setattr(ClockedTarget, "open", lambda _: (stub, str(tmp_path / "log")))
    with Log(ClockedTarget(tmp_path / "log", clock)) as log:
        assert [log.begin_transaction(timeout=10).id for _ in range(3)]
        clock.advance(11)

        def full(*_: Any) -> None:
            raise StorageWriteError("The disk is full.", "Free some space.")

        with monkeypatch.context() as patched:
            patched.setattr(sqlite_file.SqliteFile, "_commit", full)
            with pytest.raises(StorageWriteError):
                log.create_topic("bills")
        assert counts == []
        with pytest.raises(TopicExistsError):
            log.create_topic("orders")
        assert counts == [3]
        log.create_topic("bills")
        assert (counts, log.transactions()) == ([3], [])


def test_a_hanging_transaction_shows_what_it_holds_back(watched: Watched, log: Log) -> None:
    """Leave a transaction open, write behind it: held-back messages and seconds grow, until it is aborted."""
    log.create_subscription("orders", "committed")
    log.create_subscription("orders", "all", isolation_level="read_uncommitted")
    txn = log.begin_transaction()
    with log.producer("orders") as producer:
        producer.send(b"before", partition=0)
        producer.flush()
        producer.send(b"in it", txn=txn, partition=0)
        producer.flush()
        producer.send(b"behind", partition=0)
        producer.send(b"elsewhere", partition=1)
    found = watched.scrape()
    for name in ("txnlog_held_back_messages", "txnlog_topic_held_back_messages"):
        assert found.one(name) == 2
    for name in ("held_back_seconds", "topic_held_back_seconds", "topic_oldest_open_transaction_seconds"):
        assert found.one(f"txnlog_{name}") > 0
    assert found.one("txnlog_held_back_bytes") == found.one("txnlog_topic_held_back_bytes") > 0
    assert (found.one("txnlog_open_transactions"), found.one("txnlog_transactions_begun_total")) == (1, 1)
    assert found.one("txnlog_oldest_open_transaction_seconds") > 0
    bounds = {labels["bound"]: value for labels, value in found.all("txnlog_topic_bound_messages")}
    assert bounds == {"log_start": 0, "last_stable": 2, "high_watermark": 4, "log_end": 4}
    assert found.one("txnlog_subscription_backlog_messages", subscription="committed") == 2
    assert found.one("txnlog_subscription_backlog_messages", subscription="all") == 4
    log.abort_transaction(txn.id)
    found = watched.scrape()
    assert [found.one(f"txnlog_{name}") for name in ("held_back_messages", "held_back_seconds")] == [0, 0]
    assert (found.one("txnlog_open_transactions"), found.one("txnlog_transactions_ended_total")) == (0, 1)
    assert found.one("txnlog_subscription_backlog_messages", subscription="committed") == 3


def test_backlog_consumers_and_epochs_of_subscriptions(watched: Watched, log: Log) -> None:
    """Receive without acknowledging, acknowledge, seek, then acknowledge what came before the seek."""
    with log.producer("orders") as producer:
        for _ in range(4):
            producer.send(b"a", partition=0)
    with log.subscribe("orders", "s", initial_position="earliest") as consumer:
        first, second = consumer.receive(timeout=30), consumer.receive(timeout=30)
        assert first is not None
        assert second is not None
        found = watched.scrape()
        labels = {"topic": "orders", "subscription": "s", "level": "read_committed"}
        assert found.one("txnlog_subscription_backlog_messages", **labels) == 4
        assert found.one("txnlog_subscription_backlog_seconds", **labels) > 0
        assert found.one("txnlog_subscription_consumers", **labels) == 1
        assert (found.one("txnlog_connected_consumers"), found.one("txnlog_consumers", lease="running")) == (1, 1)
        assert found.one("txnlog_unacknowledged_messages") >= 2
        consumer.acknowledge(first)
        eventually(lambda: watched.scrape().one("txnlog_subscription_backlog_messages", **labels) == 3)
    log.seek("orders", "s", "earliest")
    found = watched.scrape()
    assert found.one("txnlog_subscription_epoch", **labels) == 1
    assert found.one("txnlog_subscription_backlog_messages", **labels) == 4
    assert found.one("txnlog_backlog_messages", level="read_committed") == 4
    assert found.one("txnlog_subscriptions", level="read_committed") == 1
    with pytest.raises(StaleEpochError):
        log.seek("orders", "s", "earliest", epoch=1)
    assert watched.scrape().one("txnlog_calls_total", call="SeekSubscription", code="STALE_EPOCH") == 1


def test_readers_have_no_series_of_their_own(watched: Watched, log: Log) -> None:
    """A reader's subscription has a random name: connect one, and look for it."""
    with log.reader("orders", start="earliest"):
        found = watched.scrape()
    assert found.one("txnlog_connected_consumers") == 1
    assert found.all("txnlog_subscription_epoch") == []
    assert found.one("txnlog_subscriptions", level="read_committed") == 0


def test_topics_with_series_of_their_own_are_bounded(tmp_path: Path) -> None:
    """Allow two of five: those that hold back, or keep, the most are shown, the totals count all."""
    with Watched(tmp_path / "log", max_topics=2) as watched:
        log = watched.connect()
        for index in range(5):
            log.create_topic(f"t{index}")
            log.create_subscription(f"t{index}", "s")
        for topic, count in (("t3", 5), ("t1", 2), ("t2", 1)):
            with log.producer(topic) as producer:
                for _ in range(count):
                    producer.send(b"a")
        txn = log.begin_transaction()
        with log.producer("t4") as producer:
            producer.send(b"a", txn=txn)
        found = watched.scrape()
        assert [labels["topic"] for labels, _ in found.all("txnlog_topic_messages")] == ["t4", "t3"]
        assert [labels["topic"] for labels, _ in found.all("txnlog_subscription_epoch")] == ["t3", "t1"]
        assert (found.one("txnlog_topics_left_out"), found.one("txnlog_subscriptions_left_out")) == (3, 3)
        assert (found.one("txnlog_topics"), found.one("txnlog_messages")) == (5, 9)


def test_figures_that_are_too_old_are_not_shown(watched: Watched, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a minute pass without a look: a frozen figure would look like a true one."""
    assert watched.scrape().one("txnlog_topics") == 1
    monkeypatch.setattr("txn_source.http.log_metrics._STALE_S", 0.0)
    found = watched.scrape(refresh=False)
    assert found.all("txnlog_topics") == []
    assert found.one("txnlog_calls_total", call="CreateTopic") == 1


def test_offloads_under_way_have_an_age(watched: Watched, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scrape in the middle of an offload, and after it."""
    with log.producer("orders") as producer:
        producer.send(b"a", partition=0)
    log.roll_ledger("orders")
    seen = []
    log.offload("orders", progress=lambda ledger: seen.append(watched.scrape()))
    complete = log.metadata.complete_offload

    def looked(*arguments: Any) -> bool:
        seen.append(watched.scrape())
        return complete(*arguments)

    with log.producer("orders") as producer:
        producer.send(b"b", partition=0)
    log.roll_ledger("orders")
    monkeypatch.setattr(log.metadata, "complete_offload", looked)
    log.offload("orders")
    [during] = [found for found in seen if found.one("txnlog_offloads_under_way")]
    assert during.one("txnlog_oldest_offload_seconds") > 0
    found = watched.scrape()
    assert [found.one(f"txnlog_{name}") for name in ("offloads_under_way", "oldest_offload_seconds")] == [0, 0]
    assert found.one("txnlog_calls_total", call="CompleteOffload", code="OK") == 2


def test_calls_succeed_that_can_not_be_counted(
    watched: Watched, log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Break the counting: what was written is written, and its producer is told so."""

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(watched.monitoring.observer, "called", fail)
    with log.producer("orders") as producer:
        producer.send(b"a")
    assert log.scan("orders").read_all().num_rows == 1
    assert "wasn't counted" in caplog.text


def test_scrapes_ask_the_database_nothing(watched: Watched, log: Log) -> None:
    """Scrape twice without a refresh: not one transaction of the database comes of it."""

    def reads(found: Figures) -> float:
        return found.one("txnlog_database_seconds_count", kind="read")

    watched.server.stop()  # whose maintenance would look every second
    assert reads(watched.scrape(refresh=False)) == reads(watched.scrape(refresh=False))
