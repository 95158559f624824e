"""Deleting copies: never the last one that can be read.

Before the copy of a tier goes, every byte of the other one is read and checked. That an offload was complete once is
not enough, nor that a file is there: disks and stores change bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from txn_source.client.access import Access
from txn_source.client.hot_roots import places_in, places_of
from txn_source.client.ledgers import copies_of, ledgers_of
from txn_source.client.segment_copying import read_sound
from txn_source.metadata.stub.roots import HotSegment
from txn_source.model.copies import LedgerCopies, Tier
from txn_source.model.errors import InvalidArgumentError, OnlyCopyError, SegmentUnreadableError
from txn_source.model.message_ranges import position_of
from txn_source.model.position import MAX_ENTRY_ID, Position, PositionRange
from txn_source.model.retention import CopyPolicies
from txn_source.model.roots import ONLY_MAIN
from txn_source.model.topic_name import TopicName
from txn_source.storage.arrays import numbers_in
from txn_source.storage.tiered_check import check_every_byte


class Deletion:
    """Deletes copies of one topic's offloaded ledgers in one tier."""

    def __init__(self, access: Access, topic: TopicName, tier: Tier) -> None:
        self._stub = access.metadata
        self._root = access.root
        self._access = access
        self._topic = topic
        self._tier = tier
        self._sound: set[str] = set()
        """Segments of which each byte was read and found right."""

    def delete_all(self, only: Collection[int] | None = None) -> int:
        """Delete them all, or those of some ledgers, and return how many.

        Raises:
            OnlyCopyError: one of them is the only copy that can be read. None is deleted then.
            InvalidArgumentError: a ledger that is named has no such copy, or isn't offloaded.
        """
        ids, refused = self._checked(after_lag=False, only=only)
        missing = set(only or ()) - {*ids, *(ledger_id for ledger_id, _ in refused)}
        if missing:
            raise InvalidArgumentError(
                f"Ledger {min(missing)} isn't an offloaded ledger of topic {self._topic.short!r} that has a"
                f" {self._tier} copy.",
                f"`txnlog topics stats {self._topic.short} --json` shows which there are.",
            )
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

    def _checked(
        self, *, after_lag: bool, only: Collection[int] | None = None
    ) -> tuple[list[int], list[tuple[int, str]]]:
        good: list[int] = []
        refused: list[tuple[int, str]] = []
        for partition_id, copies in self._offloaded(after_lag=after_lag):
            if (self._tier is Tier.BOOKKEEPER and not copies.hot) or (
                only is not None and copies.ledger_id not in only
            ):
                continue
            try:
                if self._tier is Tier.BOOKKEEPER:
                    assert copies.tiered is not None
                    check_every_byte(self._root, copies.tiered)
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
            for copies in copies_of(self._stub, partition) if ids else ():
                if copies.ledger_id in ids and copies.tiered is not None:
                    yield partition.partition_id, copies

    def _ledgers_of_subscriptions(self) -> dict[int, int]:
        """Return, by partition, the first ledger that a durable subscription still reads."""
        found: dict[int, int] = {}
        for subscription in self._stub.list_subscriptions(self._topic, brief=True):
            for partition in subscription.partitions if subscription.durable else ():
                ledger_id = position_of(partition.mark).ledger_id
                found[partition.partition_id] = min(ledger_id, found.get(partition.partition_id, ledger_id))
        return found

    def _check_hot(self, partition_id: int, copies: LedgerCopies) -> None:
        if not copies.hot:
            raise SegmentUnreadableError("the hot copy was deleted.", "Keep the object.")
        of = PositionRange(Position(copies.ledger_id, 0), Position(copies.ledger_id, MAX_ENTRY_ID))
        for page in self._stub.list_entries(partition_id, of):
            ids = numbers_in(page.entries["segment_id"])
            for segment_id in np.unique(ids).tolist():
                self._check_segment(page.segments[segment_id], page.roots.get(segment_id, ONLY_MAIN))

    def _check_segment(self, path: str, roots: int) -> None:
        if path not in self._sound:
            places = places_in(self._access, roots, places_of(self._access))
            read_sound(self._stub, self._topic, HotSegment(path, roots, roots, 0, 0), places)
            self._sound.add(path)
