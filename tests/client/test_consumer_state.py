"""What the parts of a consumer share: the partitions that it knows, and where it is in each."""

from __future__ import annotations

import threading
import weakref
from types import SimpleNamespace
from typing import Any

from txn_source.client.consuming.consumer_state import ConsumerState
from txn_source.client.consuming.options import ConsumerOptions
from txn_source.metadata.stub.conversation import SubscribeRequest
from txn_source.model.position import LATEST, MessageId
from txn_source.model.subscription import Place, SubscriptionType


class Nobody:
    """A consumer that is looked for and never found."""


def test_added_partition_begins_where_the_subscription_stands_unless_a_seek_has_said_it() -> None:
    """Take two partitions, of one of which a seek has told the next message already."""
    request = SubscribeRequest("t", "s", SubscriptionType.EXCLUSIVE, None, True, Place(LATEST), "c", "token")
    nobody: Any = weakref.ref(Nobody())
    access: Any = SimpleNamespace(metadata=SimpleNamespace(transport=None))
    state = ConsumerState(access, request, ConsumerOptions(), threading.RLock(), nobody)
    state.queue.begin_at({7: MessageId(5, 3)})
    state.add_partitions({7: 1, 8: 2}, {7: MessageId(5, 0), 8: MessageId(6, 0)})
    assert state.queue.cursors() == {7: MessageId(5, 3), 8: MessageId(6, 0)}
    assert state.topic.partitions == {7: 1, 8: 2}
