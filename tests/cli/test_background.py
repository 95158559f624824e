from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import txn_source
from tests.log.reading import eventually
from tests.log.sites import service_over
from txn_source.cli.background import BackgroundMaintenance
from txn_source.metadata.service.service import MetadataService
from txn_source.model.copies import Tier

LONG_S, SHORT_S = 3600.0, 0.01
Start = Callable[[MetadataService, float], BackgroundMaintenance]


class Watched:
    """A service that tells which calls came, and lets a test into one of them."""

    def __init__(self, service: MetadataService) -> None:
        self._service = service
        self.calls: list[str] = []
        self.inside: dict[str, Callable[[], object]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def call(self, name: str, request: Any) -> Any:
        self.calls.append(name)
        self.inside.get(name, lambda: None)()
        return self._service.call(name, request)


@pytest.fixture
def log(log: txn_source.Log) -> txn_source.Log:
    """A log with one topic that has three ledgers to offload."""
    log.create_topic("orders", ledger_max_entries=1, offload_after_bytes=0)
    with log.producer("orders") as producer:
        for value in ("a", "b", "c"):
            producer.send(value)
            producer.flush()
    log.roll_ledger("orders")
    return log


@pytest.fixture
def service(log: txn_source.Log, root: Path) -> Iterator[Watched]:
    """A service of its own over the log."""
    service = Watched(service_over(root))
    yield service
    service.close()


@pytest.fixture
def start(root: Path) -> Iterator[Start]:
    """Starts maintenance with an interval in seconds; it is stopped at the end."""
    started: list[BackgroundMaintenance] = []

    def begin(service: MetadataService, interval_s: float) -> BackgroundMaintenance:
        started.append(BackgroundMaintenance(service, root, interval_s))
        started[-1].start()
        return started[-1]

    yield begin
    for maintenance in started:
        assert maintenance.stop(30.0)


def offloaded(log: txn_source.Log) -> int:
    return sum(Tier.TIERED in ledger.tiers for ledger in log.stats("orders").ledgers)


def told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return what the service has logged."""
    return [record for record in caplog.records if record.name == "txnlog"]


def test_first_round_is_at_once_and_logged_in_one_line(
    start: Start, service: Any, log: txn_source.Log, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that starts catches up: start with an interval of an hour, and read the log."""
    caplog.set_level(logging.INFO)
    maintenance = start(service, LONG_S)
    eventually(lambda: bool(told(caplog)))
    assert maintenance.stop(30.0)
    assert offloaded(log) == 3
    [record] = told(caplog)
    assert record.levelname == "INFO"
    assert record.getMessage().startswith("maintenance: offloaded 3 ledgers (3 messages, ")


def test_rounds_without_work_log_nothing(start: Start, service: Any, log: txn_source.Log, caplog: Any) -> None:
    """A line a minute would hide the others: offload before, let some rounds pass, and find an empty log."""
    log.offload("orders")
    caplog.set_level(logging.INFO)
    start(service, SHORT_S)
    eventually(lambda: service.calls.count("ListTopics") > 3)
    assert told(caplog) == []


@pytest.mark.parametrize("error", [txn_source.UnavailableError("The disk is away.", "Wait."), ValueError("a bug")])
def test_failure_is_a_warning_and_the_next_round_comes(
    error: Exception, start: Start, service: Any, log: txn_source.Log, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a refusal nor a bug ends the thread: raise in two rounds, which one line tells; the third works."""
    failures = [error, error]

    def fail() -> None:
        if failures:
            raise failures.pop()

    service.inside["ListTopics"] = fail
    caplog.set_level(logging.INFO)
    start(service, SHORT_S)
    eventually(lambda: offloaded(log) == 3)
    warnings = [record.getMessage() for record in told(caplog) if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].startswith("maintenance failed and is tried again: ")
    assert str(error) in warnings[0]
    eventually(lambda: any("maintenance works again" in record.getMessage() for record in told(caplog)))


@pytest.mark.parametrize(
    ("held", "number", "done", "last"),
    [("ListEntries", 2, 1, "CompleteOffload"), ("ListDecisions", 1, 0, "AbandonOffload")],
    ids=["as good as written", "half-way"],
)
def test_stop_ends_an_offload_of_many_ledgers_early(
    held: str,
    number: int,
    done: int,
    last: str,
    start: Start,
    service: Any,
    log: txn_source.Log,
    root: Path,
    caplog: Any,
) -> None:
    """An object that is as good as written is registered, and no other begun: stop at the last question before it. An
    offload given up half-way says so, so that its object is deleted: stop while it lists a ledger's decisions."""
    caplog.set_level(logging.INFO)
    entered, gate = threading.Event(), threading.Event()

    def wait() -> None:
        if service.calls.count(held) == number:  # of entries the offload's own come first, then its reader's
            entered.set()
            assert gate.wait(30)

    service.inside[held] = wait
    maintenance = start(service, LONG_S)
    assert entered.wait(30)
    assert not maintenance.stop(0.0)
    gate.set()
    assert maintenance.stop(30.0)
    assert (offloaded(log), service.calls[-1]) == (done, last)
    assert told(caplog) == []
    log.maintain()
    assert offloaded(log) == 3
    assert len(list(root.glob("tiered/**/*.parquet"))) == 3
