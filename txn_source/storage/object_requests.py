"""Requests for the objects below a prefix, by the best way there is: signed ones to S3, or those of ``pyarrow.fs``."""

from __future__ import annotations

import functools
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.fs as fs

from txn_source.model.errors import StorageWriteError
from txn_source.model.values import dataclass
from txn_source.storage.object_root import ObjectRoot
from txn_source.storage.object_store import ObjectStore, file_system_of, s3_place_of
from txn_source.storage.object_uri import parts_of
from txn_source.storage.s3_credentials import find_credentials
from txn_source.storage.s3_requests import S3Requests, StoreError

R = TypeVar("R")
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

    def put(self, path: str, data: bytes, *, if_absent: bool = False) -> None:
        """Store an object whole: it is there, and safe, when this returns; with ``if_absent`` only if none is there,
        or this call's own: whoever calls must look."""

    def delete(self, path: str) -> None:
        """Delete an object; harmless if there is none."""


def requests_for(uri: str) -> ObjectRequests:
    """Return the way to the objects below a prefix; it is kept by the process."""
    return _requests(uri, parts_of(uri)[0] == "s3" and find_credentials() is not None)


@functools.lru_cache(64)
def _requests(uri: str, signed: bool) -> ObjectRequests:
    return SignedRequests(uri) if signed else ArrowRequests(uri)


def listed(uri: str, prefix: str) -> Iterator[StoredObject]:
    """Yield all objects below a path of a prefix; raise OSError if the store refuses."""
    system, path = file_system_of(ObjectRoot(uri).below(prefix))
    base = file_system_of(uri)[1].rstrip("/") + "/"
    for info in system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True)):
        if info.type is fs.FileType.File:
            modified_ns = info.mtime_ns
            seconds = 0.0 if modified_ns is None else modified_ns / 1e9
            yield StoredObject(info.path.removeprefix(base), info.size, seconds)


class SignedRequests:
    """Requests to S3 that we sign."""

    def __init__(self, uri: str) -> None:
        place = s3_place_of(uri)
        self._requests = S3Requests(place)
        self._prefix = parts_of(uri)[2].removeprefix(place.bucket).strip("/")

    def get(self, path: str, start: int, into: memoryview) -> None:
        self._requests.get(self._key(path), start, into)

    def read(self, path: str) -> bytes:
        return self._requests.read(self._key(path))

    def put(self, path: str, data: bytes, *, if_absent: bool = False) -> None:
        self._requests.put(self._key(path), data, if_absent=if_absent)

    def delete(self, path: str) -> None:
        self._requests.delete(self._key(path))

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}".lstrip("/")


class ArrowRequests:
    """Requests by ``pyarrow.fs``: of GCS, HDFS, and of S3 where only its SDK knows the credentials.

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

        data = _bounded(read, _READ_DEADLINE_S)
        if len(data) != len(into):
            raise StoreError(
                f"it is truncated: it ends at byte {start + len(data)}, not at {start + len(into)} or later"
            )
        into[:] = data

    def read(self, path: str) -> bytes:
        def read() -> bytes:
            with ObjectStore(self._root).open(path) as file:
                data: bytes = file.read()
                return data

        return _bounded(read, _READ_DEADLINE_S)

    def put(self, path: str, data: bytes, *, if_absent: bool = False) -> None:
        if if_absent and self._is_there(path):
            return
        _bounded(lambda: self._put(path, data), _WRITE_DEADLINE_S)

    def delete(self, path: str) -> None:
        ObjectStore(self._root).delete(path)

    def _is_there(self, path: str) -> bool:
        system, at = file_system_of(self._root.below(path))
        there: bool = system.get_file_info(at).type is not fs.FileType.NotFound
        return there

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


def _bounded(call: Callable[[], R], seconds: float) -> R:
    """Return what a call returns, or raise what it raises; raise StoreError if it takes longer."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="txnlog-request", daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise StoreError("the store can't be reached: it didn't answer in time", unreachable=True)
    result: R = found[0]
    return result
