"""Tiered objects: a closed ledger as a Parquet file, which any Parquet tool can read.

It has what ``read_committed`` sees of the ledger. The messages of aborted transactions, if there are any, lie in a
second file beside it (``aborted_uri``), of the same form, which ``read_uncommitted`` alone opens. Objects of format 1
have all messages in the one file.

The columns are the payload's, ``__event_time`` and ``__properties``, then position, time, producer and transaction.
A row group has whole entries only, about 128k rows. The footer carries three texts:

* ``txnlog.ledger``, JSON: which ledger of which log this is, counts, producers' names, size and checksum of the second
  file;
* ``txnlog.entries``, Base64 of a compressed Arrow stream: a row for each entry, markers among them; that of the second
  file has its own entries only;
* ``txnlog.checksums``, likewise: lengths and CRC-32C of the runs of bytes before the footer (``checked_file.py``).

So a reader plans row groups without touching rows, takes what is constant in an entry from the index, and the ledger
describes itself if the metadata is lost. Pages carry Parquet's checksums for other tools; the footer's own is kept with
the metadata.
"""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from txn_source.model.copies import TieredCopy
from txn_source.model.errors import SegmentUnreadableError, StorageWriteError
from txn_source.model.kinds import ABORTED_DATA, DATA
from txn_source.model.ledger import ClosedLedger
from txn_source.storage import tiered_columns
from txn_source.storage.arrays import array_of, numbers_in
from txn_source.storage.checked_file import CheckedSource, ChecksummingSink, Runs
from txn_source.storage.object_names import aborted_uri
from txn_source.storage.object_root import Root
from txn_source.storage.object_store import ObjectStore, reason
from txn_source.storage.schema import EVENT_TIME, KEY, PROPERTIES

ROW_GROUP_ROWS = 128 * 1024
ROW_GROUP_BYTES = 18 << 20
_FORMAT = 2
_FIRST_WITHOUT_ABORTED = 2
"""Objects of older formats have the messages of aborted transactions among the others."""
LEDGER_KEY, _ENTRIES_KEY, _CHECKSUMS_KEY = "txnlog.ledger", "txnlog.entries", "txnlog.checksums"
_CHECKSUMS_SCHEMA = pa.schema([pa.field("bytes", pa.int64()), pa.field("crc32c", pa.int64())])
_TAIL_BYTES = 8
_CACHED_FOOTERS_BYTES = 64 << 20

