"""A way to the service that holds back parts of the conversations with consumers until told, and cuts them.

Requests are named as in ``ConsumeRequest`` (flow, acknowledge, redeliver, seek), answers as in ``ConsumeResponse``
(delivery, receipt, epoch_change). What is held back waits apart, each kind in order; the others pass: the threads on
either side that send and take them may be as slow as they like.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.log.reading import eventually
from tests.log.sites import Site
from txn_source import Consumer, Log, UnavailableError
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.metadata.stub.transport import Transport

_TIMEOUT_S = 30.0
_END = object()


class Talk:
    """One conversation on its way."""

    def __init__(self) -> None:
        self.requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.is_cut = False

    def cut(self) -> None:
        """Let the client see a lost connection; the service doesn't see it, and goes on."""
        self.is_cut = True
        self.answers.put(UnavailableError("The connection was cut.", "Connect again."))

    def end(self) -> None:
        """Let the service see the end, too."""
        self.requests.put(_END)


class HoldingWay:
    """The way, which is also a target for ``Log``."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.talks: list[Talk] = []
        self.answers: list[Any] = []
        """All answers that the service gave in conversations, held back or not."""
        self._held: set[str] = set()
        self._waiting: dict[str, list[tuple[Talk, Any]]] = defaultdict(list)
        self._lock = threading.RLock()
        self._threads: list[threading.Thread] = []

    @property
    def timeout_s(self) -> float:
        return _TIMEOUT_S

    def open(self) -> tuple[MetadataStub, str]:
        stub = MetadataStub(self)
        return stub, stub.get_log().storage_uri

    def call(self, method: str, request: Any) -> Any:
        return self.inner.call(method, request)

    def close(self) -> None:
        """End what is left, so that no thread waits for it."""
        for talk in self.talks:
            talk.end()
        for thread in self._threads:
            thread.join(_TIMEOUT_S)

    def hold(self, *kinds: str) -> None:
        """Hold back these kinds of requests and answers from now on."""
        with self._lock:
            self._held |= set(kinds)

    def held(self, kind: str, count: int = 1) -> list[Any]:
        """Wait until so many of a kind are held back, and return them."""
        eventually(lambda: len(self._waiting[kind]) >= count)
        return [item for _, item in self._waiting[kind]]

    def let_go(self, *kinds: str) -> None:
        """Send what was held back, and hold these kinds back no more."""
        with self._lock:
            for kind in kinds:
                self._held.discard(kind)
                for talk, item in self._waiting.pop(kind, []):
                    self._send(talk, item)

    def lose(self, kind: str) -> None:
        """Forget what was held back of a kind, and hold it back no more."""
        with self._lock:
            self._held.discard(kind)
            self._waiting.pop(kind, None)

    def deliveries(self, epoch: int) -> int:
        """Return how many messages the service has delivered in an epoch."""
        return sum(a.delivery.messages for a in self.answers if a.HasField("delivery") and a.delivery.epoch == epoch)

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        talk = Talk()
        self.talks.append(talk)
        self._run(self._take_requests, talk, requests)
        self._run(self._take_answers, talk, self.inner.converse(method, iter(talk.requests.get, _END)))
        while not isinstance(answer := talk.answers.get(), Exception):
            if talk.is_cut:
                break
            if answer is _END:
                return
            yield answer
        raise answer if isinstance(answer, Exception) else UnavailableError("The connection was cut.", "Again.")

    def _take_requests(self, talk: Talk, requests: Iterator[Any]) -> None:
        for request in requests:
            self._pass(talk, request)
        if not talk.is_cut:
            talk.end()

    def _take_answers(self, talk: Talk, answers: Iterator[Any]) -> None:
        try:
            for answer in answers:
                self.answers.append(answer)
                self._pass(talk, answer)
            talk.answers.put(_END)
        except Exception as error:
            talk.answers.put(error)

    def _pass(self, talk: Talk, item: Any) -> None:
        kind = item.WhichOneof("what")
        with self._lock:
            if kind in self._held:
                self._waiting[kind].append((talk, item))
            else:
                self._send(talk, item)

    def _send(self, talk: Talk, item: Any) -> None:
        is_request = item.DESCRIPTOR.name == "ConsumeRequest"
        if not (is_request and talk.is_cut):
            (talk.requests if is_request else talk.answers).put(item)

    def _run(self, what: Any, *operands: Any) -> None:
        thread = threading.Thread(target=what, args=operands, daemon=True)
        self._threads.append(thread)
        thread.start()


def holding(site: Site) -> tuple[Log, HoldingWay]:
    """Return a connection to a site's log, closed with the site, and the way that it takes."""
    way = HoldingWay(site.transport())
    log = Log(way)  # type: ignore[arg-type]
    site.at_end(log.close)
    return log, way


def settle(consumer: Consumer) -> None:
    """Return when the service has carried out what it knew it had to do for a consumer when this was called.

    It answers from the thread that delivers, and looks for deliveries between two answers.
    """
    link = consumer._link.current
    assert link is not None
    for _ in range(3):
        link.redeliver(consumer.epoch)  # of an epoch that it is in already: nothing happens
