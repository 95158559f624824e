"""Waking those that wait for changes, while the service that wakes them gives up its connections."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.log.reading import eventually
from tests.log.sites import service_over
from txn_source import TxnLogError, connect
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.consumer_hub import ConsumerHub
from txn_source.metadata.delivery.session import Outbox, Session
from txn_source.metadata.delivery.topic_dispatch import TopicDispatch
from txn_source.metadata.store.group_commit import Urgent
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.model.isolation import IsolationLevel
from txn_source.model.subscription import SubscriptionType
from txn_source.model.topic import Topic
from txn_source.model.topic_name import TopicName


def session(topic: Topic, consumer_id: int, subscription_id: int = 1) -> Session:
    """Return a consumer that the database knows nothing of."""
    subscription = Subscription(
        subscription_id,
        topic.topic_id,
        "s",
        SubscriptionType.EXCLUSIVE,
        IsolationLevel.READ_COMMITTED,
        durable=True,
        epoch=0,
        ignored_acknowledgements=0,
    )
    return Session(topic, subscription, consumer_id, Outbox(), {})


def test_who_comes_back_while_others_are_sent_away_is_woken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect again at once when told that the service gives up its connections: what others change is heard."""
    with connect(tmp_path / "log") as other:
        other.create_topic("t")
        topic = other.metadata.get_view([TopicName.parse("t")]).topics[0].topic
        service = service_over(tmp_path / "log")
        hub: ConsumerHub = service.hub
        looks: list[int] = []

        def look(_: Any, sessions: Sequence[Session]) -> dict[int, float | None]:
            looks.extend(session.consumer_id for session in sessions)
            return {}

        monkeypatch.setattr(TopicDispatch, "look", look)
        first, back = session(topic, 1), session(topic, 2)

        def come_back(error: TxnLogError) -> None:
            first.failure = error
            hub.remove(first)
            hub.add(back, pb.ConsumeResponse())

        monkeypatch.setattr(first, "fail", come_back)
        hub.add(first, pb.ConsumeResponse())
        eventually(lambda: 1 in looks)
        hub.close()
        eventually(lambda: 2 in looks)  # the first look of whoever looks for changes
        count = len(looks)
        with other.producer("t") as producer:
            producer.send(b"x")
        eventually(lambda: len(looks) > count)
        assert 1 not in looks[count:]
        hub.remove(back)
        service.close()


def test_leases_are_renewed_before_all_else_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew while a consumer is connected, and look at how that is written."""
    with connect(tmp_path / "log") as log:
        log.create_topic("t")
        topic = log.metadata.get_view([TopicName.parse("t")]).topics[0].topic
        service = service_over(tmp_path / "log")
        hub: ConsumerHub = service.hub
        hub.add(session(topic, 1), pb.ConsumeResponse())
        written: list[object] = []
        monkeypatch.setattr(hub._database, "write", written.append)
        hub._renew()
        assert [type(action) for action in written] == [Urgent]
        monkeypatch.undo()
        service.close()
