"""Maintenance in the background of ``txnlog serve``: a thread that does what policies say, every so often."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from txn_source.cli.maintain import describe
from txn_source.client.access import Access
from txn_source.client.tiering.maintenance import maintain
from txn_source.client.tiering.snapshot_making import INTERVAL_S
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.service.observer import observed
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.observing.repeated_work import RepeatedWork
from txn_source.process.repeating import Repeating
from txn_source.storage.object_root import Root

if TYPE_CHECKING:
    from txn_source.metadata.service.observer import Observer
    from txn_source.metadata.service.service import MetadataService

_ENDING = ("CompleteOffload", "AbandonOffload")
"""Calls that end what was begun, so that a server that stops leaves less behind."""
_log = logging.getLogger("txnlog")


class BackgroundMaintenance:
    """A thread that maintains a log at once and then every so many seconds, until it is stopped.

    No failure ends it: what fails is logged and tried again in the next round. Stopping doesn't wait for a long
    offload: at its next call of the service it ends, and nothing is lost, because only what is complete counts.
    """

    def __init__(
        self,
        service: MetadataService,
        root: Root,
        interval_s: float,
        observer: Observer | None = None,
        snapshot_interval_s: float | None = INTERVAL_S,
    ) -> None:
        """``observer`` is told of the rounds, and of their calls; ``snapshot_interval_s`` None: none are kept."""
        self._repeating = Repeating(interval_s, self._once, "txnlog-tiers")
        self._observer = observer
        stub = MetadataStub(_Stoppable(InProcessTransport(service), self._repeating.stopping, observer))
        self._access = Access(stub, root)
        self._snapshot_interval_s = snapshot_interval_s
        self._rounds = RepeatedWork(_log, "maintenance")

    def start(self) -> None:
        """Begin, with a first round at once."""
        if self._observer is not None:
            self._observer.begins("policies")
        self._repeating.start()

    def stop(self, grace_s: float) -> bool:
        """End after the call under way; return False if that takes longer than the grace, and it is still at it."""
        return self._repeating.stop(grace_s)

    def _once(self) -> None:
        failure: Exception | None = None
        try:
            done = describe(maintain(self._access, snapshot_interval_s=self._snapshot_interval_s))
        except _Stopped:
            return
        except Exception as error:  # whatever it is, no reason to stop serving
            failure = error
            self._rounds.failed(error)
        else:
            self._rounds.succeeded()
            if done:
                _log.info("maintenance: %s", done)
        if self._observer is not None:
            self._observer.worked("policies", failure)


class _Stopped(BaseException):
    """Maintenance is to end; no ``Exception``, which it would take for a topic's failure."""


class _Stoppable:
    """Calls of the service, which raise ``_Stopped`` once the event is set."""

    def __init__(
        self, transport: InProcessTransport, stopping: threading.Event, observer: Observer | None = None
    ) -> None:
        self._transport = transport
        self._stopping = stopping
        self._observer = observer
        self.timeout_s = transport.timeout_s
        self.service = transport.service

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        raise NotImplementedError("maintenance consumes nothing")

    def call(self, method: str, request: Message) -> Any:
        if self._stopping.is_set() and method not in _ENDING:
            raise _Stopped
        with observed(self._observer, method):
            return self._transport.call(method, request)

    def close(self) -> None:
        """Leave the service open: it is the server's."""
