"""A connection that is lost and made again while a consumer's or reader's call is under way."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from tests.log.consuming import numbered, subscribe, take
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
