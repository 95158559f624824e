"""How much a consumer of a shared subscription is given before it has acknowledged what it has."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.log.consuming import receive, subscribe
from tests.log.sites import ManualClock, Site
from txn_source.metadata.delivery import session as sessions


def test_what_was_aborted_in_tiered_ledgers_uses_up_no_limit(
    clocked_site: Site, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Share ledgers of which only the objects know the entries: each message comes, however many were aborted."""
    monkeypatch.setattr(sessions, "MAX_UNACKNOWLEDGED", 10)
    log = clocked_site.connect()
    log.create_topic("t")
    producer = log.producer("t")
    for number in range(4):
        with suppress(ZeroDivisionError), log.begin_transaction() as transaction:
            for _ in range(5):
                producer.send(b"aborted", txn=transaction)
            producer.flush()
            raise ZeroDivisionError
        producer.send(b"%d" % number)
        producer.flush()
        log.roll_ledger("t")
    log.offload("t")
    for _ in range(2):
        log.delete_hot("t")
        clock.advance(3601)
    consumer = subscribe(log, type="shared")
    for number in range(4):
        message = receive(consumer)
        assert message.value == b"%d" % number
        consumer.acknowledge(message)
        consumer.flush()
