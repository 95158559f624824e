"""The ids of messages that were registered, until ``flush`` returns them."""

from __future__ import annotations

from collections import deque

from txn_source.client.writing.group import Receipt
from txn_source.client.writing.sent_ids import MessageIds

_MAX_REMEMBERED_IDS = 1_000_000


class Receipts:
    """Receipts in the order in which their groups were registered, of the newest million messages or so."""

    def __init__(self) -> None:
        self._receipts: deque[Receipt] = deque()
        self._messages = 0

    def add(self, receipt: Receipt) -> None:
        """Keep a receipt; the one that came last is kept once, however often it comes."""
        if self._receipts and self._receipts[-1] is receipt:
            return  # an interrupt came before its group left the queue
        self._receipts.append(receipt)
        self._messages += len(receipt[0])
        while self._messages > _MAX_REMEMBERED_IDS and len(self._receipts) > 1:
            self._messages -= len(self._receipts.popleft()[0])

    def ids(self) -> MessageIds:
        """Return the ids in the order of sending."""
        parts = list(self._receipts)
        return MessageIds.join(*zip(*parts, strict=True)) if parts else MessageIds.none()
