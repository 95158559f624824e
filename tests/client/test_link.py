"""A connection that is made again: what counts of it, when it is tried again, and when no more.

The conversations are fakes with scripted answers; nothing waits, and the clock stands still.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from txn_source.client.consuming import link as module
from txn_source.client.consuming.link import Link
from txn_source.metadata.stub.conversation import Subscribed
from txn_source.model.errors import SubscriptionBusyError, SubscriptionNotFoundError, UnavailableError
from txn_source.model.isolation import IsolationLevel

GONE = UnavailableError("The service is away.", "Wait.")
ANSWER = Subscribed(1, 1, 0, True, IsolationLevel.READ_COMMITTED, None, {}, False)  # type: ignore[arg-type]


class FakeTransport:
    """The way to the service: ``answers`` are raised in turn by those that subscribe; without one they are let in."""

    def __init__(self) -> None:
        self.answers: list[BaseException] = []
        self.conversations: list[FakeConversation] = []
        self.meanwhile: Callable[[], object] = lambda: None
        """Called between a request and its answer."""


class FakeConversation:
    """A conversation with scripted answers."""

    def __init__(self, transport: FakeTransport, heard: Any) -> None:
        self._transport = transport
        self._heard = heard
        self.is_closed = False
        transport.conversations.append(self)

    def open(self, request: Any) -> None:
        if self._transport.answers:
            raise self._transport.answers.pop(0)
        self._transport.meanwhile()
        self.say(ANSWER)

    def close(self) -> None:
        self.is_closed = True

    def say(self, what: Any) -> None:
        self._heard(self, what)


class FakeThread:
    """The thread that does what is due: it notes when it would."""

    name = "consumer c"

    def __init__(self) -> None:
        self.asked: list[float] = []

    def due(self, at: float) -> None:
        self.asked.append(at)

    def wake(self) -> None:
        self.asked.append(-1.0)


@dataclass(eq=False)
class Subscriber:
    """A subscriber that records its calls."""

    told: list[Any] = field(default_factory=list)
    over: bool = False
    unlike: BaseException | None = None

    def is_over(self) -> bool:
        return self.over

    def request(self) -> Any:
        return "request"

    def adopt(self, conversation: Any, request: Any, answer: Any) -> None:
        if self.unlike is not None:
            raise self.unlike
        self.told.append((request, answer))

    def take(self, event: Any) -> None:
        self.told.append(event)

    def refused(self, error: BaseException) -> None:
        self.told.append(error)
        self.over = True

    def work(self) -> None:
        self.told.append("work")


@dataclass
class Made:
    """A subscriber that is connected; its thread would wait 7 s before it connects again."""

    subscriber: Subscriber = field(default_factory=Subscriber)
    transport: FakeTransport = field(default_factory=FakeTransport)
    thread: FakeThread = field(default_factory=FakeThread)

    def __post_init__(self) -> None:
        given: Any = (self.transport, self.thread, threading.RLock())
        self.link = Link(*given, first_pause_s=7.0)
        self.link.connect(self.subscriber)
        assert self.subscriber.told == [("request", ANSWER)]
        self.subscriber.told.clear()

    @property
    def conversations(self) -> list[FakeConversation]:
        return self.transport.conversations

    def keep(self) -> None:
        self.link.keep(self.subscriber, self.subscriber.work)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr(module, "Conversation", FakeConversation)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    return Made()


def test_lost_connection_is_made_again(made: Made) -> None:
    """Lose it: it is tried again after the first pause, then after pauses that double, up to 2 s; then it counts."""
    made.conversations[0].say(GONE)
    assert (made.link.current, made.thread.asked) == (None, [107.0])
    with pytest.raises(UnavailableError):
        _ = made.link.conversation
    made.transport.answers = [GONE] * 7
    made.thread.asked.clear()
    for _ in range(7):
        made.keep()
    assert made.thread.asked == pytest.approx([100.1, 100.2, 100.4, 100.8, 101.6, 102.0, 102.0])
    assert all(each.is_closed for each in made.conversations[1:])
    made.keep()
    assert made.link.conversation is made.conversations[-1]
    assert made.thread.asked[-1] == -1.0
    made.keep()
    assert made.subscriber.told == [("request", ANSWER), "work"]
    made.conversations[-1].say(GONE)
    made.transport.answers = [GONE]
    made.keep()
    assert made.thread.asked[-2:] == pytest.approx([107.0, 100.1])  # another loss begins anew


@pytest.mark.parametrize("how", ["given up", "renewed"])
def test_what_comes_over_an_older_conversation_is_dropped(made: Made, how: str) -> None:
    """Replace the conversation in both ways, and let the old one go on, and end."""
    [old] = made.conversations
    old.say("a")
    if how == "given up":
        assert made.link.give_up() is old
    else:
        made.link.renew()
    made.keep()
    new = made.conversations[1]
    assert made.link.current is new
    assert old.is_closed == (how == "renewed")  # else who gave it up closes it
    old.say("b")
    old.say(SubscriptionNotFoundError("It is gone.", "Make it."))
    assert made.link.current is new
    new.say("c")
    assert made.subscriber.told == ["a", ("request", ANSWER), "c"]


@pytest.mark.parametrize("when", ["it ends", "it is made again", "it is another one"])
@pytest.mark.parametrize("error", [SubscriptionBusyError("Taken.", "Wait."), RuntimeError("can't start new thread")])
def test_refusal_is_told_and_ends_it(made: Made, when: str, error: Any) -> None:
    """Refuse it at its end, when it is made again, also for a reason of the process, and by the subscriber itself."""
    made.conversations[0].say(error if when == "it ends" and isinstance(error, SubscriptionBusyError) else GONE)
    if when == "it is another one":
        made.subscriber.unlike = error
    else:
        made.transport.answers = [error]
    made.keep()
    assert made.subscriber.told[-1] is error
    assert made.link.current is None
    tried, asked = len(made.conversations), list(made.thread.asked)
    made.keep()
    assert (len(made.conversations), made.thread.asked) == (tried, asked)


def test_answer_that_comes_too_late_does_not_count(made: Made) -> None:
    """Have the service answer when nobody waits for it any more: the next conversation counts, and is made."""
    made.conversations[0].say(GONE)
    made.transport.answers = [GONE]
    made.keep()
    made.conversations[1].say(ANSWER)
    assert (made.link.current, made.subscriber.told) == (None, [])
    made.keep()
    assert made.link.current is made.conversations[2]


@pytest.mark.parametrize("how", ["closed", "over"])
def test_nothing_is_connected_after_the_end(made: Made, how: str) -> None:
    """Close the link, or have the subscriber end, before a connection and while one is made: it is closed again."""
    made.conversations[0].say(GONE)
    made.transport.meanwhile = made.link.close if how == "closed" else lambda: setattr(made.subscriber, "over", True)
    made.link.connect(made.subscriber)
    assert (made.link.current, made.conversations[-1].is_closed) == (None, True)
    assert made.subscriber.told == []
    made.link.close()


def test_close_disconnects(made: Made) -> None:
    """Close twice; what comes later is dropped."""
    for _ in range(2):
        made.link.close()
    [old] = made.conversations
    old.say("late")
    old.say(GONE)
    assert (made.link.current, old.is_closed, made.subscriber.told) == (None, True, [])


def test_connection_keeps_no_subscriber(made: Made) -> None:
    """Forget another subscriber, and let its conversation go on: nothing happens."""
    other = Subscriber()
    made.link.connect(other)
    conversation, forgotten = made.conversations[-1], weakref.ref(other)
    del other
    assert forgotten() is None
    conversation.say("late")
    conversation.say(GONE)
    assert made.link.current is conversation
