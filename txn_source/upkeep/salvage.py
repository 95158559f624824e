"""``txnlog salvage``: the rows of files that a log doesn't know, and of what lies behind the ends of those it knows.

A log that was put back to an earlier moment has lost what it stored since, and the messages of then lie in its roots.
Here they are read from the bytes alone: every whole Arrow message of a segment, every row of an object. Which of them
were committed nobody knows, nor whether a producer was told that they were stored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from txn_source.client.hot_roots import places_of
from txn_source.client.log import Log
from txn_source.client.tiering.inventory import Inventory, UnknownFile
from txn_source.model.door import guard
from txn_source.model.errors import InvalidArgumentError, SchemaMismatchError, StorageWriteError, TxnLogError
from txn_source.model.roots import MAIN
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import MAX_TIMEOUT_MS
from txn_source.model.verdict import Verdict
from txn_source.storage.folders import files_below, sync_file
from txn_source.storage.object_names import aborted_uri, may_be_object
from txn_source.storage.object_root import Root
from txn_source.storage.object_store import ObjectStore, reason
from txn_source.storage.root import LogRoot
from txn_source.storage.schema import deserialize_schema, stored_beside
from txn_source.storage.segment import SegmentName
from txn_source.storage.segment_store import MAGIC

PLACE = (
    pa.field("__topic", pa.string()),
    pa.field("__partition", pa.int32()),
    pa.field("__file", pa.string(), nullable=False),
    pa.field("__offset", pa.int64(), nullable=False),
)
"""Columns in front of a file's own: the topic and its partition as far as is known, the file, and where in it the row
lies: the byte at which its entry begins, in an object the number of the row."""
_PLACE_NAMES = {field.name for field in PLACE}
_MARK = b"\xff\xff\xff\xff"
_ALIGNED = 8
_WINDOW_BYTES = 4 << 20
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class SalvagedFile:
    """A file, or the part of one from byte ``start`` on, that the log doesn't know.

    ``topic`` is empty if nothing tells it, ``partition`` None. ``rows`` are those that were read, ``damaged`` the bytes
    that are no whole message. ``written`` are the Parquet files with its rows.
    """

    place: str
    uri: str
    start: int
    size: int
    modified_at_s: float
    topic: str
    partition: int | None
    rows: int
    damaged: int
    written: tuple[str, ...] = ()


@guard
def salvage(
    log: Log | str | os.PathLike[str],
    *,
    files: Sequence[str] | None = None,
    to: str | os.PathLike[str] | None = None,
    topic: str | None = None,
) -> list[SalvagedFile]:
    """Read what lies in a log's places and isn't known to it; nothing of it is changed.

    Args:
        log: the log; or the root, a folder, of one that has lost its metadata: nothing of it is known.
        files: paths or URIs of those that are wanted; None: all.
        to: a new or empty folder for the rows as Parquet files, one or more for each file.
        topic: a topic of the log that gets the rows, in one transaction: all, or none.

    Raises:
        InvalidArgumentError: a file isn't among the unknown ones, or the folder isn't empty.
        SchemaMismatchError: a row doesn't fit the topic; nothing was sent then.
        StorageWriteError: the folder can't be written.
    """
    if not isinstance(log, Log) and topic is not None:
        raise InvalidArgumentError("A log without metadata takes no messages.", "Write the rows as Parquet (`to`).")
    source = _Known(log) if isinstance(log, Log) else _Lost(LogRoot.at(log))
    found = sorted(source.files(), key=lambda each: (each[0].modified_at_s, each[0].uri))
    if files is not None:
        strange = sorted(set(files) - {file.uri for file, _ in found})
        if strange:
            raise InvalidArgumentError(
                f"{strange[0]} is no unknown file of the log.", "See `txnlog salvage` for those that are."
            )
        found = [(file, start) for file, start in found if file.uri in files]
    folder = None if to is None else _new_folder(Path(to))
    with ExitStack() as stack:
        sending = stack.enter_context(_Sending(log, topic)) if isinstance(log, Log) and topic is not None else None
        told = [
            _salvaged(source, file, start, _Parquet(folder, f"{number:05d}"), sending)
            for number, (file, start) in enumerate(found)
        ]
        if sending is not None:
            sending.commit()
    return told


class _Known:
    """What a log doesn't know."""

    def __init__(self, log: Log) -> None:
        self._access = log.access
        self._access.metadata.get_log()
        names = self._access.metadata.list_topics()
        views = self._access.metadata.get_view(names).topics if names else ()
        self.topics = {view.topic.topic_id: view.topic.name.short for view in views}

    def files(self) -> list[tuple[UnknownFile, int]]:
        """Return whole files, and tails from where they begin; of several copies the longest."""
        found = Inventory(self._access)
        of = {**found.of(Verdict.UNKNOWN), **found.of(Verdict.AHEAD)}
        return [*((max(files, key=lambda file: file.size), 0) for files in of.values()), *found.tails()]

    def root_of(self, place: str) -> Root:
        """Return the root of that name."""
        return next((each.root for each in places_of(self._access) if each.name == place), self._access.root)


