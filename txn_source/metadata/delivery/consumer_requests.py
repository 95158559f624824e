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
from collections.abc import Callable, Iterable, Iterator

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.consumer_hub import ConsumerHub
from txn_source.metadata.delivery.consumer_session import ConsumerSession, Outbox
from txn_source.metadata.delivery.session_state import MAX_PERMITS, SessionState
from txn_source.metadata.delivery.subscribing import connect, lease_over, parts_in, received_in, subscription_gone
from txn_source.metadata.delivery.work import Work
from txn_source.metadata.protocol import convert_subscriptions as sub_wire
from txn_source.metadata.protocol.checks import check
from txn_source.metadata.protocol.convert import error_to_wire
from txn_source.metadata.store import consumers, deliveries, subscriptions
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.model.caller import Ending
from txn_source.model.errors import InternalError, InvalidArgumentError, StaleEpochError, TxnLogError
from txn_source.model.subscription import SubscriptionType
from txn_source.process import forks

_log = logging.getLogger(__name__)
Seek = Callable[[pb.SeekSubscriptionRequest], pb.SeekSubscriptionResponse]


class ConsumerConversation:
    """One consumer's requests, carried out; ``seek`` is the call of that name."""

    def __init__(self, work: Work, hub: ConsumerHub, seek: Seek) -> None:
        self._work = work
        self._hub = hub
        self._seek = seek
        self._process = forks.this_process
        self._outbox = Outbox()
        self._session: ConsumerSession | None = None

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
            if what == "redeliver":  # whoever has this answer has seen what was delivered before
                self._session.send_after_look(response)
                self._hub.wake(self._session)
            else:
                self._session.send(response)

    def _subscribe(self, request: pb.ConsumeRequest.Subscribe) -> None:
        self._hub.check_room()
        connected = self._work.write(lambda connection: connect(connection, request, self._work.now_ms()))
        subscription = connected.subscription
        limited = subscription.type is SubscriptionType.SHARED
        state = SessionState(subscription.epoch, connected.active, connected.cursors, limited=limited)
        who = connected.topic, subscription, connected.consumer_id
        session = ConsumerSession(*who, state, self._outbox, counts=request.counts)
        self._session = session  # now that it is committed, it has to be disconnected whatever happens
        self._hub.add(session, connected.message())

    def _flow(self, session: ConsumerSession, flow: pb.ConsumeRequest.Flow) -> None:
        if not 0 < flow.messages <= MAX_PERMITS:
            raise InvalidArgumentError(f"{flow.messages} is not a number of permits.", f"Use 1 to {MAX_PERMITS}.")
        with session.lock:
            had_none = session.state.permit(flow.epoch, flow.messages)
        if had_none:
            self._hub.wake(session)

    def _carry_out(
        self,
        session: ConsumerSession,
        what: str | None,
        request: pb.ConsumeRequest,
        receipt: pb.ConsumeResponse.Receipt,
    ) -> None:
        if what == "acknowledge":
            ack = sub_wire.acknowledgement_from_wire(request.acknowledge)
            count = self._work.write(lambda connection: subscriptions.acknowledge(connection, ack))
            if ack.epoch == session.state.epoch:
                self._hub.acknowledged_by(session, count)
        elif what == "seek":
            receipt.sought.CopyFrom(self._seek(request.seek))
        elif what == "leave":
            self._leave(session, request.leave)
        elif what == "count":
            self._count(session, request.count)
        elif what != "redeliver":
            raise InvalidArgumentError(f"{what!r} is not a request.", "Use those of this release.")
        elif session.subscription.type is SubscriptionType.SHARED:
            self._redeliver(session, request.redeliver)
        else:
            receipt.sought.epoch = self._redeliver_all(session, request.redeliver)

    def _redeliver(self, session: ConsumerSession, asked: pb.ConsumeRequest.Redeliver) -> None:
        parts = parts_in(asked)

        def redeliver(connection: Connection) -> bool:
            subscription = _current(connection, session)
            if asked.epoch != subscription.epoch:
                return False
            deliveries.redeliver(connection, subscription, session.consumer_id, parts, counts=session.counts)
            return True

        if self._work.write(redeliver):
            self._hub.acknowledged_by(session, sum(r.messages for _, ranges in parts for r in ranges))

    def _redeliver_all(self, session: ConsumerSession, asked: pb.ConsumeRequest.Redeliver) -> int:
        """Begin a new epoch of an ordered subscription; return it."""
        parts = parts_in(asked)

        def redeliver(connection: Connection) -> int:
            of = _current(connection, session), asked.epoch, session.consumer_id, parts
            return subscriptions.redeliver_all(connection, *of, counts=session.counts)

        return self._work.write(redeliver)

    def _count(self, session: ConsumerSession, asked: pb.ConsumeRequest.Redeliver) -> None:
        """Count what the consumer is about to hand out once more."""
        parts = parts_in(asked)

        def count(connection: Connection) -> None:
            subscription = _current(connection, session)
            if not consumers.is_connected(connection, subscription.subscription_id, session.consumer_id):
                raise lease_over()
            if asked.epoch != subscription.epoch:
                raise StaleEpochError("The messages are of an older epoch.", "Receive again.")
            deliveries.count(connection, subscription.subscription_id, session.consumer_id, parts)

        self._work.write(count)

    def _leave(self, session: ConsumerSession, told: pb.ConsumeRequest.Redeliver) -> None:
        """Disconnect a consumer that has reported its received messages."""
        self._hub.remove(session)

        def leave(connection: Connection) -> None:
            subscription = _current(connection, session)
            received = received_in(told, subscription)
            deliveries.redeliver(connection, subscription, session.consumer_id, received, counts=session.counts)
            consumers.remove(connection, session.consumer_id, reported=True)

        self._work.write(leave)

    def _close(self) -> None:
        session = self._session
        if session is None or self._process is not forks.this_process:
            return  # a forked child must not disconnect its parent's consumer
        self._hub.remove(session)
        try:
            self._work.write(lambda connection: consumers.remove(connection, session.consumer_id))
        except TxnLogError as error:
            _log.warning("consumer %d stays connected until its lease ends: %s", session.consumer_id, error)


def _current(connection: Connection, session: ConsumerSession) -> Subscription:
    """Return a consumer's subscription as it is now."""
    subscription = subscriptions.by_id(connection, session.subscription_id)
    if subscription is None:
        raise subscription_gone()
    return subscription
