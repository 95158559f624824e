"""A connection that is lost and made again while a consumer's or reader's call is under way."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from tests.log.consuming import VALUES, WAIT_S, numbered, receive, subscribe, take
from tests.log.holding import holding
from tests.log.reading import eventually
from tests.log.sites import Site
from tests.selection import mostly_long
from txn_source import Consumer
from txn_source.metadata.stub.conversation import Conversation, SubscribeRequest


def reconnect(consumer: Consumer) -> None:
    """Have the consumer give up its connection and make another one; wait until it has."""
    before = consumer._link.current
    consumer._link.renew()
    eventually(lambda: consumer._link.current not in (None, before))


def test_reader_that_reads_while_it_connects_again_gets_nothing_twice(site: Site) -> None:
    """Read between the moment when a reader asks to go on where it stands and the service's answer."""
    log = site.connect()
    numbered(log)
    reader = log.reader("t")
    found = take(reader._consumer, 4)
    inner = Conversation.open

    def connect(link: Conversation, request: SubscribeRequest) -> Any:
        message = reader.read_next(0.0)
        found.extend([] if message is None else [message.value])
        return inner(link, request)

    with patch.object(Conversation, "open", connect):
        reconnect(reader._consumer)
    found += take(reader._consumer, 10 - len(found))
    assert found == VALUES
    assert reader.read_next(0.0) is None


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
@pytest.mark.parametrize("as_batches", mostly_long([False, True], False))
def test_what_was_acknowledged_here_is_not_handed_out_again(site: Site, kind: str, as_batches: bool) -> None:
    """Acknowledge three of ten around a lost connection, before the service stores any of it: after the redelivery the
    caller gets the other seven, once each, as messages or batches."""
    log, way = holding(site)
    numbered(log)
    consumer = subscribe(log, type=kind)
    messages = [receive(consumer) for _ in range(10)]
    for number in (0, 3):
        consumer.acknowledge(messages[number])
    way.talks[-1].cut()
    eventually(lambda: len(way.talks) == 2 and consumer._link.current is not None)
    consumer.acknowledge(messages[5])
    found: list[bytes] = []
    while len(found) < 7:
        if as_batches:
            batch = consumer.receive_batch(WAIT_S)
            assert batch is not None
            found += batch.values
        else:
            found.append(receive(consumer).value)
    assert sorted(found) == [VALUES[n] for n in (1, 2, 4, 6, 7, 8, 9)]
    assert consumer.receive(0.0) is None


def test_what_was_acknowledged_before_a_seek_is_handed_out_after_it(site: Site) -> None:
    """Acknowledge five of ten, seek to the start as an operator before that is stored, and cut the connection: the
    caller gets all ten."""
    log, way = holding(site)
    operator = site.connect()
    numbered(log)
    consumer = subscribe(log)
    for message in [receive(consumer) for _ in range(10)][:5]:
        consumer.acknowledge(message)
    operator.seek("t", "s", "earliest")
    eventually(lambda: consumer.epoch == 1)
    way.talks[-1].cut()
    eventually(lambda: len(way.talks) == 2 and consumer._link.current is not None)
    assert take(consumer, 10) == VALUES
