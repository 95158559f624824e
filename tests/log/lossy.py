"""A way to the service that loses requests and answers, doubles calls, and carries out lost ones later."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from txn_source import UnavailableError
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.metadata.stub.transport import Transport
from txn_source.model.errors import InternalError, TxnLogError

WRITES = {"WriteTransaction", "Append", "BeginTransaction", "EndTransaction"}
"""The calls that are disturbed."""


class LossyWay:
    """The way, which is also a target for ``Log``. ``rate`` is how many of its calls that write are disturbed.

    A call that is to arrive late is carried out when another one comes, or by ``carry_out_late``.
    """

    timeout_s = 30.0

    def __init__(self, inner: Transport, seed: int) -> None:
        self.rate = 0.0
        self.disturbed: Counter[str] = Counter()
        self._inner = inner
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._late: list[tuple[str, Any]] = []
        self._failed: set[bytes] = set()

    def call(self, method: str, request: Any) -> Any:
        with self._lock:
            how = self._how(method, request)
            late = self._late.pop(0) if self._late and self._random.random() < 0.3 else None
        if late is not None:
            self._carry_out(*late)
        if how in ("lost", "late"):
            raise _lost()
        answer = self._inner.call(method, request)
        if how == "doubled":
            return self._inner.call(method, request)
        if how == "unanswered":
            raise _lost()
        if how == "failed":
            raise InternalError("The service failed after it had done it.", "Please report it.")
        return answer

    def carry_out_late(self) -> None:
        """Carry out the calls that were to arrive late and haven't yet."""
        while self._late:
            self._carry_out(*self._late.pop())

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        return self._inner.converse(method, requests)

    def open(self) -> tuple[MetadataStub, str]:
        stub = MetadataStub(self)
        return stub, stub.get_log().storage_uri

    def close(self) -> None:
        pass

    def _how(self, method: str, request: Any) -> str:
        if method not in WRITES or self._random.random() >= self.rate:
            return ""
        how = self._random.choice(["lost", "unanswered", "doubled", "late", "failed"])
        if how == "late":
            copy = type(request)()
            copy.CopyFrom(request)
            self._late.append((method, copy))
        if how == "failed":  # each call once: whoever repeats it finds out what came of it
            content = request.SerializeToString()
            how = "unanswered" if content in self._failed else how
            self._failed.add(content)
        self.disturbed[how] += 1
        return how

    def _carry_out(self, method: str, request: Any) -> None:
        with suppress(TxnLogError):
            self._inner.call(method, request)


def _lost() -> UnavailableError:
    return UnavailableError("It was lost.", "Try again.")
