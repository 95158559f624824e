"""What consumers acknowledge."""

from __future__ import annotations

from dataclasses import dataclass

from txn_source.model.message_ranges import MessageRange


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What a consumer acknowledges of one partition: ranges, and everything below a place, if that is given."""

    partition_id: int
    ranges: tuple[MessageRange, ...]
    up_to: int | None = None


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What a consumer acknowledges in one call, with the epoch in which the messages were delivered."""

    subscription_id: int
    consumer_id: int
    epoch: int
    partitions: tuple[Acknowledged, ...]
