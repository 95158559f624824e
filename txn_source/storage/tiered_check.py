"""Looking at tiered objects from outside: are all bytes what was written, and whose is a file that is unknown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from txn_source.model.copies import TieredCopy
from txn_source.storage.checked_file import Runs
from txn_source.storage.object_root import Root
from txn_source.storage.object_store import ObjectStore, reason
from txn_source.storage.tiered import LEDGER_KEY, checked_footer, unreadable

_WINDOW_BYTES = 4 << 20
_TAIL_BYTES = 8
_MAX_FOOTER_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Told:
    """Whose an object is, as it says itself."""

    log_id: str
    ledger_id: int


def owner_of(root: Root, uri: str) -> Told | None:
    """Return what an object that nothing is known of says of itself; None if it isn't whole, or none of ours.

    Raises:
        OSError: it is missing, or the store can't be asked.
    """
    with ObjectStore(root).open(uri) as file:
        size = file.size()
        tail = file.read_at(_TAIL_BYTES, size - _TAIL_BYTES) if size > _TAIL_BYTES else b""
        length = int.from_bytes(tail[:4], "little") + _TAIL_BYTES
        if len(tail) < _TAIL_BYTES or not _TAIL_BYTES < length <= min(size, _MAX_FOOTER_BYTES):
            return None
        data = file.read_at(length, size - length)
    try:
        found = json.loads(pq.read_metadata(pa.BufferReader(b"PAR1" + data)).metadata[LEDGER_KEY.encode()])
        return Told(str(found["log_id"]), int(found["ledger_id"]))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


def check_every_byte(root: Root, copy: TieredCopy) -> None:
    """Read all files of a copy to their ends.

    Raises:
        SegmentUnreadableError: a byte isn't what was written, or can't be read.
    """
    part: TieredCopy | None = copy
    while part is not None:
        footer = checked_footer(root, part)
        try:
            why = first_damage(root, part, footer.runs, lambda _: None, lambda _: True)
        except OSError as error:
            raise unreadable(part, reason(error)) from error
        if why is not None:
            raise unreadable(part, why)
        part = footer.aborted  # of a copy; the second file has none


def first_damage(
    root: Root, copy: TieredCopy, runs: Runs, read: Callable[[int], object], chosen: Callable[[int], bool]
) -> str | None:
    """Return what is wrong with the bytes before an object's footer; None if they are those that were written.

    Args:
        root: the log's.
        copy: the object.
        runs: as its footer has them.
        read: is told of each read, before it, how many bytes it is.
        chosen: tells of each window of bytes, by its number, if it is to be read.

    Raises:
        OSError: it can't be read.
    """
    with ObjectStore(root).open(copy.uri) as file:
        for number, (first, last) in enumerate(_windows(runs)):
            if not chosen(number):
                continue
            start, end = int(runs.edges[first]), int(runs.edges[last])
            read(end - start)
            data = memoryview(file.read_at(end - start, start))
            if len(data) != end - start:
                return f"it ends at byte {start + len(data)}, inside of what was written"
            for number_of_run in range(first, last):
                a, b = int(runs.edges[number_of_run]) - start, int(runs.edges[number_of_run + 1]) - start
                found, wanted = crc32c(data[a:b]), int(runs.checksums[number_of_run])
                if found != wanted:
                    return (
                        f"bytes {a + start} to {b + start} have checksum {found:08x} where {wanted:08x} was written"
                        " (CRC-32C)"
                    )
    return None


def _windows(runs: Runs) -> Iterator[tuple[int, int]]:
    """Yield [first, last) of runs that are read at once."""
    edges, first = runs.edges.tolist(), 0
    for last in range(1, len(edges)):
        if last == len(edges) - 1 or edges[last + 1] - edges[first] > _WINDOW_BYTES:
            yield first, last
            first = last
