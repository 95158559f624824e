"""How a consumer moves to a new epoch: by a seek, or to have messages delivered again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from txn_source.client.access import Access
from txn_source.client.consuming.acknowledging import Acknowledging
from txn_source.client.consuming.consumer_state import ConsumerState
from txn_source.client.consuming.subscription_places import resolve_place
from txn_source.client.places import GivenPlace, Sought
from txn_source.metadata.stub.conversation import Conversation
from txn_source.metadata.stub.subscriptions import SeekAnswer
from txn_source.model.errors import StaleEpochError, TxnLogError, UnavailableError
from txn_source.model.position import MessageId

_log = logging.getLogger(__name__)
_SEEK_TRIES = 20


class EpochChanges:
    """Raises a consumer's epoch, first here and then at the service; one at a time for callers (``seeking``)."""

    def __init__(self, access: Access, state: ConsumerState, acknowledging: Acknowledging) -> None:
        self.seeking = threading.Lock()
        """Held while a caller's change is under way."""
        self._access = access
        self._state = state
        self._acknowledging = acknowledging

    def seek(self, to: GivenPlace) -> Sought:
        """Move the subscription; see ``Consumer.seek``."""
        state = self._state
        state.check_open()
        with self.seeking:
            place = resolve_place(self._access, state.topic_name, to, state.level)
            with suppress(UnavailableError):  # they count in the partitions that stay where they are
                self._acknowledging.flush()

            def ask(conversation: Conversation, epoch: int) -> SeekAnswer:
                known = {} if place.where or state.given.durable else self._cursors()
                whole = replace(place, messages={**known, **place.messages})
                return conversation.seek(state.given.topic, state.given.name, whole, epoch)

            sought = self._told(self.begin(ask))
            for partition in sorted(sought.moved):
                _log.warning(
                    "topic %s, partition %d: subscription %s can't stand at %s; it is at the nearest place, %s",
                    state.topic_name.short, partition, state.given.name, to, sought[partition],
                )  # fmt: skip
            return sought

    def redeliver(self) -> None:
        """Have all that isn't acknowledged delivered again, now; see ``Consumer.redeliver``."""
        state = self._state
        self._acknowledging.flush()
        if state.given.type.in_order:
            with self.seeking:
                self.begin(self._redelivery())
        else:
            with state.lock:
                given_up = state.link.give_up()
                state.queue.drop()
                received = state.sender.received(state.epoch)
            if given_up is not None:
                with suppress(TxnLogError):  # the service then takes all of it for delivered, unless it was before
                    given_up.leave(state.epoch, received)
                given_up.close()

    def redeliver_due(self) -> None:
        """Redeliver an ordered subscription's due messages, after the acknowledgements made so far.

        Without a connection the next one redelivers everything.
        """
        with self.seeking:
            with suppress(UnavailableError):
                self._acknowledging.flush()
            if self._acknowledging.takes_due():
                with suppress(UnavailableError, StaleEpochError):
                    self.begin(self._redelivery(), may_wait=False)

    def begin(self, ask: Callable[[Conversation, int], SeekAnswer], *, may_wait: bool = True) -> SeekAnswer:
        """Raise the epoch here, drop what is queued, then raise it at the service.

        Args:
            ask: asks the service over a connection for an epoch.
            may_wait: wait for another connection, and ask again, if one is lost.

        Raises:
            UnavailableError: there was no connection for as long as a call may take.
            StaleEpochError: others begin new epochs all the time.
        """
        state, link = self._state, self._state.link
        retry_until = time.monotonic() + self._access.metadata.transport.timeout_s
        try:
            for _ in range(_SEEK_TRIES):
                with state.lock:
                    state.check_open()
                    state.epoch, state.late = state.epoch + 1, {}
                    epoch, conversation = state.epoch, link.current
                    state.queue.drop()
                try:
                    answer = ask(conversation or link.conversation, epoch)
                    with state.lock:
                        if link.current is not conversation:  # the next may begin where this one stood, in its epoch
                            raise UnavailableError("The connection was lost.", "Try again.")
                        state.follow_epoch(answer.epoch)
                        state.queue.begin_at(answer.messages)
                    return answer
                except StaleEpochError:
                    [info] = self._access.metadata.list_subscriptions(state.topic_name, state.given.name, brief=True)
                    with state.lock:
                        state.epoch = max(state.epoch, info.epoch)
                except UnavailableError:
                    if not may_wait or not self._connected_anew(conversation, retry_until):
                        raise
        except BaseException:  # the service may have stayed in the epoch before: find out by connecting again
            link.renew()
            raise
        raise StaleEpochError(
            f"Others moved subscription {state.given.name!r} {_SEEK_TRIES} times while this call tried.", "Try again."
        )

    def _redelivery(self) -> Callable[[Conversation, int], SeekAnswer]:
        """Return what asks for a redelivery in order, and reports what was received in the current epoch."""
        with self._state.lock:
            self._state.queue.note_received()
            received = self._state.sender.received(self._state.epoch)
        return lambda conversation, epoch: SeekAnswer(conversation.redeliver(epoch, received), {}, frozenset())

    def _cursors(self) -> dict[int, MessageId]:
        """Return how far a reader is, which only it knows; no more is taken of what was delivered before its seek."""
        with self._state.lock:
            return self._state.queue.cursors()

    def _told(self, answer: SeekAnswer) -> Sought:
        """Return what the caller is told of a seek, which may know of partitions that the consumer doesn't yet."""
        state = self._state
        if not answer.messages.keys() <= state.topic.partitions.keys():
            [view] = self._access.metadata.get_view([state.topic_name]).topics
            with state.lock:
                state.add_partitions({p.partition_id: p.index for p in view.partitions}, {})
        return sought_of(answer, state.topic.partitions)

    def _connected_anew(self, lost: Conversation | None | None, until: float) -> bool:
        """Wait until there is another connection than one that was lost; return False when the time is up."""
        state = self._state
        while True:
            with state.lock:
                if state.refusal is not None:
                    return False
                if state.link.current not in (None, lost):
                    return True
                ticket = state.news.expect()
            if not state.wait(ticket, until):
                return False


def sought_of(answer: SeekAnswer, indexes: Mapping[int, int]) -> Sought:
    """Return what callers are told of a seek; ``indexes`` are those of the partitions by id."""
    places = {indexes[partition_id]: at for partition_id, at in answer.messages.items()}
    moved = frozenset(indexes[partition_id] for partition_id in answer.moved)
    return Sought(answer.epoch, dict(sorted(places.items())), moved)
