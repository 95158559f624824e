"""Requests for the objects below a prefix, by the best way there is: ``botocore`` for S3, or ``pyarrow.fs``."""

from __future__ import annotations

import functools
import importlib.util
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.fs as fs

from txn_source.model.errors import StorageWriteError
from txn_source.storage.object_root import ObjectRoot
from txn_source.storage.object_store import ObjectStore, file_system_of, s3_place_of
from txn_source.storage.object_uri import parts_of
from txn_source.storage.root_health import bounded
from txn_source.storage.s3_client import S3Client
from txn_source.storage.store_errors import StoreError

_MOST_OPEN = 64
_READ_DEADLINE_S, _WRITE_DEADLINE_S = 60.0, 120.0
"""A request of ``pyarrow.fs``, which has no limit for all of it, is given up after this."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a listing shows it: its path below the prefix, its bytes, and when it was put, by the store."""

    path: str
    size: int
    modified_at_s: float


class ObjectRequests(Protocol):
    """What is asked of a store. A path is below the prefix."""

    def get(self, path: str, start: int, into: memoryview) -> None:
        """Fill a buffer with an object's bytes from ``start`` on; FileNotFoundError, or OSError, says why it can't."""

    def read(self, path: str) -> bytes:
        """Return a small object."""

    def put(self, path: str, data: bytes, *, if_absent: bool = False, within_s: float | None = None) -> None:
        """Store an object whole: it is there, and safe, when this returns; with ``if_absent`` only if none is there,
        or this call's own: whoever calls must look. ``within_s`` bounds how long it is tried, below the place's own
        limit."""

    def delete(self, path: str) -> None:
        """Delete an object; harmless if there is none."""

    def size(self, path: str) -> int | None:
        """Return an object's length; None if there is none."""

    def listed(self, path: str) -> Iterator[StoredObject]:
        """Yield all objects below a path of the prefix; OSError if the store refuses."""


def requests_for(uri: str) -> ObjectRequests:
    """Return the way to the objects below a prefix; it is kept by the process, and made anew after a fork."""
    return _requests(os.getpid(), uri)


@functools.lru_cache(64)
def _requests(_process: int, uri: str) -> ObjectRequests:
    by_botocore = parts_of(uri)[0] == "s3" and importlib.util.find_spec("botocore") is not None
    return S3Requests(uri) if by_botocore else ArrowRequests(uri)


class S3Requests:
    """Requests to S3 by ``botocore``."""

    def __init__(self, uri: str) -> None:
        place = s3_place_of(uri)
        self._root = ObjectRoot(uri)
        self.client = S3Client(place)
        self._prefix = parts_of(uri)[2].removeprefix(place.bucket).strip("/")

    def get(self, path: str, start: int, into: memoryview) -> None:
        self.client.get(self.key(path), start, into)

    def read(self, path: str) -> bytes:
        return self.client.read(self.key(path))

    def put(self, path: str, data: bytes, *, if_absent: bool = False, within_s: float | None = None) -> None:
        self.client.put(self.key(path), data, if_absent=if_absent, within_s=within_s)

    def delete(self, path: str) -> None:
        self.client.delete(self.key(path))

    def size(self, path: str) -> int | None:
        return self.client.size(self.key(path))

    def listed(self, path: str) -> Iterator[StoredObject]:
        base = self.key("")
        for found in self.client.listed(self.key(f"{path}/")):
            if not found.key.endswith("/"):  # what others keep in place of a folder
                yield StoredObject(found.key.removeprefix(base), found.size, found.modified_at_s)

    def uploads(self) -> Iterator[tuple[str, str, float]]:
        """Yield the uploads in parts that were begun and haven't ended: path, id, and when, in seconds since the
        epoch."""
        base = self.key("")
        for key, upload_id, begun_s in self.client.uploads(base):
            yield key.removeprefix(base), upload_id, begun_s

    def abort_upload(self, path: str, upload_id: str) -> None:
        """Let go of the parts of an upload; harmless if it has ended."""
        self.client.abort_upload(self.key(path), upload_id)

    def key(self, path: str) -> str:
        """Return an object's key in the bucket; InvalidArgumentError if the path leaves the prefix."""
        self._root.below(path)
        return f"{self._prefix}/{path}".lstrip("/")


class ArrowRequests:
    """Requests by ``pyarrow.fs``: of GCS, HDFS, and of S3 where ``botocore`` isn't installed.

    An object is asked for its size when it is first read. A request that takes too long is left to its thread, which
    ends some time; an object that such a thread stores late has the bytes that it should have.
    """

    def __init__(self, uri: str) -> None:
        self._root = ObjectRoot(uri)
        self._open: OrderedDict[tuple[int, str], pa.NativeFile] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str, start: int, into: memoryview) -> None:
        def read() -> bytes:
            data: bytes = self._file(path).read_at(len(into), start)
            return data

        data = bounded(read, _READ_DEADLINE_S)
        if len(data) != len(into):
            raise StoreError(
                f"it is truncated: it ends at byte {start + len(data)}, not at {start + len(into)} or later"
            )
        into.cast("B")[:] = data

    def read(self, path: str) -> bytes:
        def read() -> bytes:
            with ObjectStore(self._root).open(path) as file:
                data: bytes = file.read()
                return data

        return bounded(read, _READ_DEADLINE_S)

    def put(self, path: str, data: bytes, *, if_absent: bool = False, within_s: float | None = None) -> None:
        if if_absent and self.size(path) is not None:
            return
        bounded(lambda: self._put(path, data), _WRITE_DEADLINE_S if within_s is None else within_s)

    def delete(self, path: str) -> None:
        ObjectStore(self._root).delete(path)

    def size(self, path: str) -> int | None:
        system, at = file_system_of(self._root.below(path))
        info = bounded(lambda: system.get_file_info(at), _READ_DEADLINE_S)
        return info.size if info.type is fs.FileType.File else None

    def listed(self, path: str) -> Iterator[StoredObject]:
        system, at = file_system_of(self._root.below(path))
        base = file_system_of(self._root.uri)[1].rstrip("/") + "/"
        for info in system.get_file_info(fs.FileSelector(at, recursive=True, allow_not_found=True)):
            if info.type is fs.FileType.File:
                modified_ns = info.mtime_ns
                seconds = 0.0 if modified_ns is None else modified_ns / 1e9
                yield StoredObject(info.path.removeprefix(base), info.size, seconds)

    def _put(self, path: str, data: bytes) -> None:
        try:
            with ObjectStore(self._root).write(path) as sink:
                sink.write(data)
        except StorageWriteError as error:
            raise error.__cause__ if isinstance(error.__cause__, OSError) else StoreError(error.fact) from error

    def _file(self, path: str) -> pa.NativeFile:
        key = os.getpid(), path
        with self._lock:
            found = self._open.get(key)
        if found is None:
            found = ObjectStore(self._root).open(path)
            with self._lock:
                self._open[key] = found
                if len(self._open) > _MOST_OPEN:
                    self._open.popitem(last=False)
        return found
