"""Deleting copies: never the last one that can be read.

Before the copy of a tier goes, the other one is looked at: an object's size and footer, a segment's length. That an
offload was complete once is not enough; objects get lost.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from txn_source.client.access import Access
from txn_source.client.hot_roots import places_in, places_of
from txn_source.client.ledgers import ledgers_of
from txn_source.model.copies import LedgerCopies, Tier
from txn_source.model.errors import OnlyCopyError, SegmentUnreadableError
from txn_source.model.message_ranges import position_of
from txn_source.model.position import MAX_ENTRY_ID, Position, PositionRange
from txn_source.model.retention import CopyPolicies
from txn_source.model.roots import ONLY_MAIN
from txn_source.model.topic_name import TopicName
from txn_source.storage.arrays import numbers_in
from txn_source.storage.tiered import check_object


class Deletion:
    """Deletes copies of one topic's offloaded ledgers in one tier."""

    def __init__(self, access: Access, topic: TopicName, tier: Tier) -> None:
        self._stub = access.metadata
        self._root = access.root
        self._access = access
        self._topic = topic
        self._tier = tier

    def delete_all(self) -> int:
        """Delete them all and return how many.

        Raises:
            OnlyCopyError: one of them is the only copy that can be read. None is deleted then.
        """
        ids, refused = self._checked(after_lag=False)
        if refused:
            ledger_id, why = refused[0]
            raise OnlyCopyError(
                f"The {self._tier} copy is the only one of {len(refused)} of the {len(ids) + len(refused)} offloaded"
                f" ledgers that can be read (the first is ledger {ledger_id}: {why}): deleting it would lose messages.",
                "Trim the topic instead if they are no longer wanted, or mend the other copy first.",
            )
        return self._stub.delete_copies(self._topic, self._tier, ids)

    def delete_due(self) -> tuple[int, list[tuple[int, str]]]:
        """Delete the hot copies whose deletion lag has passed; return how many, and the ledgers whose hot copy had to
        be kept because the object can't be read, with the reason."""
        ids, refused = self._checked(after_lag=True)
        # Also without any: rows of entries that were kept for retried appends may be due.
        return self._stub.delete_copies(self._topic, self._tier, ids), refused

    def _checked(self, *, after_lag: bool) -> tuple[list[int], list[tuple[int, str]]]:
        good: list[int] = []
        refused: list[tuple[int, str]] = []
        for partition_id, copies in self._offloaded(after_lag=after_lag):
            if self._tier is Tier.BOOKKEEPER and not copies.hot:
                continue
            try:
                if self._tier is Tier.BOOKKEEPER:
                    assert copies.tiered is not None
                    check_object(self._root, copies.tiered)
                else:
                    self._check_hot(partition_id, copies)
            except SegmentUnreadableError as error:
                refused.append((copies.ledger_id, error.fact))
            else:
                good.append(copies.ledger_id)
        return good, refused

    def _offloaded(self, *, after_lag: bool) -> Iterator[tuple[int, LedgerCopies]]:
        policies = CopyPolicies.of(self._stub.policies_in_force(self._topic)) if after_lag else None
        if policies is not None and policies.deletion_lag_s is None:
            return
        first_needed: dict[int, int] = {}
        if policies is not None and policies.keeps_what_is_read:
            first_needed = self._ledgers_of_subscriptions()
        view = self._stub.get_view([self._topic])
        [topic] = view.topics
        for partition in topic.partitions:
            needed = first_needed.get(partition.partition_id)
            ids = {
                ledger.ledger_id
                for ledger in ledgers_of(self._stub, partition)
                if ledger.tiered
                if policies is None or policies.hot_copy_is_due(ledger, view.now_ms, needed)
            }
            at, end = partition.bounds.log_start, partition.bounds.log_end
            while ids and at < end:
                listed = self._stub.list_copies(partition.partition_id, PositionRange(at, end)).ledgers
                if not listed:
                    break
                for copies in listed:
                    if copies.ledger_id in ids and copies.tiered is not None:
                        yield partition.partition_id, copies
                at = Position(listed[-1].ledger_id + 1, 0)

    def _ledgers_of_subscriptions(self) -> dict[int, int]:
        """Return, by partition, the first ledger that a durable subscription still reads."""
        found: dict[int, int] = {}
        for subscription in self._stub.list_subscriptions(self._topic, brief=True):
            for partition in subscription.partitions if subscription.durable else ():
                ledger_id = position_of(partition.mark).ledger_id
                found[partition.partition_id] = min(ledger_id, found.get(partition.partition_id, ledger_id))
        return found

    def _largest(self, path: str, roots: int) -> int:
        """Return the length of the longest copy of a segment in a set of roots; -1 if there is none."""
        found = -1
        for place in places_in(self._access, roots, places_of(self._access)):
            try:
                size = place.segments.size(path)
            except OSError as error:
                place.failed(error)
                continue
            found = max(found, -1 if size is None else size)
        return found

    def _check_hot(self, partition_id: int, copies: LedgerCopies) -> None:
        if not copies.hot:
            raise SegmentUnreadableError("the hot copy was deleted.", "Keep the object.")
        of = PositionRange(Position(copies.ledger_id, 0), Position(copies.ledger_id, MAX_ENTRY_ID))
        for page in self._stub.list_entries(partition_id, of):
            ids = numbers_in(page.entries["segment_id"])
            ends = numbers_in(page.entries["offset"]) + numbers_in(page.entries["length"])
            for segment_id in np.unique(ids).tolist():
                path = page.segments[segment_id]
                size = self._largest(path, page.roots.get(segment_id, ONLY_MAIN))
                if size < ends[ids == segment_id].max():
                    why = "missing" if size < 0 else "truncated"
                    raise SegmentUnreadableError(f"segment {path} is {why}.", "Keep the object.")
