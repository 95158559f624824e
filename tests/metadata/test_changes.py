"""Waking those that wait for changes, while the service that wakes them gives up its connections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.log.reading import eventually
from tests.log.sites import service_over
from txn_source import TxnLogError, connect
from txn_source.metadata.delivery.wakeups import Changes
from txn_source.model.topic_name import TopicName


class Waiting:
    """What waits for a topic, and says when it is woken or sent away."""

    subscription_id = unacknowledged = 0

    def __init__(self, topic_id: int, consumer_id: int, sent_away: Callable[[], None] = lambda: None) -> None:
        self.topic_id = topic_id
        self.consumer_id = consumer_id
        self.woken = 0
        self._sent_away = sent_away

    def wake(self) -> None:
        self.woken += 1

    def fail(self, error: TxnLogError) -> None:
        self._sent_away()

    def acknowledged(self, messages: int) -> None: ...


def test_who_comes_back_while_others_are_sent_away_is_woken(tmp_path: Path) -> None:
    """Connect again at once when told that the service gives up its connections: what others change is heard."""
    with connect(tmp_path / "log") as other:
        other.create_topic("t")
        topic_id = other.metadata.get_view([TopicName.parse("t")]).topics[0].topic.topic_id
        service = service_over(tmp_path / "log")
        changes: Changes = service.changes
        back = Waiting(topic_id, 2)

        def come_back() -> None:
            changes.remove(first)
            changes.add(back)

        first = Waiting(topic_id, 1, come_back)
        changes.add(first)
        changes.close()
        eventually(lambda: back.woken > 0)  # the first look of whoever looks for changes
        woken = back.woken
        with other.producer("t") as producer:
            producer.send(b"x")
        eventually(lambda: back.woken > woken)
        changes.remove(back)
        service.close()
