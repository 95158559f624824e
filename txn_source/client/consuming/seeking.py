"""How a consumer moves to a new epoch: by a seek, or to have messages delivered again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from txn_source.client.consuming.consumer_state import ConsumerState
from txn_source.client.consuming.upkeep import not_connected
from txn_source.metadata.stub.consumer_stream import ConsumerLink
from txn_source.metadata.stub.subscriptions import SeekAnswer
from txn_source.model.errors import StaleEpochError, UnavailableError
from txn_source.model.message_ranges import index_of, message_id_of, position_of
from txn_source.model.position import MessageId
from txn_source.model.topic_name import TopicName

_log = logging.getLogger(__name__)
_SEEK_TRIES = 20


class Seeking(ConsumerState):
    """Part of ``Consumer``."""

    def seek(self, to: Any) -> dict[int, MessageId]:
        """Move the subscription; when it returns nothing from before it is received any more.

        Args:
            to: ``earliest``, ``latest``, a ``MessageId`` or ``Position`` (or its text; that message is the next), a
                datetime (the first message published then or after), or a mapping ``{"orders": {0: "12:40"}}``.
                Partitions that it doesn't name go back to what they have not acknowledged.

        Returns:
            Where it stands now, by partition: the next message. A place before the start or beyond the end is replaced
            by the nearest one, with a warning in the log.
        """
        from txn_source.client.consuming.admin import placed

        self._check_open()
        with self._seeking:
            where, points = placed(self._stub, self._root, TopicName.parse(self.topic), to, self._level)
            topic, name = self._request.topic, self.subscription
            with suppress(UnavailableError):  # they count in the partitions that stay where they are
                self.flush()

            def ask(link: ConsumerLink, epoch: int) -> SeekAnswer:
                stand = {} if where or self._request.durable else self._stand()
                return link.seek(topic, name, where, stand | points, epoch)

            sought = self._begin_epoch(ask)
            for partition_id in sought.moved:
                at = sought.points[partition_id]
                _log.warning(
                    "topic %s, partition %d: subscription %s can't stand at %s; it is at the nearest place, %s:%d",
                    self.topic, self._partitions[partition_id], name, to, position_of(at), index_of(at),
                )  # fmt: skip
            return {self._partitions[p]: message_id_of(key) for p, key in sorted(sought.points.items())}

    def redeliver(self) -> None:
        """Have all that was delivered to this consumer and isn't acknowledged delivered again, now."""
        self.flush()
        if self.type.in_order:
            with self._seeking:
                self._begin_epoch(self._redeliver_in)
        else:
            with self._lock:
                self._upkeep.due(0.0)
                link, self._upkeep.link, self._ear = self._upkeep.link, None, None
                self._inbox.drop()
            if link is not None:
                link.close()

    def _stand(self) -> dict[int, int]:
        """Return the place that only a reader knows; nothing more is taken of what was delivered before its seek."""
        with self._lock:
            return self._inbox.stand()

    def _redeliver_in(self, link: ConsumerLink, epoch: int) -> SeekAnswer:
        return SeekAnswer(link.redeliver(epoch), {}, frozenset())

    def _begin_epoch(self, ask: Callable[[ConsumerLink, int], SeekAnswer]) -> SeekAnswer:
        """Raise the epoch here, drop what is queued, then raise it at the service."""
        retry_until = time.monotonic() + self._stub.transport.timeout_s
        try:
            for _ in range(_SEEK_TRIES):
                with self._lock:
                    self._check_open()
                    self._settle()
                    self._epoch += 1
                    epoch, link, origin = self._epoch, self._upkeep.link, self._origin
                    self._inbox.drop()
                try:
                    if link is None:
                        raise not_connected()
                    sought = ask(link, epoch)
                    with self._lock:
                        if self._upkeep.link is not link:  # the next one may begin where this one stood, in its epoch
                            raise not_connected()
                        self._redeliver_nothing_older(sought.epoch)
                        self._inbox.begin_at(sought.points)
                        if self._origin is origin:  # else what it moved to was delivered before its answer
                            self._origin = replace(origin)
                        self._astray = False
                    return sought
                except StaleEpochError:
                    [info] = self._stub.list_subscriptions(
                        TopicName.parse(self._request.topic), self.subscription, brief=True
                    )
                    with self._lock:
                        self._epoch = max(self._epoch, info.epoch)
                except UnavailableError:
                    if ask == self._redeliver_due or not self._connected_anew(link, retry_until):
                        raise
        except BaseException:  # the service may have stayed in the epoch before: find out by connecting again
            self._astray = True
            self._upkeep.wake()
            raise
        raise StaleEpochError(
            f"Others moved subscription {self.subscription!r} {_SEEK_TRIES} times while this call tried.", "Try again."
        )

    def _redeliver_due(self, link: ConsumerLink, epoch: int) -> SeekAnswer:
        """Do what ``_redeliver_in`` does, from the thread that connects again and so can't wait for that."""
        return self._redeliver_in(link, epoch)

    def _connected_anew(self, lost: ConsumerLink | None, until: float) -> bool:
        """Wait until there is another connection than one that was lost; return False when the time is up."""
        while True:
            with self._lock:
                if self._refusal is not None:
                    return False
                if self._upkeep.link not in (None, lost):
                    return True
                ticket = self._news.expect()
            if not self._wait(ticket, until):
                return False

    def _redeliver_nothing_older(self, epoch: int) -> None:
        self._epoch = max(self._epoch, epoch)
        self._redeliveries.forget_before(self._epoch)

    def _wait(self, ticket: threading.Lock, deadline: float | None) -> bool:
        """Wait until something comes; return False when the time is up."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            self._news.wait(ticket, 0.0)
            return False
        self._news.wait(ticket, left)
        return True
