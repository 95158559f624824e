"""Looking at topics by a few threads: each topic in one at a time, with all that was noted of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pytest

from tests.log.reading import eventually
from txn_source.metadata.delivery.dispatcher import ALL, MAX_THREADS, Dispatcher

WAIT_S = 30.0


class Looks:
    """What was looked at; a look waits where a test wants it to."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, frozenset[int]]] = []
        self.again: dict[int, float | None] = {}
        """By subscription, what the next look at it answers, once."""
        self.gates: dict[int, threading.Event] = {}
        self.inside: list[int] = []

    def __call__(self, topic_id: int, subscription_ids: frozenset[int]) -> Mapping[int, float | None]:
        self.inside.append(topic_id)
        self.seen.append((topic_id, subscription_ids))
        if topic_id in self.gates:
            assert self.gates[topic_id].wait(WAIT_S)
        self.inside.remove(topic_id)
        return {number: self.again.pop(number) for number in subscription_ids if number in self.again}


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def dispatcher(looks: Looks) -> Iterator[Dispatcher]:
    dispatcher = Dispatcher(looks)
    yield dispatcher
    for gate in looks.gates.values():
        gate.set()
    dispatcher.stop()


def test_what_is_noted_during_a_look_is_looked_at_once_behind_it(dispatcher: Dispatcher, looks: Looks) -> None:
    """Hold a look, and note three changes of the same topic, one of them twice: one more look sees them all."""
    looks.gates[1] = threading.Event()
    dispatcher.serve(MAX_THREADS)
    dispatcher.wake(1, 5)
    eventually(lambda: looks.inside == [1])
    for subscription_id in (6, 7, 6):
        dispatcher.wake(1, subscription_id)
    dispatcher.wake(2)  # another thread takes this one, and with it all that was noted before
    eventually(lambda: (2, frozenset([ALL])) in looks.seen)
    assert looks.inside.count(1) == 1
    looks.gates[1].set()
    eventually(lambda: looks.seen[-1] == (1, frozenset([6, 7])))
    assert len(looks.seen) == 3


def test_topics_are_looked_at_by_a_bounded_number_of_threads(dispatcher: Dispatcher, looks: Looks) -> None:
    """Hold the looks at many topics: so many are under way at once, and no more threads begin."""
    before = set(threading.enumerate())
    topics = range(1, 3 * MAX_THREADS)
    looks.gates |= {topic_id: threading.Event() for topic_id in topics}
    dispatcher.serve(len(topics))
    for topic_id in topics:
        dispatcher.wake(topic_id)
    eventually(lambda: len(looks.inside) == MAX_THREADS)
    started = [t for t in set(threading.enumerate()) - before if t.name == "txnlog-dispatch"]
    assert len(started) == MAX_THREADS
    for gate in looks.gates.values():
        gate.set()
    eventually(lambda: len(looks.seen) == len(topics))


def test_no_more_threads_than_topics_begin(dispatcher: Dispatcher) -> None:
    """Serve one topic, and one again."""
    before = set(threading.enumerate())
    for _ in range(2):
        dispatcher.serve(1)
    assert len([t for t in set(threading.enumerate()) - before if t.name == "txnlog-dispatch"]) == 1


def test_look_that_left_something_is_repeated_at_once(dispatcher: Dispatcher, looks: Looks) -> None:
    """Answer 0 seconds for one of two subscriptions: it is looked at again, without a note."""
    looks.again = {5: 0.0, 6: None}
    dispatcher.wake(1, 5)
    dispatcher.wake(1, 6)
    dispatcher.serve(1)  # its first look is at both
    eventually(lambda: looks.seen == [(1, frozenset([5, 6])), (1, frozenset([5]))])
    eventually(lambda: dispatcher.due_in_s(1, 6) is None)


def test_look_comes_again_by_itself_when_it_is_due(dispatcher: Dispatcher, looks: Looks) -> None:
    """Answer a moment for one subscription and an hour for the other: the first is looked at again, alone."""
    looks.again = {5: 0.01, 6: 3600.0}
    dispatcher.wake(1, 5)
    dispatcher.wake(1, 6)
    dispatcher.serve(1)  # its first look is at both
    eventually(lambda: looks.seen == [(1, frozenset([5, 6])), (1, frozenset([5]))])
    eventually(lambda: dispatcher.due_in_s(1, 5) is None)
    assert 3000 < (dispatcher.due_in_s(1, 6) or 0) <= 3600
    dispatcher.wake(1)  # looks at all of the topic, and answers nothing more
    eventually(lambda: dispatcher.due_in_s(1, 6) is None)


def test_stopped_dispatcher_ends_its_threads_and_begins_no_more(looks: Looks) -> None:
    """Stop one that serves, and ask it to serve more topics."""
    before = set(threading.enumerate())
    dispatcher = Dispatcher(looks)
    dispatcher.serve(2)
    dispatcher.wake(1)
    dispatcher.stop()
    dispatcher.serve(MAX_THREADS)
    assert [t for t in set(threading.enumerate()) - before if t.name == "txnlog-dispatch"] == []


def test_topic_that_always_leaves_something_keeps_no_other_waiting() -> None:
    """Let one topic be due again after each look, with one thread for all: another topic has its turn."""
    seen: list[int] = []

    def look(topic_id: int, subscription_ids: frozenset[int]) -> Mapping[int, float | None]:
        seen.append(topic_id)
        return dict.fromkeys(subscription_ids, 0.0) if topic_id == 1 else {}

    dispatcher = Dispatcher(look)
    dispatcher.serve(1)
    try:
        dispatcher.wake(1, 5)
        eventually(lambda: bool(seen))
        dispatcher.wake(2)
        eventually(lambda: 2 in seen)
    finally:
        dispatcher.stop()