INDEX_SCHEMA = pa.schema(
    [
        pa.field("entry_id", pa.int64()),
        pa.field("kind", pa.int8()),  # 0 messages, 1 commit marker, 2 abort marker, 3 messages in the second file
        pa.field("messages", pa.int64()),
        pa.field("bytes", pa.int64()),  # of the entry in its segment
        pa.field("txn", pa.int64()),  # -1: none
        pa.field("producer_id", pa.int64()),
        pa.field("base_sequence", pa.int64()),
        pa.field("publish_time_us", pa.int64()),
    ]
)
"""The entry index: a row for each entry, ascending. What a marker has no value for is 0."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """What a ledger is, as its object says."""

    log_id: str
    topic: str
    partition: int
    ledger: ClosedLedger
    producers: dict[int, str]
    has_event_times: bool = False
    """True if any message has an event time; ``write_tiered`` sees for itself."""
    has_properties: bool = False


def row_group_edges(messages: IntArray, sizes: IntArray) -> list[int]:
    """Return where row groups begin, and the end, as indexes of data entries: whole entries, within the limits."""
    rows_to, bytes_to = np.cumsum(messages), np.cumsum(sizes)
    edges, start = [0], 0
    while start < len(messages):
        rows_before, bytes_before = (int(rows_to[start - 1]), int(bytes_to[start - 1])) if start else (0, 0)
        fit = min(
            int(np.searchsorted(rows_to, rows_before + ROW_GROUP_ROWS, "right")),
            int(np.searchsorted(bytes_to, bytes_before + ROW_GROUP_BYTES, "right")),
        )
        start = max(start + 1, fit)
        edges.append(start)
    return edges


def write_tiered(
    store: ObjectStore,
    uri: str,
    schema: pa.Schema,
    row_groups: Iterable[pa.Table],
    index: pa.Table,
    summary: LedgerSummary,
    compression_level: int,
    aborted: TieredCopy | None = None,
) -> TieredCopy:
    """Write an object, read its footer back and check it; return the copy, which nobody knows of yet.

    Args:
        store: the store.
        uri: of the new object.
        schema: the object's columns.
        row_groups: in order; each becomes a row group.
        index: the entries, ``INDEX_SCHEMA``.
        summary: what the ledger is.
        compression_level: of zstd.
        aborted: the second file, which was written before; its entries are ``ABORTED_DATA`` in the index.

    Raises:
        StorageWriteError: the store refused, or what it holds is not what was written. The object is gone again.
    """
    with store.write(uri) as sink:
        written = _write(sink, schema, row_groups, index, summary, compression_level, aborted)
        size = sink.tell()
    try:
        with store.open(uri) as file:
            found = file.size()
            length = int.from_bytes(file.read_at(_TAIL_BYTES, size - _TAIL_BYTES)[:4], "little") + _TAIL_BYTES
            data = file.read_at(length, size - length)
        footer = _parse_footer(data, uri)
        right = found == size and footer.metadata.equals(written) and footer.rows == footer.messages.sum()
        right = right and all(footer.runs.covers(*_chunk(footer.metadata, g, c)) for g, c in _chunks(footer.metadata))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _not_as_written(uri, reason(error)) from error
    if not right:
        raise _not_as_written(uri, "its footer differs")
    return TieredCopy(uri, size, length, crc32c(data))


def _write(
    sink: pa.NativeFile,
    schema: pa.Schema,
    row_groups: Iterable[pa.Table],
    index: pa.Table,
    summary: LedgerSummary,
    compression_level: int,
    aborted: TieredCopy | None,
) -> pq.FileMetaData:
    """Write an object to a stream, and return what its footer must say of the row groups."""
    given = {EVENT_TIME.name: False, PROPERTIES.name: False}
    checksumming = ChecksummingSink(sink)
    with pq.ParquetWriter(
        pa.PythonFile(checksumming, "w"),
        schema,
        compression="zstd",
        compression_level=compression_level,
        write_page_checksum=True,
        use_dictionary=tiered_columns.with_dictionary(schema),
        write_statistics=tiered_columns.with_statistics(schema),
        column_encoding=tiered_columns.encodings(schema),
    ) as writer:
        for table in row_groups:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            given = {name: some or table[name].null_count < table.num_rows for name, some in given.items()}
        summary = dataclasses.replace(
            summary, has_event_times=given[EVENT_TIME.name], has_properties=given[PROPERTIES.name]
        )
        texts = {LEDGER_KEY: _summary_text(summary, aborted), _ENTRIES_KEY: _table_text(index)}
        runs = (checksumming.lengths, checksumming.checksums)
        texts[_CHECKSUMS_KEY] = _table_text(
            pa.table([array_of(np.array(x, np.int64)) for x in runs], schema=_CHECKSUMS_SCHEMA)
        )
        writer.add_key_value_metadata(texts)
    return writer.writer.metadata  # a metadata_collector would hide why a write failed


@dataclass(frozen=True, slots=True)
class Footer:
    """A tiered object's footer: its row groups, and the ledger's data entries, an item each in arrays."""

    metadata: pq.FileMetaData
    summary: LedgerSummary
    entries: dict[str, IntArray]
    inside: IntArray
    """Which of the entries have their messages in this file, as indexes; the others are in the second one."""
    row_groups: IntArray
    """Where row groups begin, and the end, as indexes into ``inside``."""
    runs: Runs
    """The checksums of all bytes before the footer."""
    aborted: TieredCopy | None
    """The second file."""
    committed_only: bool
    """True if it has no message of an aborted transaction."""

    @property
    def messages(self) -> IntArray:
        """How many messages each of the entries in this file has."""
        return self.entries["messages"][self.inside]

    @property
    def row_group_entries(self) -> IntArray:
        """Where row groups begin, and the end, as indexes into the entries: one begins where its first entry does."""
        if len(self.row_groups) == 1:
            return self.row_groups
        between = self.inside[self.row_groups[1:-1]]
        return np.concatenate(([0], between, [len(self.entries["messages"])]))

    @property
    def rows(self) -> int:
        """The messages in the object."""
        return int(self.metadata.num_rows)

    @property
    def memory_bytes(self) -> int:
        """About what it takes to keep it."""
        arrays = (*self.entries.values(), self.inside)
        return int(2 * self.metadata.serialized_size + sum(array.nbytes for array in arrays))


class TieredReader:
    """Reads one tiered object. A context manager; the footer is kept by the process for the next reader."""

    def __init__(self, root: Root, copy: TieredCopy) -> None:
        """Open the object.

        Raises:
            SegmentUnreadableError: it is missing, truncated, another file, or damaged.
        """
        self._copy = copy
        self._file: pa.NativeFile | None = None
        self._source: CheckedSource | None = None
        self._parquet: pq.ParquetFile | None = None
        self._root = root
        self.footer = read_footer(root, copy)

    def __enter__(self) -> TieredReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the object; what was read stays valid."""
        if self._file is not None:
            self._file.close()
            self._file = self._source = self._parquet = None

    def read_row_group(self, number: int, fields: Sequence[pa.Field]) -> pa.Table:
        """Read some columns of a row group, in their types; those that no message has are made up of nulls."""
        summary, there = self.footer.summary, self.footer.metadata.schema.to_arrow_schema().names
        rows = int(self.footer.metadata.row_group(number).num_rows)
        stored = [
            f for f in fields
            if not (f.name == EVENT_TIME.name and not summary.has_event_times)
            and not (f.name == PROPERTIES.name and not summary.has_properties)
            and not (f.name == KEY.name and KEY.name not in there)
        ]  # fmt: skip
        columns: dict[str, Any] = {}
        if stored:
            try:
                parquet = self._open()
                metadata, names = self.footer.metadata, [f.name for f in stored]
                assert self._source is not None
                self._source.load(chunks_of(metadata, number, names))
                table = parquet.read_row_group(number, columns=[f.name for f in stored], use_threads=False)
                self._source.release()
                if table.num_rows != rows:
                    raise ValueError(f"row group {number} has {table.num_rows} rows instead of {rows}")
                columns = {f.name: _typed(table.column(f.name), f.type) for f in stored}
            except (OSError, ValueError, KeyError, pa.ArrowException) as error:
                raise unreadable(self._copy, reason(error)) from error
        return pa.table([columns.get(f.name) or pa.nulls(rows, f.type) for f in fields], schema=pa.schema(fields))

    def _open(self) -> pq.ParquetFile:
        if self._parquet is None:
            self._file = ObjectStore(self._root).open(self._copy.uri)
            _check_size(self._file, self._copy)
            self._source = CheckedSource(self._file, self.footer.runs, self._copy.size)
            source = pa.PythonFile(self._source, "r")
            self._parquet = pq.ParquetFile(source, metadata=self.footer.metadata, pre_buffer=False, buffer_size=1 << 20)
        return self._parquet


