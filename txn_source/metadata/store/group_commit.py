"""Group commit: writes of several threads that wait at the same time become one transaction, synced once.

1. A writer puts its action into the queue. If nobody leads, it does: it begins a transaction and carries out its own
   action, then those that are in the queue, and commits.
2. Actions of one kind that can be carried out together (``Joined``) are, in one step, and others each in a savepoint.
   One that is refused changes nothing and leaves the others alone. What came of an action is told only after the
   commit: until then nobody is told yes, and a refusal, which may rest on what another action of the group did, isn't
   told either.
3. If the commit is refused all are told so. If the leader is interrupted, nothing of the group has happened, and each
   of the others sees to its action itself.
4. Who waits looks by itself from time to time, so that nobody hangs because somebody forgot to wake it.

A writer that is alone pays for none of this: no savepoint, no other thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from txn_source.model.errors import InternalError, TxnLogError

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection

_log = logging.getLogger(__name__)
T = TypeVar("T")
I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

MAX_ACTIONS = 64
MAX_JOINED = 256
_MAX_S = 0.05
"""No action joins a group that has been at it for so long."""
_LOOK_S = 0.05
_LOOKING = 16
"""So many look every ``_LOOK_S`` seconds; more look less often, else thousands would do nothing but look."""


@dataclass(frozen=True, slots=True)
class Joined(Generic[I, R]):
    """An action that is carried out in one step with others of its kind.

    ``together`` returns for each item, in their order, what came of it; where that is an error, it has changed nothing
    for that item.
    """

    together: Callable[[Connection, Sequence[I]], Sequence[R | TxnLogError]]
    item: I

    def __call__(self, connection: Connection) -> R:
        [done] = self.together(connection, [self.item])
        if isinstance(done, TxnLogError):
            raise done
        return done


def look_s(waiting: int) -> float:
    """Return after how many seconds a writer looks by itself, while so many wait."""
    return _LOOK_S * max(1.0, waiting / _LOOKING)


@dataclass(frozen=True, slots=True)
class Urgent(Generic[R]):
    """An action that is carried out before all that wait: what must not come late, however many there are."""

    action: Callable[[Connection], R]

    def __call__(self, connection: Connection) -> R:
        return self.action(connection)


class Outcome:
    """What became of one transaction."""

    __slots__ = ("committed", "failure")

    def __init__(self) -> None:
        self.committed = False
        self.failure: Exception | None = None
        """Why all of it failed."""


class Transact(Protocol):
    """Carries out the body in one write transaction and commits it, and notes in the outcome that it did."""

    def __call__(self, body: Callable[[Connection], None], outcome: Outcome) -> None: ...


class _Waiting(Generic[T]):
    """A writer whose action isn't committed yet."""

    __slots__ = ("action", "bell", "error", "outcome", "value")

    def __init__(self, action: Callable[[Connection], T]) -> None:
        self.action = action
        self.bell = threading.Lock()
        self.bell.acquire()
        self.outcome: Outcome | None = None
        self.value: Any = None
        self.error: Exception | None = None

    @property
    def settled(self) -> bool:
        outcome = self.outcome
        return outcome is not None and (outcome.committed or outcome.failure is not None)

    def ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it was rung before
            self.bell.release()

    def result(self) -> T:
        """Return what the action returned, or raise what came of it; it is settled."""
        assert self.outcome is not None
        if not self.outcome.committed:
            raise _again(self.outcome.failure)
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[no-any-return]


