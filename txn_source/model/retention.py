"""Which ledgers may be offloaded, lose a copy, or go; and which of them policies want to.

1. A ledger is decided when it is closed and lies wholly below the last stable position: nothing in it changes any more.
2. A decided ledger without a tiered copy may be offloaded.
3. A copy may be deleted while the other one is there: none is ever its ledger's last.
4. Decided ledgers may be trimmed, from the start of their partition on, up to the first one that a durable
   subscription still needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from txn_source.model.ledger import Ledger, OffloadableLedger
from txn_source.model.policies import EffectivePolicy
from txn_source.model.position import Position
from txn_source.model.read_priority import ReadPriority


def is_decided(ledger: Ledger, last_stable: Position) -> bool:
    """True if nothing in a ledger changes any more; ``last_stable`` is its partition's."""
    return ledger.closed and ledger.ledger_id < last_stable.ledger_id


def may_be_offloaded(ledger: Ledger, last_stable: Position) -> bool:
    """True if a ledger is decided and has no tiered copy."""
    return is_decided(ledger, last_stable) and not ledger.tiered


def may_lose_a_copy(ledger: Ledger) -> bool:
    """True if a ledger has both copies, so that either of them may be deleted."""
    return ledger.tiered and ledger.hot


@dataclass(frozen=True, slots=True)
class TrimLimits:
    """What is to go: ledgers wholly below ``before``, those closed before ``closed_before_ms``, and the oldest ones
    without which ``keep_bytes`` or more are left. None: not for that reason."""

    before: Position | None = None
    closed_before_ms: int | None = None
    keep_bytes: int | None = None

    def take(self, ledger: Ledger, kept_bytes: int) -> bool:
        """True if a ledger is to go, which is the first one of ``kept_bytes``, its own among them."""
        return (
            (self.before is not None and ledger.end <= self.before)
            or (
                self.closed_before_ms is not None
                and ledger.closed_at_ms is not None
                and ledger.closed_at_ms < self.closed_before_ms
            )
            or (self.keep_bytes is not None and kept_bytes - ledger.bytes >= self.keep_bytes)
        )


def trimmed_by(
    limits: TrimLimits,
    ledgers: Sequence[Ledger],
    last_stable: Position,
    size_bytes: int,
    keeper: Callable[[Position], str | None],
) -> tuple[Sequence[Ledger], str | None]:
    """Return the ledgers of a partition that go, and the subscription because of which the next one stays.

    Args:
        limits: what is to go.
        ledgers: the partition's, ascending from its start.
        last_stable: the partition's.
        size_bytes: what the partition has.
        keeper: returns a subscription that has not acknowledged all below a position, None if there is none.
    """
    wanted = 0
    for ledger in ledgers:
        if not is_decided(ledger, last_stable) or not limits.take(ledger, size_bytes):
            break
        size_bytes -= ledger.bytes
        wanted += 1
    # Who needs something below a position needs it below every later one, too: halving finds where that begins.
    free, held, held_by = 0, wanted, None
    while free < held:
        middle = (free + held) // 2
        name = keeper(ledgers[middle].end)
        if name is None:
            free = middle + 1
        else:
            held, held_by = middle, name
    return ledgers[:free], held_by


@dataclass(frozen=True, slots=True)
class CopyPolicies:
    """The policies of a topic that say when copies are made and go; None: never for that reason."""

    offload_after_age_s: float | None
    offload_after_bytes: int | None
    deletion_lag_s: float | None
    retention_age_s: float | None
    retention_bytes: int | None
    read_priority: ReadPriority

    @classmethod
    def of(cls, policies: Mapping[str, EffectivePolicy]) -> CopyPolicies:
        """Return those among all of a topic's policies as they are in force."""
        return cls(
            policies["offload_after_age"].value,
            policies["offload_after_bytes"].value,
            policies["offload_deletion_lag"].value,
            policies["retention_age"].value,
            policies["retention_bytes"].value,
            policies["data_read_priority"].value,
        )

    @property
    def offloads(self) -> bool:
        """True if ledgers are offloaded by themselves."""
        return self.offload_after_age_s is not None or self.offload_after_bytes is not None

    @property
    def trims(self) -> bool:
        """True if ledgers are trimmed by themselves."""
        return self.retention_age_s is not None or self.retention_bytes is not None

    @property
    def keeps_what_is_read(self) -> bool:
        """True if hot copies that subscriptions still read are kept past their lag."""
        return self.read_priority is ReadPriority.BOOKKEEPER_FIRST

    def to_offload(
        self, ledgers: Sequence[OffloadableLedger], hot_only_bytes: Mapping[int, int], now_ms: int
    ) -> list[OffloadableLedger]:
        """Return the ledgers that were closed more than an age ago, and behind them the oldest ones of what a partition
        has in hot copies alone beyond a size.

        Args:
            ledgers: those that may be offloaded, each partition's ascending.
            hot_only_bytes: by partition id, the bytes of all its ledgers without a tiered copy; only looked at if
                there is a threshold by size.
            now_ms: the service's time.
        """
        age_s, most = self.offload_after_age_s, self.offload_after_bytes
        due = [x for x in ledgers if age_s is not None and now_ms - x.closed_at_ms > age_s * 1000]
        if most is None:
            return due
        by_age = {x.ledger_id for x in due}
        left = dict(hot_only_bytes)
        for ledger in ledgers:
            if left.get(ledger.partition_id, 0) > most:
                left[ledger.partition_id] -= ledger.bytes
                if ledger.ledger_id not in by_age:
                    due.append(ledger)
        return due

    def hot_copy_is_due(self, ledger: Ledger, now_ms: int, first_needed: int | None) -> bool:
        """True if the deletion lag of a ledger's hot copy has passed.

        Args:
            ledger: the ledger.
            now_ms: the service's time.
            first_needed: the first ledger of the partition that a durable subscription still reads; it and later ones
                keep their hot copies if ``keeps_what_is_read``. None: there is none.
        """
        if self.deletion_lag_s is None or ledger.offloaded_at_ms is None:
            return False
        if self.keeps_what_is_read and first_needed is not None and ledger.ledger_id >= first_needed:
            return False
        return now_ms - ledger.offloaded_at_ms > self.deletion_lag_s * 1000

    def trim_limits(self, now_ms: int) -> TrimLimits:
        """Return what retention no longer keeps."""
        age_ms = None if self.retention_age_s is None else int(self.retention_age_s * 1000)
        return TrimLimits(None, None if age_ms is None else now_ms - age_ms, self.retention_bytes)


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What went from one partition; ``held_by`` is the subscription that more was kept for, if there is one."""

    partition: int
    ledgers: int
    messages: int
    bytes: int
    log_start: Position
    held_by: str | None = None
