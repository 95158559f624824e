"""The database transactions that calls are made of, and what is done in them for time's sake."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message

from txn_source.metadata.service.callers import caller
from txn_source.metadata.store.database import Database, once_committed
from txn_source.metadata.store.due import Due, read_due, read_due_of_any_version, was_ahead
from txn_source.metadata.store.group_commit import Joined
from txn_source.model.caller import Caller
from txn_source.model.errors import InvalidArgumentError, TxnLogError, shown
from txn_source.model.transaction import EndReason

if TYPE_CHECKING:
    from txn_source.metadata.store.appends import Write, Written
    from txn_source.metadata.store.connection import Connection
    from txn_source.metadata.store.timekeeping import Timekeeping

Clock = Callable[[], int]
"""Returns the time in microseconds since the epoch (UTC)."""

Timed = Callable[[str, float], None]
"""Takes ``read`` or ``write``, and seconds."""
TimedOut = Callable[[int], None]
"""Takes how many transactions were aborted at their timeout."""

R = TypeVar("R", bound=Message)
T = TypeVar("T")


def system_clock() -> int:
    """Return the machine's time."""
    return time.time_ns() // 1000


class UnitOfWork:
    """Reads and writes of one service's database.

    Whoever looks at bounds, or writes, first aborts the transactions that are past their deadline: nobody sees one
    that is still open then.
    """

    def __init__(self, database: Database, clock: Clock, configuration: Mapping[str, Any] | None = None) -> None:
        self._database = database
        self.configuration = dict(configuration or {})
        """The broker's policies."""
        self._clock = clock
        self.timed: Timed | None = None
        """Is told how long each transaction of the database took, with its waiting; None: nobody is."""
        self.has_written = False
        """True once something was changed."""
        self.timed_out: TimedOut | None = None
        """Is told of transactions that were aborted at their timeout, once that is committed."""
        self._seen: Due | None = None
        """What the last read has shown, which nothing later is behind."""
        database.before_write = self._do_what_is_due
        database.is_due = lambda connection: bool(read_due_of_any_version(connection, self.now_ms()).overdue)

    @cached_property
    def _timekeeping(self) -> Timekeeping:
        from txn_source.metadata.store.timekeeping import Timekeeping  # with all that it mends; only writers look

        return Timekeeping()

    @property
    def read_only(self) -> bool:
        """True if this process can't write the database: then what time asks for is left to others."""
        return self._database.read_only

    def now_us(self) -> int:
        """Return the time in microseconds since the epoch."""
        return self._clock()

    def now_ms(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return self._clock() // 1000

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read of one moment that shows no open transaction past its deadline.

        Raises:
            UnavailableError: the database shows an earlier state than before.
        """
        seen = self._seen
        with self.read_history() as connection:
            if self._database.read_only or not self._is_due(connection, seen):
                yield connection
                return
        self.write(lambda _: None)
        with self.read_history() as connection:
            yield connection

    def read_history(self) -> AbstractContextManager[Connection]:
        """A read of one moment, of what doesn't depend on deadlines: names, entries, and what is decided."""
        return self._database.read() if self.timed is None else self._timed_read(self.timed)

    @contextmanager
    def _timed_read(self, timed: Timed) -> Iterator[Connection]:
        began = time.perf_counter()
        try:
            with self._database.read() as connection:
                yield connection
        finally:
            timed("read", time.perf_counter() - began)

    def write(self, action: Callable[[Connection], T]) -> T:
        """Change something, see ``Database.write``. Transactions past their deadline are aborted first, and stay so
        even if the change is refused."""
        self.has_written = True
        if self.timed is None:
            return self._database.write(action)
        began = time.perf_counter()
        try:
            return self._database.write(action)
        finally:
            self.timed("write", time.perf_counter() - began)

    def register(self, writes: Sequence[Write]) -> Sequence[Written | TxnLogError]:
        """Register writes, in one step with what others write at the same time; return what came of each."""
        return self.write(Joined(self._register, writes))

    def once(self, request: Any, response: type[R], action: Callable[[Connection], R]) -> R:
        """Carry out a change once for each request id, and answer a repetition as the first time.

        Raises:
            InvalidArgumentError: the request has no id, or its id came with another kind of call or other content; the
                answer to that is none to this.
        """
        from txn_source.metadata.store import requests

        request_id = request.request_id
        if not request_id:
            raise InvalidArgumentError("The call has no request id.", "Send a fresh unique one with each change.")
        fingerprint = _fingerprint(request, caller())

        def once(connection: Connection) -> R:
            known = requests.find(connection, request_id)
            if known is not None:
                if known.fingerprint != fingerprint:
                    raise InvalidArgumentError(
                        f"The request id {shown(request_id)} was used for another call, or with other content.",
                        "Send a fresh unique one with each change; only a repetition has the same.",
                    )
                return response.FromString(known.answer)
            answer = action(connection)
            known = requests.KnownAnswer(answer.SerializeToString(), fingerprint)
            requests.keep(connection, request_id, known, self._timekeeping.measured_ms)
            return answer

        return self.write(once)

    def _register(
        self, connection: Connection, of_each: Sequence[Sequence[Write]]
    ) -> Sequence[Sequence[Written | TxnLogError]]:
        from txn_source.metadata.store.appends import write_all  # with all that writes, which a reader never needs

        together = [one for writes in of_each for one in writes]
        came = iter(write_all(connection, together, self._clock(), self.configuration))
        return [list(islice(came, len(writes))) for writes in of_each]

    def _is_due(self, connection: Connection, seen: Due | None) -> bool:
        """True if something is to be done before anything is read; ``seen`` is from before the read began."""
        now_ms = self.now_ms()
        due = read_due(connection, now_ms)
        due.check_not_back(seen)
        self._seen = due
        return bool(due.overdue) or was_ahead(due, now_ms)

    def _do_what_is_due(self, connection: Connection) -> bool:
        """Do what time asks for, before anything else is written; return True if that changed anything."""
        now_us = self._clock()
        read = read_due_of_any_version if self._database.read_only else read_due
        seen = self._seen
        due = read(connection, now_us // 1000)
        due.check_not_back(seen)
        looked = self._timekeeping.look(connection, due, now_us // 1000)
        for txn in due.overdue:
            from txn_source.metadata.store import transactions

            transactions.end(connection, txn, commit=False, reason=EndReason.TIMEOUT, now_us=now_us)
        if due.overdue and self.timed_out is not None:
            once_committed(connection, partial(self.timed_out, len(due.overdue)))
        return looked or bool(due.overdue)


def _fingerprint(request: Message, of: Caller | None) -> bytes:
    """Tell requests apart by their kind, all that is in them, and who makes them."""
    kind = request.DESCRIPTOR.name.encode()
    whose = b"" if of is None else b"\0" + of.name.encode()
    return hashlib.sha256(kind + whose + b"\0" + request.SerializeToString(deterministic=True)).digest()
