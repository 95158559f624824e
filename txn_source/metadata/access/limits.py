"""How much one identity may ask of this service: a bucket of tokens for calls, one for the bytes of answers, counts."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from txn_source.model.errors import LimitExceededError, RateLimitedError, shown

_BURST_S = 2.0
"""What an identity saves up while it asks for nothing is what it may ask for in this time."""
_IDENTITIES = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for each identity; None: no limit.

    ``calls`` are those in a second, ``answer_bytes`` the bytes of their answers in a second, ``request_bytes`` those of
    one request, ``consumers`` and ``transactions`` the ones that are open at once; consumers those of this service,
    transactions those of the log.
    """

    calls: float | None = None
    answer_bytes: float | None = None
    request_bytes: int | None = None
    consumers: int | None = None
    transactions: int | None = None


class _Bucket:
    """Fills by ``rate`` a second, up to what comes in the burst time; may be overdrawn by one call."""

    __slots__ = ("at", "left")

    def __init__(self, rate: float, now: float) -> None:
        self.left = max(1.0, rate * _BURST_S)
        self.at = now

    def fill(self, rate: float, now: float) -> None:
        self.left = min(max(1.0, rate * _BURST_S), self.left + rate * max(0.0, now - self.at))
        self.at = now


class Usage:
    """What each identity has asked for lately."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: OrderedDict[str, _Bucket] = OrderedDict()
        self._bytes: OrderedDict[str, _Bucket] = OrderedDict()
        self._consumers: Counter[str] = Counter()

    def call(self, name: str, request_bytes: int) -> None:
        """Take notice of a call that begins.

        Raises:
            LimitExceededError: its request is too large.
            RateLimitedError: the identity calls too often, or was answered too much.
        """
        limits = self.limits
        if limits.request_bytes is not None and request_bytes > limits.request_bytes:
            raise LimitExceededError(
                f"The request has {request_bytes:,} bytes, and {limits.request_bytes:,} is the most that this service"
                " takes of one identity.",
                "Send less at once.",
            )
        if limits.calls is None and limits.answer_bytes is None:
            return
        with self._lock:
            if limits.answer_bytes is not None and self._filled(self._bytes, name, limits.answer_bytes).left <= 0:
                raise _too_much(name, f"{limits.answer_bytes:,.0f} bytes of answers")
            if limits.calls is not None:
                bucket = self._filled(self._calls, name, limits.calls)
                if bucket.left < 1:
                    raise _too_much(name, f"{limits.calls:g} calls")
                bucket.left -= 1

    def is_overdrawn(self, name: str) -> bool:
        """True if an identity was answered so much that it has to wait."""
        if self.limits.answer_bytes is None:
            return False
        with self._lock:
            return self._filled(self._bytes, name, self.limits.answer_bytes).left <= 0

    def answered(self, name: str, answer_bytes: int) -> None:
        """Take notice of an answer."""
        if self.limits.answer_bytes is not None:
            with self._lock:
                self._filled(self._bytes, name, self.limits.answer_bytes).left -= answer_bytes

    @contextmanager
    def consumer(self, name: str) -> Iterator[None]:
        """Have a consumer connected for so long.

        Raises:
            LimitExceededError: the identity has as many as it may have.
        """
        limit = self.limits.consumers
        with self._lock:
            if limit is not None and self._consumers[name] >= limit:
                raise LimitExceededError(
                    f"{shown(name)} has {limit} consumers connected to this service, which is all that it may have.",
                    "Close some first.",
                )
            self._consumers[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._consumers[name] -= 1
                if not self._consumers[name]:
                    del self._consumers[name]

    def _filled(self, buckets: OrderedDict[str, _Bucket], name: str, rate: float) -> _Bucket:
        return _filled(buckets, name, rate, self._clock())


def _filled(buckets: OrderedDict[str, _Bucket], name: str, rate: float, now: float) -> _Bucket:
    bucket = buckets.get(name)
    if bucket is None:
        bucket = buckets[name] = _Bucket(rate, now)
        if len(buckets) > _IDENTITIES:
            buckets.popitem(last=False)
    else:
        buckets.move_to_end(name)
        bucket.fill(rate, now)
    return bucket


def _too_much(name: str, rate: str) -> RateLimitedError:
    return RateLimitedError(
        f"{shown(name)} asks for more than {rate} in a second, which is all that this service allows one identity.",
        "Wait a little, then try again; put more into each call.",
    )
