"""The conversation with one consumer: what it asks for.

1. The first request subscribes. The cursor in the database says where deliveries begin.
2. Each request is carried out in the thread that takes it, and answered by a receipt; permits are answered by
   deliveries, which the dispatcher makes.
3. Whatever is delivered is read in the same database transaction as the epoch that it carries. So a seek, made by
   whomever, comes before a delivery or after it, and one that was issued before it carries the smaller epoch.
4. It ends when the requests do, when the consumer has lost its lease, or when the subscription is gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery import subscribing
from txn_source.metadata.delivery.consumer_hub import ConsumerHub
from txn_source.metadata.delivery.session import MAX_PERMITS, Outbox, Session
from txn_source.metadata.delivery.work import Work
from txn_source.metadata.protocol import convert_subscriptions as sub_wire
from txn_source.metadata.protocol.checks import check
from txn_source.metadata.protocol.convert import error_to_wire
from txn_source.metadata.store import consumers, subscriptions
from txn_source.model.caller import Ending
from txn_source.model.errors import InternalError, InvalidArgumentError, TxnLogError
from txn_source.process import forks

_log = logging.getLogger(__name__)


class Conversation:
    """One consumer's requests, carried out."""

    def __init__(self, work: Work, hub: ConsumerHub) -> None:
        self._work = work
        self._hub = hub
        self._process = forks.this_process
        self._outbox = Outbox()
        self._session: Session | None = None

    def hold(self, requests: Iterable[pb.ConsumeRequest], ending: Ending | None = None) -> Iterator[pb.ConsumeResponse]:
        """Answer the requests until they end, from this thread; raise what ends the conversation otherwise."""
        thread = threading.Thread(target=self._take_all, args=(requests,), name="txnlog-requests", daemon=True)
        thread.start()
        try:
            yield from self._outbox.answers(ending)
        finally:
            self._close()

    def _take_all(self, requests: Iterable[pb.ConsumeRequest]) -> None:
        try:
            for request in requests:
                self._take(request)
        except TxnLogError as error:
            self._outbox.put(error)
        except BaseException as error:
            if self._session is None:
                _log.exception("a conversation failed")
            remedy = "Try again."
            self._outbox.put(InternalError(f"The conversation failed with {type(error).__name__}: {error}.", remedy))
        finally:
            self._outbox.put(None)

    def _take(self, request: pb.ConsumeRequest) -> None:
        what = request.WhichOneof("what")
        if what == "subscribe":
            check(request)
            if self._session is not None:
                raise InvalidArgumentError("The conversation has a subscription already.", "Hold another one.")
            self._subscribe(request.subscribe)
        elif self._session is None:
            raise InvalidArgumentError("The conversation doesn't begin with a subscription.", "Subscribe first.")
        elif what == "flow":
            check(request)
            self._flow(self._session, request.flow)
        else:
            receipt = pb.ConsumeResponse.Receipt(sequence=request.sequence)
            try:
                check(request)
                self._carry_out(self._session, what, request, receipt)
            except TxnLogError as error:
                receipt.error.CopyFrom(error_to_wire(error))
            response = pb.ConsumeResponse(receipt=receipt)
            if what == "redeliver":  # all that was delivered before the request reaches the caller before this answer
                self._session.send_after_look(response)
                self._hub.wake(self._session)
            else:
                self._session.send(response)

    def _subscribe(self, request: pb.ConsumeRequest.Subscribe) -> None:
        self._hub.check_room()
        found = self._work.write(lambda connection: subscribing.connect(connection, request, self._work.now_ms()))
        session = Session(
            found.topic, found.subscription, found.consumer_id, self._outbox, found.cursors,
            active=found.active, counts=request.counts,
        )  # fmt: skip
        self._session = session  # now that it is committed, it has to be disconnected whatever happens
        self._hub.add(session, found.message())

    def _flow(self, session: Session, flow: pb.ConsumeRequest.Flow) -> None:
        if not 0 < flow.messages <= MAX_PERMITS:
            raise InvalidArgumentError(f"{flow.messages} is not a number of permits.", f"Use 1 to {MAX_PERMITS}.")
        if session.permit(flow.epoch, flow.messages):
            self._hub.wake(session)

    def _carry_out(
        self, session: Session, what: str | None, request: pb.ConsumeRequest, receipt: pb.ConsumeResponse.Receipt
    ) -> None:
        write, of = self._work.write, (session.subscription_id, session.consumer_id)
        match what:
            case "acknowledge":
                ack = sub_wire.acknowledgement_from_wire(request.acknowledge)
                count = write(lambda connection: subscriptions.acknowledge(connection, ack))
                if ack.epoch == session.epoch:
                    self._hub.acknowledged_by(session, count)
            case "seek":
                receipt.sought.CopyFrom(subscribing.seek(self._work, request.seek))
            case "redeliver":
                told, counts = request.redeliver, session.counts
                done = write(lambda connection: subscribing.redeliver(connection, *of, told, counts=counts))
                self._hub.acknowledged_by(session, done.messages)
                if done.epoch is not None:
                    receipt.sought.epoch = done.epoch
            case "count":
                write(lambda connection: subscribing.count(connection, *of, request.count))
            case "leave":
                self._hub.remove(session)
                write(lambda connection: subscribing.leave(connection, *of, request.leave, counts=session.counts))
            case _:
                raise InvalidArgumentError(f"{what!r} is not a request.", "Use those of this release.")

    def _close(self) -> None:
        session = self._session
        if session is None or self._process is not forks.this_process:
            return  # a forked child must not disconnect its parent's consumer
        self._hub.remove(session)
        try:
            self._work.write(lambda connection: consumers.remove(connection, session.consumer_id))
        except TxnLogError as error:
            _log.warning("consumer %d stays connected until its lease ends: %s", session.consumer_id, error)
