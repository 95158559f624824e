"""Reading a slice from the copies of its ledgers: the preferred one first, the other one where that fails.

A copy that is missing, unreadable or damaged is left at the position reached, and the next copy goes on from there:
nothing twice, nothing lost. Which copies there are is asked when a slice is begun and again after each failure, so a
copy that is deleted under a running read is just one more that failed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.reading.batch_assembly import StoredRows
from txn_source.client.reading.segment_entries import HotCopies
from txn_source.model.copies import CopiesRead, CopyFailure, LedgerCopies, Tier, TieredCopy
from txn_source.model.errors import DataLossError, SegmentUnreadableError
from txn_source.model.packing import Slice
from txn_source.model.position import Position, PositionRange, ledger_of
from txn_source.model.read_priority import ReadPriority
from txn_source.reading.filters import Seen

_log = logging.getLogger(__name__)
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """Neighbouring entries that the reader sees, read from one copy.

    ``columns`` have an item for each entry: position, messages, txn, producer_id, base_sequence, publish_time_us,
    length. ``stored`` are (index of the first entry, rows) with one schema each; none if no bytes are wanted. All that
    lies below ``end`` (exclusive) has been read with it.
    """

    columns: Mapping[str, IntArray]
    producers: Mapping[int, str]
    stored: tuple[tuple[int, StoredRows], ...]
    end: Position

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return len(self.columns["position"])


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring ledgers that are read from one tier; of the tiered one, a single ledger."""

    tier: Tier
    range: PositionRange
    tiered: TieredCopy | None


class CopyReader:
    """Reads slices of partitions from whatever copies there are. A context manager that closes files."""

    def __init__(
        self,
        access: Access,
        stored: pa.Schema,
        priority: ReadPriority | None,
        *,
        fail_on_data_loss: bool,
        report: CopiesRead,
    ) -> None:
        """Prepare to read.

        Args:
            access: the way to the log.
            stored: the stored columns that are wanted; none: only what is constant in entries.
            priority: the read's own; None: the topic's.
            fail_on_data_loss: False skips what was trimmed since the plan was made, with a warning.
            report: where to note which copies were read.
        """
        self._stub = access.metadata
        self._root = access.root
        self._stored = stored
        self._priority = priority
        self._fail_on_data_loss = fail_on_data_loss
        self._report = report
        self._hot = HotCopies(access)
        self._unreachable = False

    def __enter__(self) -> CopyReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hot.close()

    def read(self, piece: Slice, seen: Seen, *, announced: bool = False) -> Iterator[Part]:
        """Yield what the reader sees of a slice, in order.

        With ``announced`` parts without entries may come among the others, and one comes first: when it is known what
        will be read of hot copies. Then other slices may say so before this one goes on.

        Raises:
            DataLossError: a part of the slice has been trimmed.
            SegmentUnreadableError: every copy of a ledger failed; it names them all.
        """
        at = piece.range.start
        failed: dict[tuple[int, str], str] = {}
        while at < piece.range.end:
            listed = self._stub.list_copies(piece.partition_id, PositionRange(at, piece.range.end))
            if not listed.ledgers or listed.ledgers[0].ledger_id != at.ledger_id:
                at = self._lost(piece, at, listed.ledgers)
                continue
            priority = self._priority or listed.priority or ReadPriority.TIERED_FIRST
            if self._unreachable:
                priority = ReadPriority.BOOKKEEPER_FIRST  # don't wait for a silent store at every ledger
            for run in runs_of(piece, at, listed.ledgers, priority, failed):
                try:
                    for part in self._read_run(piece, run, seen, announced):
                        if part.entries:
                            self._count(run.tier, part)
                        if part.entries or announced:
                            yield part
                        at = part.end
                except SegmentUnreadableError as error:
                    self._failed(piece, at, run, error, failed)
                    break
                if at < run.range.end:
                    break  # the hot copy was deleted meanwhile: look again

    def _count(self, tier: Tier, part: Part) -> None:
        ledgers = self._report.ledgers[tier]
        before = len(ledgers)
        ledgers.update(np.unique(ledger_of(part.columns["position"])).tolist())
        if len(ledgers) > before:
            for counts in self._stub.reads:
                counts.read(tier, len(ledgers) - before)

    def _read_run(self, piece: Slice, run: _Run, seen: Seen, announced: bool) -> Iterator[Part]:
        if run.tiered is None:
            for columns, producers, stored, end in self._hot.read(
                piece.partition_id, run.range, seen, with_bytes=bool(len(self._stored)), shared=announced
            ):
                yield Part(columns, producers, stored, end)
            return
        if announced:
            yield Part({"position": np.empty(0, np.int64)}, {}, (), run.range.start)
        from txn_source.client.reading.object_entries import read_object  # with Parquet, which hot reads don't need

        for columns, producers, stored, end in read_object(self._root, run.tiered, run.range, seen, self._stored):
            yield Part(columns, producers, stored, end)

    def _failed(
        self, piece: Slice, at: Position, run: _Run, error: SegmentUnreadableError, failed: dict[tuple[int, str], str]
    ) -> None:
        from txn_source.storage.object_store import is_unreachable

        failed[at.ledger_id, _name(run.tier, run.tiered)] = error.fact
        self._unreachable = self._unreachable or is_unreachable(error.__cause__)
        failure = CopyFailure(piece.topic, piece.partition, at.ledger_id, run.tier, at, error.fact)
        self._report.failures.append(failure)
        for counts in self._stub.reads:
            counts.left(run.tier)
        copies = self._stub.list_copies(piece.partition_id, PositionRange(at, at)).ledgers
        if not copies or copies[0].ledger_id != at.ledger_id:
            return  # trimmed meanwhile, which is why it failed
        others = [t for t in copies[0].tiers if (at.ledger_id, _name(t, copies[0].tiered)) not in failed]
        if others:
            _log.warning(
                "topic %s, partition %d: the %s copy of ledger %d failed at %s, going on with the %s copy: %s",
                piece.topic, piece.partition, run.tier, at.ledger_id, at, others[0], error.fact,
            )  # fmt: skip
            return
        reasons = [
            f"{name.split()[0]}: {why}" for (ledger_id, name), why in failed.items() if ledger_id == at.ledger_id
        ]
        if len(reasons) == 1:
            raise error
        raise SegmentUnreadableError(
            f"Ledger {at.ledger_id} of topic {piece.topic!r}, partition {piece.partition}, can't be read from {at} on:"
            f" all its copies failed. {' '.join(reasons)}",
            "Restore one of them; the other entries of the topic can still be read by position.",
        )

    def _lost(self, piece: Slice, at: Position, ledgers: tuple[LedgerCopies, ...]) -> Position:
        """Return where a read goes on whose next ledger is gone, or raise."""
        until = Position(ledgers[0].ledger_id, 0) if ledgers else piece.range.end
        lost = PositionRange(at, min(until, piece.range.end))
        what = f"Partition {piece.partition} of topic {piece.topic!r} has lost {lost}, which was to be read"
        why = "it was trimmed, or the topic deleted, after the read was planned"
        if self._fail_on_data_loss:
            error = DataLossError(f"{what}: {why}.", "Plan the read again with a new load() or scan().")
            error.lost = lost
            raise error
        _log.warning("%s: %s (failOnDataLoss=false)", what, why)
        return lost.end


