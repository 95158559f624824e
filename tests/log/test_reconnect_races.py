"""A connection that is lost and made again while a consumer's or reader's call is under way."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from tests.log.consuming import WAIT_S, numbered, receive, subscribe, take
from tests.log.reading import eventually
from tests.log.sites import Site
from txn_source import Consumer
from txn_source.metadata.stub.consumer_stream import ConsumerLink, SubscribeRequest

VALUES = [b"%d" % i for i in range(10)]


def reconnect(consumer: Consumer) -> None:
    """Have the consumer give up its connection and make another one; wait until it has."""
    link = consumer._link.current
    consumer._link.doubtful = True
    consumer._link.wake()
    eventually(lambda: consumer._link.current not in (None, link))


@pytest.mark.parametrize("of", ["consumer", "reader"])
def test_seek_whose_connection_is_replaced_holds(site: Site, of: str) -> None:
    """Answer a seek, and replace the connection before the answer is used: all comes from there nevertheless."""
    log = site.connect()
    numbered(log)
    who: Any = subscribe(log) if of == "consumer" else log.reader("t")
    consumer: Consumer = who if of == "consumer" else who._consumer
    take(consumer, 6)
    inner, lost = ConsumerLink.seek, []

    def seek(link: ConsumerLink, *arguments: Any) -> Any:
        sought = inner(link, *arguments)
        if not lost:
            lost.append(link)
            reconnect(consumer)
        return sought

    with patch.object(ConsumerLink, "seek", seek):
        who.seek("earliest")
    assert lost
    assert take(consumer, 10) == VALUES


def test_reader_that_reads_while_it_connects_again_gets_nothing_twice(site: Site) -> None:
    """Read between the moment when a reader asks to go on where it stands and the service's answer."""
    log = site.connect()
    numbered(log)
    reader = log.reader("t")
    found = take(reader._consumer, 4)
    inner = ConsumerLink.open

    def connect(link: ConsumerLink, request: SubscribeRequest) -> Any:
        message = reader.read_next(0.0)
        found.extend([] if message is None else [message.value])
        return inner(link, request)

    with patch.object(ConsumerLink, "open", connect):
        reconnect(reader._consumer)
    found += take(reader._consumer, 10 - len(found))
    assert found == VALUES
    assert reader.read_next(0.0) is None


@pytest.mark.parametrize("sought", [False, True])
def test_what_was_struck_on_its_way_out_comes_after_a_new_connection(site: Site, sought: bool) -> None:
    """Strike a read as it returns, just after a reader has connected again: the message comes, but for a seek."""
    log = site.connect()
    numbered(log)
    reader = log.reader("t")
    consumer = reader._consumer
    reader.seek("earliest")
    take(consumer, 4)
    struck = receive(consumer)
    reconnect(consumer)
    if sought:
        reader.seek("latest")
    consumer._queue.returned.append((struck._batch, struck._row, struck._row + 1))  # what a struck call leaves
    assert reader.has_message_available() != sought
    found = [message.value for _ in range(6) if (message := reader.read_next(0.0 if sought else WAIT_S))]
    assert found == ([] if sought else VALUES[4:])
