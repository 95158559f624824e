"""What is known of one connected consumer: permits are of an epoch, and are used by what was delivered."""

from __future__ import annotations

import pytest

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery import session as sessions
from txn_source.metadata.delivery.next_entries import ReadCursor
from txn_source.metadata.delivery.session import MAX_PERMITS, Outbox, Session
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.model.bounds import Bounds
from txn_source.model.isolation import IsolationLevel
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.message_ranges import message_key
from txn_source.model.position import Position
from txn_source.model.subscription import Cursor, SubscriptionType
from txn_source.model.topic import PartitionView, Topic
from txn_source.model.topic_name import TopicName

START, LATER = Position(1, 0), Position(1, 7)
TOPIC = Topic(5, TopicName.parse("t"), None, LedgerLimits(), 0)


def state_at(position: Position = START, *, epoch: int = 3, active: bool = True) -> Session:
    level, kind = IsolationLevel.READ_COMMITTED, SubscriptionType.SHARED
    subscription = Subscription(1, 5, "s", kind, level, durable=True, epoch=epoch, ignored_acknowledgements=0)
    return Session(TOPIC, subscription, 7, Outbox(), {10: Cursor(message_key(position))}, active=active)


def delivery(messages: int) -> list[pb.ConsumeResponse]:
    return [pb.ConsumeResponse(delivery=pb.ConsumeResponse.Delivery(messages=messages))]


def test_permits_add_up_to_a_limit() -> None:
    """Give some, then more than there may be."""
    state = state_at()
    state.permit(3, 5)
    state.permit(3, 2)
    assert (state.permits, state.ready(3)) == (7, 7)
    state.permit(3, MAX_PERMITS)
    assert state.permits == MAX_PERMITS


def test_permits_tell_whether_there_were_none() -> None:
    """Give some to one that has none, to one that has some, and to one that got more than it had permits for."""
    state = state_at()
    assert state.permit(3, 5)
    assert not state.permit(3, 1)
    state.delivered(delivery(8), {})
    assert state.permits == -2
    assert state.permit(3, 1)
    assert not state.permit(2, 1)


@pytest.mark.parametrize("epoch", [2, 4])
def test_permits_of_another_epoch_are_void(epoch: int) -> None:
    """Give permits that were sent in an epoch before, or in one that isn't known here yet; ask in such a one."""
    state = state_at()
    state.permit(epoch, 5)
    assert state.permits == 0
    state.permit(3, 5)
    assert state.ready(epoch) == 0


def test_consumer_that_is_not_active_is_not_ready() -> None:
    """Give permits to one that waits for its turn."""
    state = state_at(active=False)
    state.permit(3, 5)
    assert state.ready(3) == 0


def test_new_epoch_begins_at_the_cursors_without_permits() -> None:
    """Deliver, then begin anew where a seek went: permits, messages and the place are those of the beginning."""
    state = state_at()
    state.permit(3, 5)
    state.delivered(delivery(2), {10: ReadCursor.at(Position(1, 2))})
    assert (state.permits, state.unacknowledged) == (3, 2)
    state.begin(4, True, {10: Cursor(message_key(LATER))})
    assert (state.epoch, state.permits, state.unacknowledged) == (4, 0, 0)
    assert state.read_cursor(10) == ReadCursor(LATER, LATER)
    assert state.acknowledged_of(10).mark == message_key(LATER)


def test_added_partition_joins_the_epoch_at_its_cursor() -> None:
    """Add a partition in the middle of an epoch: it is unknown until it joins; permits and places stay as they are."""
    bounds = Bounds(START, START, START, START)
    views = [PartitionView(number, index, bounds, 0, 0, START) for index, number in enumerate((10, 11))]
    state = state_at()
    state.permit(3, 5)
    state.delivered([], {10: ReadCursor.at(LATER)})
    assert not state.knows(views)
    state.tell_partitions(views, {11: Cursor(message_key(START))})
    assert state.knows(views)
    assert (state.epoch, state.permits) == (3, 5)
    assert state.read_cursor(10) == ReadCursor.at(LATER)
    assert state.read_cursor(11) == ReadCursor.at(START)
    assert state.acknowledged_of(11).mark == message_key(START)


def test_partition_that_a_new_epoch_brought_stays_where_that_begins() -> None:
    """Begin an epoch with a partition that the consumer wasn't told of, then let it join from an older look."""
    view = PartitionView(11, 1, Bounds(START, START, START, START), 0, 0, START)
    state = state_at()
    state.begin(4, True, {10: Cursor(message_key(START)), 11: Cursor(message_key(LATER))})
    assert not state.knows([view])
    state.tell_partitions([view], {11: Cursor(message_key(START))})
    assert state.read_cursor(11) == ReadCursor.at(LATER)


def test_unacknowledged_messages_of_a_shared_consumer_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliver as many as the limit allows: it isn't ready before some are acknowledged."""
    monkeypatch.setattr(sessions, "MAX_UNACKNOWLEDGED", 4)
    state = state_at()
    state.permit(3, 10)
    assert (state.ready(3), state.at_limit) == (4, False)
    state.delivered(delivery(4), {})
    assert (state.ready(3), state.at_limit) == (0, True)
    state.acknowledged(1)
    assert (state.ready(3), state.at_limit) == (1, False)
    state.acknowledged(10)
    assert state.unacknowledged == 0


def test_deliveries_are_numbered_over_all_consumers() -> None:
    """Deliver to two in turn: the one that had its turn longer ago has the smaller number, and a new one is first."""
    first, second, third = state_at(), state_at(), state_at()
    first.delivered(delivery(1), {})
    second.delivered(delivery(1), {})
    assert third.last_delivery < first.last_delivery < second.last_delivery
    first.delivered(delivery(1), {})
    assert second.last_delivery < first.last_delivery


def test_each_partition_is_first_in_its_turn() -> None:
    """Ask three times, of three partitions, and once of none."""
    bounds = Bounds(START, START, START, START)
    partitions = [PartitionView(number, number, bounds, 0, 0, START) for number in range(3)]
    state = state_at()
    turns = [[view.index for view in state.in_turn(partitions)] for _ in range(4)]
    assert turns == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]
    assert state.in_turn([]) == []


def test_read_cursor_remembers_where_the_last_batch_ended() -> None:
    """Pass over invisible entries, deliver, and lose the beginning to a trim."""
    cursor = ReadCursor.at(START).passed(LATER)
    assert cursor == ReadCursor(LATER, START)
    assert cursor.delivered(LATER) == ReadCursor(LATER, LATER)
    trimmed = Position(1, 3)
    assert cursor.from_start(trimmed) == ReadCursor(LATER, trimmed)
    assert ReadCursor.at(START).from_start(trimmed) == ReadCursor(trimmed, trimmed)
