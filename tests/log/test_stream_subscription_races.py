"""A stream's hold on its subscription: lost for a reason of its own process, or forgotten."""

from __future__ import annotations

import gc
import threading
from typing import Any
from unittest.mock import patch

import pytest

from tests.log.consuming import WAIT_S, numbered, service_of
from tests.log.reading import eventually
from tests.log.sites import Site
from txn_source import InternalError
from txn_source.client.streaming.stream_subscription import StreamSubscription
from txn_source.metadata.stub.conversation import Conversation
from txn_source.model.isolation import IsolationLevel
from txn_source.model.subscription import SubscriptionType
from txn_source.model.topic_name import TopicName


def test_stream_that_cannot_connect_again_says_why(site: Site) -> None:
    """Have the process run out of threads when the connection was lost: the stream hears of that, and waits no more."""
    log = site.connect()
    numbered(log)
    log.create_subscription("t", "s", SubscriptionType.EXCLUSIVE)
    held = StreamSubscription(log.metadata, TopicName.parse("t"), "s", IsolationLevel.READ_COMMITTED)
    tried = threading.Event()

    def connect(link: Conversation, request: Any) -> Any:
        tried.set()
        raise RuntimeError("can't start new thread")

    with patch.object(Conversation, "open", connect):
        for each in (site, site.other):  # either may hold it
            if each is not None:
                service_of(each, log).hub.close()
        assert tried.wait(WAIT_S)
        eventually(lambda: held._failure is not None)
    with pytest.raises(InternalError, match="can't start new thread"):
        held.cursors()
    held.close()


def test_forgotten_hold_lets_go(site: Site) -> None:
    """Drop a held subscription that nobody closed: another one can take hold, without a garbage collection."""
    log = site.connect()
    numbered(log)
    log.create_subscription("t", "s", SubscriptionType.EXCLUSIVE)
    gc.disable()
    try:
        held = StreamSubscription(log.metadata, TopicName.parse("t"), "s", None)
        assert held.is_there
        assert len(log.subscription("t", "s").consumers) == 1
        del held
        eventually(lambda: log.subscription("t", "s").consumers == ())
    finally:
        gc.enable()
    again = StreamSubscription(log.metadata, TopicName.parse("t"), "s", None)
    assert again.is_there
    again.close()