class _Lost:
    """All that lies in the root of a log without metadata."""

    topics: Mapping[int, str] = {}

    def __init__(self, root: LogRoot) -> None:
        root.check()
        self._root = root.path

    def files(self) -> list[tuple[UnknownFile, int]]:
        """Return all files."""
        there = ((file.relative_to(self._root).as_posix(), state) for file, state in files_below(self._root))
        return [
            (UnknownFile(MAIN, path, state.st_size, state.st_mtime), 0)
            for path, state in there
            if SegmentName.parse(path) is not None or may_be_object(path)
        ]

    def root_of(self, place: str) -> Root:
        """Return the root."""
        return self._root


def _salvaged(
    source: _Known | _Lost, file: UnknownFile, start: int, parquet: _Parquet, sending: _Sending | None
) -> SalvagedFile:
    """Read one file, and write or send its rows."""
    name = SegmentName.parse(file.uri)
    if name is not None:
        topic, partition = source.topics.get(name.topic_id, ""), name.partition
    else:
        *_, tenant, namespace, short, number, _ = file.uri.partition("?")[0].split("/")
        topic, partition = TopicName(tenant, namespace, short).short, int(number)
    rows = damaged = 0
    with parquet:
        for uri, offset, batch in _read(source.root_of(file.place), file, start):
            if batch is None:
                damaged += offset
                continue
            rows += batch.num_rows
            if sending is not None:
                sending.send(batch, partition, uri)
            parquet.write(batch, topic, partition, uri, offset)
    return SalvagedFile(
        file.place, file.uri, start, file.size, file.modified_at_s, topic, partition, rows, damaged, parquet.written
    )


def _read(root: Root, file: UnknownFile, start: int) -> Iterator[tuple[str, int, pa.RecordBatch | None]]:
    """Yield batches of rows with the file and the place in it where each begins; in place of a batch None, and then how
    many bytes are damaged."""
    if SegmentName.parse(file.uri) is not None:
        with ObjectStore(root).open(file.uri) as data:
            yield from ((file.uri, at, batch) for at, batch in _rows_of_segment(data, start))
        return
    for uri in (file.uri, aborted_uri(file.uri)):
        try:
            yield from ((uri, at, batch) for at, batch in _rows_of_object(root, uri))
        except FileNotFoundError:
            continue
        except (OSError, pa.ArrowException):
            yield uri, file.size, None


