"""A connection that is made again: what counts of it, when it is tried again, and when no more.

Connections are fakes that answer as they are told; nothing waits, and the clock stands still.
"""

from __future__ import annotations

import threading
import time
import weakref
from dataclasses import dataclass, field
from typing import Any

import pytest

from txn_source.client.consuming import reconnecting_link
from txn_source.client.consuming.reconnecting_link import ReconnectingLink
from txn_source.model.errors import SubscriptionBusyError, SubscriptionNotFoundError, UnavailableError

GONE = UnavailableError("The service is away.", "Wait.")


class FakeLink:
    """A connection, with what it would call."""

    def __init__(self, _transport: Any, listener: Any, _timeout_s: float) -> None:
        self.listener = listener
        self.is_released = self.is_closed = False

    def release(self) -> None:
        self.is_released = True

    def close(self) -> None:
        self.is_closed = True

    def deliver(self, what: str) -> None:
        self.listener.on_delivery(what)

    def end(self, error: Exception) -> None:
        self.listener.on_end(self, error)


class FakeThread:
    """The thread that does what is due: it notes when it would."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def due(self, at: float) -> None:
        self.asked.append(at)

    def wake(self) -> None:
        self.asked.append(-1.0)


class FakeTransport:
    timeout_s = 1.0


@dataclass(eq=False)
class Subscriber:
    """Who is connected. ``answers`` are raised in turn when it subscribes; without one it is let in."""

    answers: list[BaseException] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    links: list[Any] = field(default_factory=list)
    over: bool = False

    def is_over(self) -> bool:
        return self.over

    def open(self, link: Any) -> tuple[Any, Any]:
        self.links.append(link)
        if self.answers:
            raise self.answers.pop(0)
        return "request", "answer"

    def adopt(self, link: Any, request: Any, subscribed: Any) -> None:
        assert not link.is_released
        self.told.append((request, subscribed))

    def on_delivery(self, delivery: Any) -> None:
        self.told.append(delivery)

    def on_epoch_change(self, link: Any, epoch: int) -> None:
        self.told.append((link, epoch))

    def on_partitions_added(self, added: Any) -> None:
        self.told.append(added)

    def on_lost(self, error: UnavailableError) -> None:
        self.told.append("lost")

    def on_refused(self, error: BaseException) -> None:
        self.told.append(error)
        self.over = True

    def do_other_work(self) -> None:
        self.told.append("work")


Made = tuple[ReconnectingLink, Subscriber, FakeThread]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """A subscriber that is connected; its thread would wait 7 s before it connects again."""
    monkeypatch.setattr(reconnecting_link, "ConsumerLink", FakeLink)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    thread, subscriber = FakeThread(), Subscriber()
    link = ReconnectingLink(FakeTransport(), thread, threading.RLock(), first_pause_s=7.0)  # type: ignore[arg-type]
    link.connect(subscriber)
    assert subscriber.told == [("request", "answer")]
    subscriber.told.clear()
    return link, subscriber, thread


def test_lost_connection_is_made_again(made: Made) -> None:
    """Lose it: it is tried again after the first pause, then after pauses that double, up to 2 s; then it counts."""
    link, subscriber, thread = made
    subscriber.links[0].end(GONE)
    assert (link.current, subscriber.told, thread.asked) == (None, ["lost"], [107.0])
    subscriber.answers = [GONE] * 7
    thread.asked.clear()
    for _ in range(7):
        link.keep(subscriber)
    assert thread.asked == pytest.approx([100.1, 100.2, 100.4, 100.8, 101.6, 102.0, 102.0])
    assert all(each.is_closed for each in subscriber.links[1:])
    link.keep(subscriber)
    assert link.current is subscriber.links[-1]
    assert (link.current.is_released, thread.asked[-1]) == (True, -1.0)
    link.keep(subscriber)
    assert subscriber.told == ["lost", ("request", "answer"), "work"]
    subscriber.links[-1].end(GONE)
    subscriber.answers = [GONE]
    link.keep(subscriber)
    assert thread.asked[-2:] == pytest.approx([107.0, 100.1])  # another loss begins anew


@pytest.mark.parametrize("how", ["taken away", "doubtful"])
def test_what_comes_over_an_older_connection_is_dropped(made: Made, how: str) -> None:
    """Replace the connection in both ways, and let the old one deliver, change the epoch, tell news, and end."""
    link, subscriber, _ = made
    old = subscriber.links[0]
    old.deliver("a")
    if how == "taken away":
        assert link.take_away() is old
    else:
        link.doubtful = True
    link.keep(subscriber)
    new = subscriber.links[1]
    assert (link.current, link.doubtful) == (new, False)
    assert old.is_closed == (how == "doubtful")  # else who took it away closes it
    old.deliver("b")
    old.listener.on_epoch_change(3, True)
    old.listener.on_partitions_added("old news")
    old.end(SubscriptionNotFoundError("It is gone.", "Make it."))
    assert link.current is new
    new.deliver("c")
    new.listener.on_epoch_change(4, True)
    new.listener.on_partitions_added("news")
    assert subscriber.told == ["a", ("request", "answer"), "c", (new, 4), "news"]


@pytest.mark.parametrize("when", ["it ends", "it is made again"])
@pytest.mark.parametrize("error", [SubscriptionBusyError("Taken.", "Wait."), RuntimeError("can't start new thread")])
def test_refusal_is_told_and_ends_it(made: Made, when: str, error: Any) -> None:
    """Refuse it at its end, or when it is made again, also for a reason of the process: nobody tries once more."""
    link, subscriber, thread = made
    if when == "it ends":
        subscriber.links[0].end(error)
    else:
        subscriber.links[0].end(GONE)
        subscriber.answers = [error]
        link.keep(subscriber)
    assert subscriber.told[-1] is error
    tried, asked = len(subscriber.links), list(thread.asked)
    link.keep(subscriber)
    assert (len(subscriber.links), thread.asked) == (tried, asked)


@pytest.mark.parametrize("how", ["closed", "over"])
def test_nothing_is_connected_after_the_end(made: Made, how: str) -> None:
    """Close the link, or have the subscriber end, before a connection and while one is made: it is closed again."""
    link, subscriber, _ = made
    subscriber.links[0].end(GONE)
    opened = subscriber.open

    def end_meanwhile(new: Any) -> tuple[Any, Any]:
        answer = opened(new)
        if how == "closed":
            link.close()
        else:
            subscriber.over = True
        return answer

    subscriber.open = end_meanwhile  # type: ignore[method-assign]
    link.connect(subscriber)
    assert (link.current, subscriber.links[-1].is_closed) == (None, True)
    assert subscriber.told == ["lost"]
    link.close()


def test_close_disconnects(made: Made) -> None:
    """Close twice; what comes later is dropped."""
    link, subscriber, _ = made
    for _ in range(2):
        link.close()
    old = subscriber.links[0]
    old.deliver("late")
    old.end(GONE)
    assert (link.current, old.is_closed, subscriber.told) == (None, True, [])


def test_connection_keeps_no_subscriber(made: Made) -> None:
    """Forget another subscriber, and let its connection go on: nobody hears of it."""
    link, _, _ = made
    other = Subscriber()
    link.connect(other)
    connection, forgotten = other.links[0], weakref.ref(other)
    del other
    assert forgotten() is None
    connection.deliver("late")
    connection.end(GONE)
    assert link.current is connection
