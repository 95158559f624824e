"""A call that changes something answers a repetition with its request id as the first time."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from tests.log.reading import send_each, values
from tests.log.sites import ManualClock, Site
from txn_source import InvalidArgumentError, TopicExistsError, TopicNotFoundError
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb

_POLICIES = pb.TopicPolicies(ledger_max_entries=10, ledger_max_bytes=1 << 20, ledger_max_age_ms=1 << 30)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("CreateTopic", pb.CreateTopicRequest(name="bills", partitions=3, policies=_POLICIES)),
        ("UpdateTopic", pb.UpdateTopicRequest(name="orders", partitions=3)),
        ("DeleteTopic", pb.DeleteTopicRequest(name="orders")),
        ("RollLedger", pb.RollLedgerRequest(name="orders")),
        ("OpenProducer", pb.OpenProducerRequest(topic="orders")),
        ("OpenProducer", pb.OpenProducerRequest(topic="orders", transactional_id="tellers")),
        ("BeginTransaction", pb.BeginTransactionRequest(timeout_ms=10_000)),
    ],
    ids=["create", "update", "delete", "roll", "open", "open transactional", "begin"],
)
@pytest.mark.also("postgres")
def test_repetition_is_answered_as_the_first_time(site: Site, method: str, request_: Any) -> None:
    """Call three times with one id and once with another; then look whether the log changed by a repetition."""
    log = site.connect()
    log.create_topic("orders")
    send_each(log.producer("orders", transactional_id="tellers"), [b"x"])
    transport = site.transport()

    def call(request_id: str) -> Any:
        message = type(request_)()
        message.CopyFrom(request_)
        message.request_id = request_id
        return transport.call(method, message)

    def state() -> Any:
        return [(t, log.stats(t)) for t in log.topics()], [t.id for t in log.transactions(state=None)]

    first = call("one")
    changed = state()
    assert call("one") == first
    assert call("one") == first
    assert state() == changed
    try:
        other = call("two")
    except (TopicExistsError, TopicNotFoundError):
        return  # what was asked for has been done
    assert other != first
    if request_.DESCRIPTOR.name == "OpenProducerRequest" and request_.transactional_id:
        assert (first.epoch, other.epoch) == (1, 2), "nobody is fenced by a repetition of his own call"


def test_refused_call_may_be_repeated_when_its_cause_is_gone(site: Site) -> None:
    """Repeat a refused creation after the topic in its way was deleted: a refusal isn't remembered."""
    log, transport = site.connect(), site.transport()
    log.create_topic("orders")
    request = pb.CreateTopicRequest(request_id="one", name="orders", partitions=1, policies=_POLICIES)
    with pytest.raises(TopicExistsError):
        transport.call("CreateTopic", request)
    log.delete_topic("orders")
    assert transport.call("CreateTopic", request).topic.name == "persistent://public/default/orders"


@pytest.mark.parametrize("commit", [True, False])
def test_repeated_end_is_answered_the_same(site: Site, commit: bool) -> None:
    """Send one EndTransaction twice."""
    log, transport = site.connect(), site.transport()
    log.create_topic("orders")
    transaction = log.begin_transaction()
    send_each(log.producer("orders"), [b"x"], txn=transaction)
    request = pb.EndTransactionRequest(id=pb.TxnId(least_sig_bits=transaction.id.least_sig_bits), commit=commit)
    assert transport.call("EndTransaction", request) == transport.call("EndTransaction", request)
    assert values(log, "orders") == ([b"x"] if commit else [])
    assert log.stats("orders").ledgers[0].entries == 2


def test_change_without_a_request_id_is_refused(site: Site) -> None:
    """Leave the id out: nobody could repeat such a call."""
    with pytest.raises(InvalidArgumentError, match="no request id"):
        site.transport().call("BeginTransaction", pb.BeginTransactionRequest(timeout_ms=10_000))
    assert site.connect().transactions(state=None) == []


def test_forced_commit_is_refused(site: Site) -> None:
    """Ask for what there is no meaning for."""
    transaction = site.connect().begin_transaction()
    request = pb.EndTransactionRequest(
        id=pb.TxnId(least_sig_bits=transaction.id.least_sig_bits), commit=True, forced=True
    )
    with pytest.raises(InvalidArgumentError, match="forced"):
        site.transport().call("EndTransaction", request)


def test_answers_are_kept_for_an_hour(clocked_site: Site, clock: ManualClock) -> None:
    """Repeat a call within the hour, and after it, when other calls have cleared the old answers away."""
    transport = clocked_site.transport()
    request = pb.BeginTransactionRequest(request_id="one", timeout_ms=10_000)
    numbers = count()

    def look() -> None:
        other = pb.BeginTransactionRequest(request_id=f"look {next(numbers)}", timeout_ms=10_000)
        transport.call("BeginTransaction", other)

    first = transport.call("BeginTransaction", request).id
    clock.pass_by(3600, look)
    assert transport.call("BeginTransaction", request).id == first
    clock.pass_by(11, look)
    assert transport.call("BeginTransaction", request).id != first


@pytest.mark.parametrize("years", [10, -10])
def test_answer_outlives_a_jump_of_the_clock(clocked_site: Site, clock: ManualClock, years: int) -> None:
    """Let the clock be years away for one call, and repeat another one during that and after it."""
    transport = clocked_site.transport()
    request = pb.BeginTransactionRequest(request_id="one", timeout_ms=10_000)
    first = transport.call("BeginTransaction", request).id
    clock.advance(years * 365 * 86400)
    transport.call("BeginTransaction", pb.BeginTransactionRequest(request_id="two", timeout_ms=10_000))
    assert transport.call("BeginTransaction", request).id == first
    clock.advance(-years * 365 * 86400 + 1)
    transport.call("BeginTransaction", pb.BeginTransactionRequest(request_id="three", timeout_ms=10_000))
    assert transport.call("BeginTransaction", request).id == first
