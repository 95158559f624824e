"""What is known of one connected consumer: its epoch, its permits, and how far each partition was read for it.

1. It begins with the subscription's epoch, at the subscription's cursors.
2. Permits of the current epoch let messages be delivered; each message that is delivered uses one.
3. A new epoch, or another active consumer, begins anew at the cursors. Permits that were given before are void.
4. Partitions that are added to the topic join the epoch at their cursors, once the consumer is told of them.

Nothing here waits, or touches the database or the wire.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from txn_source.metadata.delivery.next_entries import ReadCursor
from txn_source.model.message_ranges import position_of
from txn_source.model.subscription import Cursor
from txn_source.model.topic import PartitionView

MAX_PERMITS = 1_000_000
MAX_UNACKNOWLEDGED = 50_000
"""A consumer of a shared subscription that has so many messages gets no more until it acknowledges some."""
_DELIVERED = itertools.count(1)


class SessionState:
    """One consumer's permits and cursors.

    ``active`` False: another consumer of the subscription gets the messages. ``unacknowledged`` messages were delivered
    to it, in this epoch if the subscription isn't shared. ``last_delivery`` grows from delivery to delivery, over all
    consumers; 0: nothing was delivered yet.
    """

    def __init__(self, epoch: int, active: bool, cursors: Mapping[int, Cursor], *, limited: bool = True) -> None:
        """Begin with what the subscription has acknowledged, by partition id; ``limited``: see MAX_UNACKNOWLEDGED."""
        self._limited = limited
        self.permits = self.unacknowledged = self.last_delivery = 0
        self._first = 0
        self._known = set(cursors)
        self._begin(epoch, active, cursors)

    def unknown(self, partitions: Sequence[PartitionView]) -> list[PartitionView]:
        """Return those of a topic's partitions that the consumer hasn't been told of."""
        return [view for view in partitions if view.partition_id not in self._known]

    def join(self, cursors: Mapping[int, Cursor]) -> None:
        """Take partitions, with what the subscription has acknowledged of them, that the consumer is told of now.

        The epoch goes on. What it has of them already stays: another epoch may have begun since they were added.
        """
        self._known |= cursors.keys()
        for partition_id, cursor in cursors.items():
            self._acknowledged.setdefault(partition_id, cursor)
            self._read.setdefault(partition_id, ReadCursor.at(position_of(cursor.mark)))

    def begin(self, epoch: int, active: bool, cursors: Mapping[int, Cursor]) -> None:
        """Begin a new epoch, or one as the active consumer: where the cursors stand, without permits."""
        self.permits = self.unacknowledged = 0
        self._begin(epoch, active, cursors)

    def _begin(self, epoch: int, active: bool, cursors: Mapping[int, Cursor]) -> None:
        self.epoch, self.active = epoch, active
        self._acknowledged = dict(cursors)
        self._read = {partition_id: ReadCursor.at(position_of(c.mark)) for partition_id, c in cursors.items()}

    def permit(self, epoch: int, messages: int) -> bool:
        """Permit so many messages more; permits of another epoch are void.

        Returns True if there were none left: else whoever looked last has delivered all that there was.
        """
        if epoch != self.epoch:
            return False
        had_none = self.permits <= 0
        self.permits = min(MAX_PERMITS, self.permits + messages)
        return had_none

    def ready(self, epoch: int) -> int:
        """Return how many messages may be handed out now, in an epoch."""
        if not self.active or epoch != self.epoch:
            return 0
        most = MAX_UNACKNOWLEDGED - self.unacknowledged if self._limited else MAX_PERMITS
        return max(0, min(self.permits, most))

    @property
    def at_limit(self) -> bool:
        """True if it would get more of a shared subscription if it had acknowledged some."""
        return self._limited and self.permits > 0 and self.unacknowledged >= MAX_UNACKNOWLEDGED

    def delivered(self, messages: int) -> None:
        """Take notice of a delivery, once it can't fail any more: so no permit gets lost."""
        self.permits -= messages
        self.unacknowledged += messages
        self.last_delivery = next(_DELIVERED)

    def acknowledged(self, messages: int) -> None:
        """Take notice of messages that were acknowledged, or are to be delivered again to anyone."""
        self.unacknowledged = max(0, self.unacknowledged - messages)

    def acknowledged_of(self, partition_id: int) -> Cursor:
        """Return what the subscription had acknowledged when the epoch began."""
        return self._acknowledged[partition_id]

    def read_cursor(self, partition_id: int) -> ReadCursor:
        """Return how far a partition was read for it."""
        return self._read[partition_id]

    def advance(self, partition_id: int, cursor: ReadCursor) -> None:
        """Go on from there."""
        self._read[partition_id] = cursor

    def in_turn(self, partitions: Sequence[PartitionView]) -> list[PartitionView]:
        """Return the partitions, each time with another one first, so that none comes last for ever."""
        first, self._first = self._first % max(1, len(partitions)), self._first + 1
        return [*partitions[first:], *partitions[:first]]