def runs_of(
    piece: Slice,
    at: Position,
    ledgers: tuple[LedgerCopies, ...],
    priority: ReadPriority,
    failed: Mapping[tuple[int, str], str],
) -> Iterator[_Run]:
    """Yield what to read from which tier, in order, up to a ledger without a copy that has not failed."""
    waiting: PositionRange | None = None
    for number, ledger in enumerate(ledgers):
        start, end = max(at, Position(ledger.ledger_id, 0)), piece.range.end
        if number + 1 < len(ledgers):
            end = Position(ledgers[number + 1].ledger_id, 0)
        elif number and end.ledger_id > ledger.ledger_id:
            break  # the list ends before the range does, and doesn't say where this ledger ends: ask again from here
        if start >= end:
            continue
        tiers = [t for t in ledger.in_order(priority) if (ledger.ledger_id, _name(t, ledger.tiered)) not in failed]
        if tiers[:1] == [Tier.BOOKKEEPER]:
            waiting = PositionRange(waiting.start if waiting else start, end)
            continue
        if waiting:
            yield _Run(Tier.BOOKKEEPER, waiting, None)
            waiting = None
        if not tiers:
            return
        yield _Run(Tier.TIERED, PositionRange(start, end), ledger.tiered)
    if waiting:
        yield _Run(Tier.BOOKKEEPER, waiting, None)


def _name(tier: Tier, tiered: TieredCopy | None) -> str:
    """Return a copy's name in a list of failures; an object that replaced another one has not failed yet."""
    return str(tier) if tier is Tier.BOOKKEEPER or tiered is None else f"{tier} {tiered.uri}"
