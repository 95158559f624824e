"""What a tiered object says of itself, to whoever has nothing but the object."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from txn_source.model.copies import TieredCopy
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.values import dataclass
from txn_source.storage import tiered
from txn_source.storage.object_root import Root
from txn_source.storage.object_store import ObjectStore, reason


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object, what it is of, and the index of its ledger's entries (``tiered.INDEX_SCHEMA``, markers among them)."""

    copy: TieredCopy
    summary: tiered.LedgerSummary
    index: pa.Table


def find_object(root: Root, uri: str) -> FoundObject:
    """Read an object's footer, whose checksum nobody knows any more; its own parts have some.

    Raises:
        SegmentUnreadableError: it is missing, truncated, no object of ours, or damaged.
    """
    try:
        with ObjectStore(root).open(uri) as file:
            size = file.size()
            length = int.from_bytes(file.read_at(8, size - 8)[:4], "little") + 8
            data = bytes(file.read_at(length, size - length))
        copy = TieredCopy(uri, size, length, crc32c(data))
        footer = tiered.read_footer(root, copy)
        index = tiered.index_of(pq.read_metadata(pa.BufferReader(b"PAR1" + data)))
    except (OSError, ValueError, KeyError, TypeError, json.JSONDecodeError, pa.ArrowException) as error:
        raise SegmentUnreadableError(
            f"The object {uri} is unreadable: {reason(error)}.", "Restore it from a backup, or remove it."
        ) from error
    return FoundObject(copy, footer.summary, index)