def read_footer(root: Root, copy: TieredCopy) -> Footer:
    """Return the checked footer of an object; a process keeps those that it read last.

    Raises:
        SegmentUnreadableError: the object is missing, truncated, another file, or its footer is damaged.
    """
    try:
        found = _FOOTERS.get((root, copy))
        if found is None:
            found = _FOOTERS.put((root, copy), _read_footer(root, copy))
        return found
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise unreadable(copy, reason(error)) from error


def checked_footer(root: Root, copy: TieredCopy) -> Footer:
    """Return the footer of an object after a look at its end, whatever is remembered of it.

    Raises:
        SegmentUnreadableError: as ``read_footer``.
    """
    try:
        data = _footer_bytes(root, copy)
        return _FOOTERS.get((root, copy)) or _FOOTERS.put((root, copy), _parse_footer(data, copy.uri))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise unreadable(copy, reason(error)) from error


def check_object(root: Root, copy: TieredCopy) -> None:
    """Look at the files of a copy, not at what is remembered of them.

    Raises:
        SegmentUnreadableError: one is missing, of another size, or has another footer.
    """
    try:
        second = _read_footer(root, copy).aborted
        if second is not None:
            copy = second
            _read_footer(root, copy)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise unreadable(copy, reason(error)) from error


class _FooterCache:
    """The footers that were used last, as far as they fit in memory set aside for them. Thread-safe."""

    def __init__(self) -> None:
        self._footers: OrderedDict[tuple[Root, TieredCopy], Footer] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[Root, TieredCopy]) -> Footer | None:
        with self._lock:
            if key in self._footers:
                self._footers.move_to_end(key)
            return self._footers.get(key)

    def put(self, key: tuple[Root, TieredCopy], footer: Footer) -> Footer:
        with self._lock:
            if key not in self._footers:
                self._footers[key] = footer
                self._bytes += footer.memory_bytes
            while self._bytes > _CACHED_FOOTERS_BYTES and len(self._footers) > 1:
                self._bytes -= self._footers.popitem(last=False)[1].memory_bytes
        return footer


_FOOTERS = _FooterCache()


def _read_footer(root: Root, copy: TieredCopy) -> Footer:
    return _parse_footer(_footer_bytes(root, copy), copy.uri)


def _footer_bytes(root: Root, copy: TieredCopy) -> bytes:
    with ObjectStore(root).open(copy.uri) as file:
        _check_size(file, copy)
        data: bytes = file.read_at(copy.footer_bytes, copy.size - copy.footer_bytes)
    found = crc32c(data)
    if found != copy.footer_crc32c:
        raise ValueError(f"its footer has checksum {found:08x} where {copy.footer_crc32c:08x} was written (CRC-32C)")
    return data