def _rows_of_object(root: Root, uri: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    with ObjectStore(root).open(uri) as data:
        at = 0
        for batch in pq.ParquetFile(data, page_checksum_verification=True).iter_batches(_BATCH_ROWS):
            yield at, batch
            at += batch.num_rows


def _rows_of_segment(data: pa.NativeFile, start: int) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """Yield each batch of a segment from an offset on, and where it begins; None with a number of bytes that are no
    whole message. Behind damage the next whole message is looked for."""
    size = data.size()
    at = len(MAGIC) if data.read_at(min(len(MAGIC), size), 0) == MAGIC else 0
    schema = _schema_at(data, at, size)
    at = max(at, start)
    while at < size:
        message = _message_at(data, at, size)
        if message is None:
            following = _next_mark(data, at + _ALIGNED, size)
            yield following - at, None
            at = following
            continue
        end = data.tell()
        try:
            if message.type == "schema":
                schema = pa.ipc.read_schema(message)
            elif schema is None or message.type != "record batch":
                yield end - at, None
            elif (batch := pa.ipc.read_record_batch(message, schema)).num_rows:
                batch.validate(full=True)  # nobody knows a checksum of it
                yield at, batch
        except (pa.ArrowException, OSError, ValueError, IndexError):
            yield end - at, None
        at = end


def _schema_at(data: pa.NativeFile, at: int, size: int) -> pa.Schema | None:
    message = _message_at(data, at, size)
    with suppress(pa.ArrowException, OSError):
        if message is not None and message.type == "schema":
            return pa.ipc.read_schema(message)
    return None


def _message_at(data: pa.NativeFile, at: int, size: int) -> pa.Message | None:
    """Return the whole message at an offset, with the file's own offset behind it; None if there is none."""
    head = data.read_at(_ALIGNED, at) if size - at >= _ALIGNED else b""
    length = int.from_bytes(head[4:], "little")
    if head[:4] != _MARK or not 0 < length <= size - at - _ALIGNED:
        return None
    data.seek(at)
    try:
        return pa.ipc.read_message(data)
    except (pa.ArrowException, OSError, EOFError, MemoryError):
        return None


def _next_mark(data: pa.NativeFile, at: int, size: int) -> int:
    """Return where the next message may begin, from an offset on."""
    while at < size:
        window = bytes(data.read_at(min(_WINDOW_BYTES, size - at), at))
        found = window.find(_MARK)
        while found >= 0:
            if (at + found) % _ALIGNED == 0:
                return at + found
            found = window.find(_MARK, found + 1)
        at += max(_ALIGNED, len(window) // _ALIGNED * _ALIGNED)
    return size


def _new_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise InvalidArgumentError(f"{path} isn't empty.", "Name a new folder.")
    except OSError as error:
        raise InvalidArgumentError(f"{path} can't be used: {reason(error)}.", "Name a new folder.") from None
    return path


class _Parquet:
    """Parquet files of one source: one for each schema that its rows have."""

    def __init__(self, folder: Path | None, prefix: str) -> None:
        self._folder, self._prefix = folder, prefix
        self._open: list[tuple[pa.Schema, Path, pq.ParquetWriter]] = []

    def __enter__(self) -> _Parquet:
        return self

    def __exit__(self, *exc: object) -> None:
        for _, path, writer in self._open:
            writer.close()
            sync_file(path)

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(str(path) for _, path, _ in self._open)

    def write(self, batch: pa.RecordBatch, topic: str, partition: int | None, uri: str, offset: int) -> None:
        """Write rows, if there is a folder, each with its place."""
        if self._folder is None:
            return
        rows, is_object = batch.num_rows, SegmentName.parse(uri) is None
        offsets = pa.array(range(offset, offset + rows) if is_object else [offset] * rows, pa.int64())
        place = (pa.scalar(topic or None, pa.string()), pa.scalar(partition, pa.int32()), uri.partition("?")[0])
        own = batch.select([name for name in batch.schema.names if name not in _PLACE_NAMES])
        columns = [*(pa.repeat(value, rows) for value in place), offsets, *own.columns]
        schema = pa.schema([*PLACE, *own.schema.remove_metadata()])
        writer = next((writer for known, _, writer in self._open if known.equals(schema)), None)
        if writer is None:
            more = f"-{len(self._open)}" if self._open else ""
            path = self._folder / f"{self._prefix}{more}.parquet"
            try:
                writer = pq.ParquetWriter(path, schema)
            except OSError as error:
                raise StorageWriteError(f"{path} can't be written: {reason(error)}.", "Name another folder.") from error
            self._open.append((schema, path, writer))
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


class _Sending:
    """Rows on their way to a topic, under one transaction."""

    def __init__(self, log: Log, topic: str) -> None:
        [view] = log.access.metadata.get_view([TopicName.parse(topic)]).topics
        payload = deserialize_schema(view.topic.schema)
        self._names = {field.name for field in (*payload, *stored_beside(payload))}
        self._partitions = len(view.partitions)
        self._txn = log.begin_transaction(timeout=MAX_TIMEOUT_MS / 1000)
        self._producer = log.producer(topic)

    def __enter__(self) -> _Sending:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            with suppress(TxnLogError):
                self._txn.abort()  # refused if it was committed
        finally:
            self._producer.close()

    def send(self, batch: pa.RecordBatch, partition: int | None, uri: str) -> None:
        at = partition if partition is not None and partition < self._partitions else None
        given = batch.select([name for name in batch.schema.names if name in self._names])
        try:
            self._producer.send_batch(given, txn=self._txn, partition=at)
        except SchemaMismatchError as error:
            raise SchemaMismatchError(
                f"Rows of {uri.partition('?')[0]} don't fit the topic: {error.fact}",
                "Leave the file out (--file names those that are wanted), or write them as Parquet (--to).",
            ) from None

    def commit(self) -> None:
        self._txn.commit()
