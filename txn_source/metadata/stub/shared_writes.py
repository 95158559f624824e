"""Writes of several threads that wait at the same time share one call.

1. A write stands in line. Whoever finds fewer than ``AT_ONCE`` calls under way makes one, with all that stand in line;
   when it has its answer, the first in line makes the next one.
2. One that is alone is made as the call that it is.
3. If a shared call is refused as a whole, one of its writes is to blame, and each is made once more by itself. If
   nobody was reached, those that stand in line are told so, too, instead of waiting for a try of their own.

Each write may be repeated: its sequences tell. Group commit in the service doesn't take the place of this: a call costs
client and service together a millisecond of a processor, so a hundred threads write twice as much by shared ones.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol.convert import error_from_wire
from txn_source.model.errors import TxnLogError, UnavailableError
from txn_source.process.shield import safe_point

AT_ONCE = 2
_TICK_S = 1.0
MAX_SHARED = 256
MAX_SHARED_BYTES = 4 << 20

Call = Callable[[str, Message], Any]
"""Makes the call of a name, and returns its answer."""
_FIELDS = {"Append": "append", "WriteTransaction": "transaction"}
"""The calls that can be shared, and where they stand in a shared one."""


class _Waiting:
    """A write whose outcome isn't known yet."""

    __slots__ = ("answer", "bell", "error", "group", "method", "request", "size")

    def __init__(self, method: str, request: Message) -> None:
        self.method = method
        self.request = request
        self.size = request.ByteSize()
        self.bell = threading.Lock()  # held until it is settled, or has a call to make
        self.bell.acquire()
        self.group: list[_Waiting] = []
        """What its thread has to call for, itself first; empty: another thread does."""
        self.answer: Any = None
        self.error: TxnLogError | None = None

    def take(self, written: pb.WriteAllResponse.Written) -> None:
        if written.HasField("error"):
            self.error = error_from_wire(written.error)
        else:
            self.answer = getattr(written, _FIELDS[self.method])


class _Line:
    """The waiting writes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._under_way = 0

    def stand(self, mine: _Waiting) -> None:
        """Return when a write is settled, or its thread has to make the call of its ``group``."""
        with self._lock:
            if self._under_way < AT_ONCE:
                self._under_way += 1
                mine.group = self._with_others(mine)
                return
            self._waiting.append(mine)
        while not mine.bell.acquire(timeout=_TICK_S):
            safe_point()

    def done(self, group: list[_Waiting]) -> None:
        """Let the threads of a call's writes go on, and the first in line make the next one."""
        with self._lock:
            if self._waiting:
                first = self._waiting.popleft()
                first.group = self._with_others(first)
                first.bell.release()
            else:
                self._under_way -= 1
        for waiting in group[1:]:
            waiting.bell.release()

    def leave(self, mine: _Waiting) -> None:
        """Withdraw a write whose caller was interrupted, so that the others continue."""
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return
        if mine.group:
            self.done(mine.group)

    def empty(self, error: UnavailableError) -> None:
        """Tell all in line that nobody can be reached."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.error = UnavailableError(error.fact, error.remedy)
            each.bell.release()

    def _with_others(self, first: _Waiting) -> list[_Waiting]:
        group, size = [first], first.size
        while self._waiting and len(group) < MAX_SHARED and size + self._waiting[0].size <= MAX_SHARED_BYTES:
            group.append(self._waiting.popleft())
            size += group[-1].size
        return group


class SharedWrites:
    """Makes the calls that write to a service, several of them in one where threads wait for that."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._line = _Line()

    @staticmethod
    def takes(method: str, request: Any) -> bool:
        """True if it is a call that others can share."""
        return method == "Append" or (method == "WriteTransaction" and not request.acknowledgements)

    def write(self, method: str, request: Message) -> Any:
        """Make a call; return its own answer, or raise its own error."""
        line = self._line
        mine = _Waiting(method, request)
        try:
            line.stand(mine)
        except BaseException:  # a second Ctrl-C
            line.leave(mine)
            raise
        if mine.group:
            try:
                self._make(line, mine.group)
            finally:
                line.done(mine.group)
        if mine.error is not None:
            raise mine.error
        return self._call(method, request) if mine.answer is None else mine.answer

    def _make(self, line: _Line, group: list[_Waiting]) -> None:
        """Make the call of a group; writes that are settled then have an answer or an error."""
        try:
            if len(group) == 1:
                group[0].answer = self._call(group[0].method, group[0].request)
            else:
                self._make_shared(group)
        except UnavailableError as error:
            for waiting in group:
                waiting.error = UnavailableError(error.fact, error.remedy)
            line.empty(error)
        except Exception:
            if len(group) == 1:
                raise

    def _make_shared(self, group: list[_Waiting]) -> None:
        request = pb.WriteAllRequest()
        for waiting in group:
            getattr(request.writes.add(), _FIELDS[waiting.method]).CopyFrom(waiting.request)
        answer = self._call("WriteAll", request)
        for waiting, written in zip(group, answer.writes, strict=True):
            waiting.take(written)