def _check_size(file: pa.NativeFile, copy: TieredCopy) -> None:
    if (size := file.size()) != copy.size:
        raise ValueError(f"it has {size} bytes where {copy.size} were written")


def _parse_footer(data: bytes, uri: str) -> Footer:
    metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + data))  # its offsets need no bytes before them
    texts = metadata.metadata
    summary = json.loads(texts[LEDGER_KEY.encode()])
    if (form := summary.pop("format")) > _FORMAT:
        raise ValueError("it was written by a newer release of txnlog; upgrade txn-source")
    second = summary.pop("aborted", None)
    index, checksums = (_table_of(texts[key.encode()]) for key in (_ENTRIES_KEY, _CHECKSUMS_KEY))
    kinds = numbers_in(index["kind"])
    index = index.filter(array_of((kinds == DATA) | (kinds == ABORTED_DATA)))
    entries = {name: numbers_in(index[name]).astype(np.int64) for name in index.column_names}
    inside = np.flatnonzero(entries.pop("kind") == DATA)
    rows_to = np.cumsum(entries["messages"][inside])
    ends = np.cumsum([metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)])
    edges = np.concatenate(([0], np.searchsorted(rows_to, ends) + 1)) if len(ends) else np.zeros(1, np.int64)
    return Footer(
        metadata,
        _summary_of(summary),
        entries,
        inside,
        edges,
        Runs.of(numbers_in(checksums["bytes"]), numbers_in(checksums["crc32c"])),
        None if second is None else TieredCopy(aborted_uri(uri), **second),
        form >= _FIRST_WITHOUT_ABORTED,
    )


def _summary_text(summary: LedgerSummary, aborted: TieredCopy | None) -> str:
    fields = dataclasses.asdict(summary)
    second = None if aborted is None else dataclasses.asdict(aborted)
    if second is not None:
        del second["uri"]  # follows from that of the first one
    return json.dumps({"format": _FORMAT, **fields.pop("ledger"), **fields, "aborted": second})


def _summary_of(fields: dict[str, Any]) -> LedgerSummary:
    ledger = ClosedLedger(**{field.name: fields.pop(field.name) for field in dataclasses.fields(ClosedLedger)})
    producers = {int(number): name for number, name in fields.pop("producers").items()}
    return LedgerSummary(ledger=ledger, producers=producers, **fields)


def index_of(metadata: pq.FileMetaData) -> pa.Table:
    """Return the entry index in an object's footer, markers among the entries."""
    return _table_of(metadata.metadata[_ENTRIES_KEY.encode()])


def _table_text(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def _table_of(text: bytes) -> pa.Table:
    with pa.ipc.open_stream(base64.b64decode(text)) as reader:
        table = reader.read_all()
    table.validate(full=True)  # its buffers may be shorter than its rows need
    return table


def _chunks(metadata: pq.FileMetaData) -> Iterator[tuple[int, int]]:
    """Yield (row group, column) of every column chunk."""
    return itertools.product(range(metadata.num_row_groups), range(metadata.num_columns))


def _chunk(metadata: pq.FileMetaData, group: int, column: int) -> tuple[int, int]:
    """Return the bytes ``[start, end)`` of a column chunk."""
    chunk = metadata.row_group(group).column(column)
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def chunks_of(metadata: pq.FileMetaData, group: int, names: Sequence[str] | None = None) -> list[tuple[int, int]]:
    """Return the byte range ``[start, end)`` of each column chunk in a row group; ``names``: of these columns only."""
    return [
        _chunk(metadata, group, column)
        for column in range(metadata.num_columns)
        if names is None or _is_asked_for(metadata.schema.column(column).path, names)
    ]


def _is_asked_for(path: str, names: Sequence[str]) -> bool:
    """Return whether Parquet reads a column for these names: a name may have dots, as the paths of parts have."""
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _typed(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Parquet has no seconds and names the items of lists by itself; anything else comes back as it went in."""
    return column if column.type == wanted else column.cast(wanted)


def _not_as_written(uri: str, why: str) -> StorageWriteError:
    return StorageWriteError(
        f"{uri.partition('?')[0]} is not what was written: {why}. Nothing was registered.",
        "Check the store, then try again.",
    )


def unreadable(copy: TieredCopy, why: str) -> SegmentUnreadableError:
    """Return the error of an object that can't be read."""
    return SegmentUnreadableError(
        f"Object {copy.uri.partition('?')[0]} is unreadable: {why}.",
        "Restore the object, or offload the ledger again while its hot copy is there.",
    )
