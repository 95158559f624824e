"""Deliveries to many consumers of a topic: looked for once, and handed out in bounded steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.log.consuming import numbered, receive, subscribe
from tests.log.holding import HoldingWay, holding
from tests.log.reading import eventually, send_each
from tests.log.sites import Site
from tests.selection import mostly_long
from txn_source import Consumer
from txn_source.metadata.delivery import row_dispatch
from txn_source.metadata.delivery.consumer_hub import ConsumerHub
from txn_source.metadata.delivery.session import Session
from txn_source.metadata.store import deliveries

CONSUMERS = 12


@pytest.mark.parametrize("at_once", mostly_long([1, 2, 5], 2))
def test_shared_entries_are_handed_out_in_bounded_steps(
    site: Site, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Let a write transaction hand out few batches: all messages come, each once, to one consumer or the other."""
    monkeypatch.setattr(row_dispatch, "BATCHES_AT_ONCE", at_once)
    log = site.connect()
    producer, _ = numbered(log, 0)
    consumers = [subscribe(log, type="shared", queue_size=2, acknowledge_interval=0.0) for _ in range(3)]
    send_each(producer, [b"%d" % number for number in range(20)])
    found: list[bytes] = []
    while len(found) < 20:
        for consumer in consumers:
            while (message := consumer.receive(0.0)) is not None:
                found.append(message.value)
                consumer.acknowledge(message)
    assert sorted(found, key=int) == [b"%d" % number for number in range(20)]
    eventually(lambda: log.subscription("t", "s").partitions[0].backlog == 0)


def test_redeliveries_are_handed_out_in_bounded_steps(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close a consumer that has many batches: the other one gets all of them, each once."""
    monkeypatch.setattr(row_dispatch, "BATCHES_AT_ONCE", 2)
    log = site.connect()
    producer, _ = numbered(log, 0)
    first = subscribe(log, type="shared")
    for number in range(9):
        send_each(producer, [b"%d" % number])
        receive(first)
    second = subscribe(log, type="shared")
    first.close()
    found = [receive(second) for _ in range(9)]
    assert sorted(message.value for message in found) == [b"%d" % number for number in range(9)]
    assert {message.redelivery_count for message in found} == {1}


def session_behind(site: Site, way: HoldingWay, consumer: Consumer) -> Session:
    """Return the service's side of a consumer that is connected over a held way."""
    service = site.server._service if site.server is not None else way.inner.service  # type: ignore[attr-defined]
    found: Session = service.hub.connected()[consumer._state.origin.consumer_id]
    return found


def permits_during_a_look(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Give permits when a look has made its first deliveries and not yet counted them, and nothing else wakes the
    session again; return what was answered."""
    delivered = Session.delivered
    given: list[bool] = []

    def late(self: Session, responses: Sequence[Any], cursors: Any) -> None:
        if responses and not given:
            given.append(self.permit(self.epoch, 10))
            monkeypatch.setattr(ConsumerHub, "tell", lambda *_: None)
        delivered(self, responses, cursors)

    monkeypatch.setattr(Session, "delivered", late)
    return given


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_permits_that_come_during_a_look_are_used_by_the_next_one(
    site: Site, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Give permits when a look has made its deliveries and not yet counted them: the rest comes, and no other way."""
    log, way = holding(site)
    producer, _ = numbered(log, 0)
    consumer = subscribe(log, type=kind, queue_size=2)
    session = session_behind(site, way, consumer)
    eventually(lambda: session.permits == 2)
    way.hold("flow")
    given = permits_during_a_look(monkeypatch)
    with log.begin_transaction() as transaction:
        send_each(producer, [b"%d" % number for number in range(6)], txn=transaction)
    assert [receive(consumer).value for _ in range(6)] == [b"%d" % number for number in range(6)]
    assert given == [False]


def test_permits_that_come_during_a_look_are_used_for_what_comes_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Close a consumer of a shared subscription, and give another one permits when a look has handed out as much of
    what comes again as it may, and not yet counted that: the rest comes, and no other way."""
    log, way = holding(site)
    producer, _ = numbered(log, 0)
    first = subscribe(log, type="shared")
    for number in range(6):
        send_each(producer, [b"%d" % number])
        receive(first)
    second = subscribe(log, type="shared", queue_size=2)
    session = session_behind(site, way, second)
    eventually(lambda: session.permits == 2)
    way.hold("flow")
    given = permits_during_a_look(monkeypatch)
    first.close()
    assert sorted(receive(second).value for _ in range(6)) == [b"%d" % number for number in range(6)]
    assert given == [False]


def test_all_that_comes_again_is_handed_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close a consumer that has more batches than are looked for at once: another one, which may take more than that,
    gets all of them by one look after the other."""
    monkeypatch.setattr(deliveries, "AGAIN_AT_ONCE", 3)
    log = site.connect()
    producer, _ = numbered(log, 0)
    first = subscribe(log, type="shared")
    for number in range(10):
        send_each(producer, [b"%d" % number])
        receive(first)
    second = subscribe(log, type="shared")
    delivered = Session.delivered

    def alone(self: Session, responses: Sequence[Any], cursors: Any) -> None:
        monkeypatch.setattr(ConsumerHub, "tell", lambda *_: None)
        delivered(self, responses, cursors)

    monkeypatch.setattr(Session, "delivered", alone)
    first.close()
    assert sorted(receive(second).value for _ in range(10)) == [b"%d" % number for number in range(10)]
