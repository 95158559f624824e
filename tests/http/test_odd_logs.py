"""Metrics of logs that are in motion, have odd names, clocks that jump, or several services."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.http.watched import Figures, Watched
from tests.log.consuming import WAIT_S
from tests.log.sites import ClockedTarget, ManualClock, service_over
from txn_source import Log, TxnLogError, connect
from txn_source.http import log_metrics
from txn_source.http.call_metrics import CallMetrics
from txn_source.http.log_metrics import LogMetrics
from txn_source.metadata.service.service import MetadataService


def test_names_are_told_as_they_are(tmp_path: Path) -> None:
    """Name subscriptions with what Prometheus's format writes otherwise: quotes, backslashes, braces."""
    names = {'a"b', "a\\b", "a\\nb", 'ü{}=, "', "a b", "{{ x }}", "'", "\\"}
    with Watched(tmp_path / "log") as watched:
        log = watched.connect()
        log.create_topic("tenant/space/orders")
        for name in names:
            log.create_subscription("tenant/space/orders", name)
        found = watched.scrape().all("txnlog_subscription_epoch")
    assert {labels["subscription"] for labels, _ in found} == names
    assert {labels["topic"] for labels, _ in found} == {"persistent://tenant/space/orders"}


@pytest.mark.long
def test_scrapes_beside_topics_that_come_and_go(tmp_path: Path) -> None:
    """Make, write to and delete topics while figures are looked for: each look is of one moment, and no total falls."""
    with Watched(tmp_path / "log") as watched:
        done = threading.Event()

        def churn() -> None:
            log = watched.connect()
            for number in range(15):
                log.create_topic(f"t{number % 3}", partitions=2)
                with log.producer(f"t{number % 3}") as producer:
                    producer.send(b"a", partition=number % 2)
                if number >= 2:
                    log.delete_topic(f"t{(number - 2) % 3}")
            done.set()

        thread = threading.Thread(target=churn, daemon=True)
        watched.scrape()
        thread.start()
        before, looks = 0.0, 0
        while not done.is_set() or looks == 0:
            found, looks = watched.scrape(), looks + 1
            shown = found.all("txnlog_topic_messages")
            assert len(shown) == found.one("txnlog_topics")
            assert sum(value for _, value in shown) == found.one("txnlog_messages")
            assert before <= found.one("txnlog_appended_messages_total") <= 15
            before = found.one("txnlog_appended_messages_total")
            assert thread.is_alive() or done.is_set()
        thread.join()


def test_a_look_that_takes_long_takes_no_later_ones_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at a log, make a topic, and look again before the first look is over: the topic is told."""
    with connect(tmp_path / "log") as log:
        metrics = LogMetrics(service_over(tmp_path / "log"), CallMetrics())
        looked, go_on, lock = threading.Event(), threading.Event(), threading.Lock()

        class Turn:
            """Lets the first look go on once a second one comes."""

            def __enter__(self) -> None:
                if looked.is_set():
                    go_on.set()
                lock.acquire()

            def __exit__(self, *_: object) -> None:
                lock.release()

        def slow(service: MetadataService) -> log_metrics.Moment:
            found = look(service)
            if not looked.is_set():
                looked.set()
                go_on.wait(WAIT_S)
            return found

        look = log_metrics.look
        monkeypatch.setattr(log_metrics, "look", slow)
        monkeypatch.setattr(metrics, "_turn", Turn(), raising=False)
        first, second = (threading.Thread(target=metrics.refresh, daemon=True) for _ in range(2))
        first.start()
        assert looked.wait(WAIT_S)
        log.create_topic("orders")
        second.start()
        second.join(WAIT_S)
        go_on.set()
        first.join(WAIT_S)
    assert Figures(metrics.text().decode()).one("txnlog_topics") == 1


def test_a_clock_that_jumps_makes_no_figure_negative(tmp_path: Path) -> None:
    """Hold back a message and move the clock to and fro: ages follow it, and none is below 0."""
    clock = ManualClock()
    connect(tmp_path / "log").close()
    with Log(ClockedTarget(tmp_path / "log", clock)) as log:
        log.create_topic("orders")
        log.create_subscription("orders", "booking")
        with log.producer("orders") as producer:
            producer.send(b"a", txn=log.begin_transaction(timeout=600))
        metrics = LogMetrics(service_over(tmp_path / "log", clock), CallMetrics())
        ages = []
        for seconds in (60, -7200, 7230, -60):
            clock.advance(seconds)
            metrics.refresh()
            found = Figures(metrics.text().decode())
            assert [sample for sample in found.samples if sample.value < 0] == []
            assert found.one("txnlog_held_back_messages") == 1
            ages.append(round(found.one("txnlog_held_back_seconds")))
        assert ages == [60, 0, 90, 30]


def test_a_topic_that_lacks_copies_has_series_before_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allow one topic series of its own, and take a root away: the topic that nobody can read is shown."""
    monkeypatch.setattr("txn_source.storage.root_health.REST_S", 0.0)
    with Watched(tmp_path / "log", max_topics=1) as watched:
        log = watched.connect()
        log.add_root("b", tmp_path / "b")
        log.create_topic("large")
        log.create_topic("short", hot_copies="main,b")
        held = log.begin_transaction()
        with log.producer("large") as producer:
            for _ in range(5):
                producer.send(b"a", txn=held)
        (tmp_path / "b").rename(tmp_path / "away")
        waiting = log.producer("short")
        waiting.send(b"a")
        with pytest.raises(TxnLogError, match="too few copies"):
            waiting.flush()
        found = watched.scrape()
        assert found.all("txnlog_topic_short_messages") == [({"topic": "short"}, 1)]
        assert found.one("txnlog_short_messages") == 1
        # Nothing is held back by a transaction there.
        assert found.one("txnlog_topic_held_back_seconds", topic="short") == 0
        held.abort()
        (tmp_path / "away").rename(tmp_path / "b")
        waiting.flush()
