"""Planning over ledgers whose entries only their tiered objects know: footers take the database's part."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from txn_source.client.access import Access
from txn_source.client.reading.skipping import RowGroups, either
from txn_source.client.reading.window import each
from txn_source.metadata.stub.ranges import Piece
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange
from txn_source.reading.filters import Columns
from txn_source.reading.request import ReadRequest

if TYPE_CHECKING:
    from txn_source.storage.tiered import Footer


class TieredPlanning:
    """Finds and splits positions in tiered objects.

    A ledger whose footer can't be read isn't split; whoever reads it learns what is wrong with it. May be asked by
    several threads.
    """

    def __init__(self, access: Access) -> None:
        self._stub = access.metadata
        self._root = access.root

    def find_positions(self, partition_ids: Sequence[int], publish_time_us: int) -> dict[int, Position | None]:
        """Return, by partition id, the first message published at or after a time; None if there is none.

        Raises:
            SegmentUnreadableError: it is in an object whose footer can't be read.
        """
        found = self._stub.find_positions(partition_ids, publish_time_us)
        positions = {partition_id: None if at is None else at.position for partition_id, at in found.items()}
        in_objects = [(partition_id, at.position) for partition_id, at in found.items() if at and at.ledger_only]
        looked_up = each(lambda of: self._position(*of, publish_time_us), in_objects)
        return positions | {partition_id: at for (partition_id, _), at in zip(in_objects, looked_up, strict=True)}

    def _position(self, partition_id: int, start: Position, publish_time_us: int) -> Position:
        footer = self._footer(partition_id, start)
        if footer is None:
            return start
        index = int(np.searchsorted(footer.entries["publish_time_us"], publish_time_us))
        return start.plus(int(footer.entries["entry_id"][index]))

    def may_have(self, partition_id: int, of: PositionRange, known: Columns, request: ReadRequest) -> bool:
        """Tell whether the part of a ledger in a range may have rows that filters want, by its object's statistics.

        ``known`` is what is known of all of it. A second file isn't looked at: who sees what is in there may find some.
        """
        try:
            footer = self._footer(partition_id, of.start)
        except SegmentUnreadableError:
            return True
        if footer is None:
            return True
        if footer.aborted is not None and request.isolation_level is not IsolationLevel.READ_COMMITTED:
            return True
        groups = RowGroups(footer.metadata)
        of_each = (either(known, groups.of(group)) for group in range(footer.metadata.num_row_groups))
        return any(bool(request.filters.keep(columns)) for columns in of_each)

    def split_range(self, partition_id: int, of: PositionRange, target_bytes: int) -> list[Piece]:
        """Cut a range of one ledger at row groups into pieces of about so many bytes.

        Entries in the second file may make the part of the ledger between two row groups large: that is cut anywhere.
        """
        try:
            footer = self._footer(partition_id, of.start)
        except SegmentUnreadableError:
            footer = None
        if footer is None:
            return [Piece(of, target_bytes, None)]
        ids, sizes = footer.entries["entry_id"], footer.entries["bytes"]
        low, high = int(np.searchsorted(ids, of.start.entry_id)), len(ids)  # no ids if it has markers only
        if of.end.ledger_id == of.start.ledger_id:
            high = int(np.searchsorted(ids, of.end.entry_id))
        bytes_to = np.concatenate(([0], np.cumsum(sizes)))
        from txn_source.storage.tiered import ROW_GROUP_BYTES

        cuts, step = [low], max(target_bytes, ROW_GROUP_BYTES)
        for edge in (*footer.row_group_entries.tolist(), high):
            while bytes_to[min(edge, high)] - bytes_to[cuts[-1]] >= 2 * step:
                inner = int(np.searchsorted(bytes_to, bytes_to[cuts[-1]] + step))
                if inner >= min(edge, high):
                    break  # one entry is that large
                cuts.append(inner)
            if low < edge < high and bytes_to[edge] - bytes_to[cuts[-1]] >= target_bytes:
                cuts.append(edge)
        starts = [of.start, *(Position(of.start.ledger_id, int(ids[cut])) for cut in cuts[1:]), of.end]
        times = footer.entries["publish_time_us"].tolist()
        return [
            Piece(
                PositionRange(start, end), int(bytes_to[b] - bytes_to[a]), (times[a], times[b - 1]) if a < b else None
            )
            for (start, end), (a, b) in zip(pairwise(starts), pairwise([*cuts, high]), strict=True)
        ]

    def _footer(self, partition_id: int, at: Position) -> Footer | None:
        listed = self._stub.list_copies(partition_id, PositionRange(at, at)).ledgers
        if not listed or listed[0].ledger_id != at.ledger_id or listed[0].tiered is None:
            return None  # trimmed meanwhile; reading will say so
        from txn_source.storage.tiered import read_footer  # with Parquet and file systems, which few plans need

        return read_footer(self._root, listed[0].tiered)