class GroupCommit:
    """The writers of one process on one database."""

    def __init__(
        self, transact: Transact, before: Callable[[Connection], bool], after: Callable[[Connection], None]
    ) -> None:
        """``before`` is called once in each transaction, and says if it changed anything; ``after`` when it is
        committed."""
        self._transact = transact
        self._before = before
        self._after = after
        self._turn = threading.RLock()  # which knows whose it is
        self._queue: deque[_Waiting[Any]] = deque()

    def run(self, action: Callable[[Connection], T]) -> T:
        """Carry out an action in a write transaction; what it returns is durable when this returns.

        It may be carried out more than once, and by another thread, and counts once.
        """
        mine = _Waiting(action)
        try:
            try:
                if isinstance(action, Urgent):
                    self._queue.appendleft(mine)
                else:
                    self._queue.append(mine)
                while not mine.settled:
                    if self._turn.acquire(blocking=False):
                        return mine.result() if mine.settled else self._lead(mine)
                    mine.bell.acquire(timeout=look_s(len(self._queue)))
            finally:
                self._give_up_turn()
        finally:  # once more: an interrupt may have fallen on the line above
            self._give_up_turn()
            self._leave(mine)
        return mine.result()

    @property
    def waiting(self) -> int:
        """How many actions wait for their turn."""
        return len(self._queue)

    def while_nobody_writes(self, action: Callable[[], None], wait_s: float) -> None:
        """Do something between two transactions; leave it if there is no such moment for so long."""
        try:
            try:
                if self._turn.acquire(timeout=wait_s):
                    action()
            finally:
                self._give_up_turn()
        finally:  # once more, as above
            self._give_up_turn()
            self._wake_next()

    def _lead(self, mine: _Waiting[T]) -> T:
        """Carry out an action, and what waits in the queue meanwhile; this thread has the turn."""
        outcome = Outcome()
        mine.error, mine.outcome = None, outcome
        with contextlib.suppress(ValueError):
            self._queue.remove(mine)
        taken: list[_Waiting[Any]] = []
        last: list[Connection] = []

        def body(connection: Connection) -> None:
            last.append(connection)
            changed = self._before(connection)
            joined = self._take_like(mine, taken, outcome)
            if joined:
                _carry_out_together(connection, [mine, *joined])
            elif changed:
                _carry_out(connection, mine)  # what was done before stays, even if the action is refused
            else:
                mine.value = mine.action(connection)
            until = time.monotonic() + _MAX_S if self._queue else 0.0
            while self._queue and len(taken) < MAX_ACTIONS and time.monotonic() < until:
                waiting = self._queue.popleft()
                taken.append(waiting)
                waiting.error, waiting.outcome = None, outcome
                joined = self._take_like(waiting, taken, outcome)
                if joined:
                    _carry_out_together(connection, [waiting, *joined])
                else:
                    _carry_out(connection, waiting)

        try:
            self._transact(body, outcome)
        except Exception as error:
            if not outcome.committed:
                outcome.failure = error
            raise
        finally:
            for waiting in taken:
                waiting.ring()
        self._after(last[0])
        return mine.result()

    def _take_like(self, first: _Waiting[Any], taken: list[_Waiting[Any]], outcome: Outcome) -> Sequence[_Waiting[Any]]:
        """Take from the queue what can be carried out together with an action."""
        action = first.action
        if not isinstance(action, Joined) or not self._queue:
            return ()
        like = [w for w in list(self._queue) if isinstance(w.action, Joined) and w.action.together == action.together]
        joined = []
        for waiting in like[:MAX_JOINED]:
            try:
                self._queue.remove(waiting)
            except ValueError:  # its thread was interrupted
                continue
            taken.append(waiting)
            waiting.error, waiting.outcome = None, outcome
            joined.append(waiting)
        return joined

    def _give_up_turn(self) -> None:
        with contextlib.suppress(RuntimeError):  # raised unless this thread has it
            self._turn.release()

    def _leave(self, mine: _Waiting[Any]) -> None:
        """Forget an action that its caller doesn't wait for any more, and let the next one lead."""
        if mine.outcome is None:
            with contextlib.suppress(ValueError):
                self._queue.remove(mine)
        self._wake_next()

    def _wake_next(self) -> None:
        with contextlib.suppress(IndexError):
            self._queue[0].ring()


def _carry_out(connection: Connection, waiting: _Waiting[Any]) -> None:
    """Carry out one action of several: if it is refused, all others stay."""
    connection.exec_driver_sql("SAVEPOINT action")
    try:
        waiting.value = waiting.action(connection)
    except Exception as error:
        try:
            connection.exec_driver_sql("ROLLBACK TO action")
        except TxnLogError:
            raise error from None  # a full disk, say, took the whole transaction with it
        waiting.error = error
    connection.exec_driver_sql("RELEASE action")


def _carry_out_together(connection: Connection, all_of_them: Sequence[_Waiting[Any]]) -> None:
    """Carry out actions of one kind in one step; if the step itself fails, each by itself: one of them is to blame."""
    actions = [cast(Joined[Any, Any], waiting.action) for waiting in all_of_them]
    connection.exec_driver_sql("SAVEPOINT together")
    try:
        done = actions[0].together(connection, [action.item for action in actions])
    except Exception as error:
        try:
            connection.exec_driver_sql("ROLLBACK TO together")
        except TxnLogError:
            raise error from None  # a full disk, say, took the whole transaction with it
        for waiting in all_of_them:
            _carry_out(connection, waiting)
        return
    connection.exec_driver_sql("RELEASE together")
    for waiting, value in zip(all_of_them, done, strict=True):
        if isinstance(value, TxnLogError):
            waiting.error = value
        else:
            waiting.value = value


def _again(failure: Exception | None) -> Exception:
    """Return the error once more, for another thread."""
    if isinstance(failure, TxnLogError):
        return type(failure)(failure.fact, failure.remedy)
    return InternalError(f"A change failed with {type(failure).__name__}: {failure}.", "Please report it.")
