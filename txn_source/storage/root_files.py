"""Small files of a root that nothing depends on while there is a database: in a folder, or as objects.

Each is put whole, in place of the one before. Nothing is synced, and nobody waits long for a store: what can't be put
soon isn't put, and a store that has just refused one is left alone for a while.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

from txn_source.storage.object_root import ObjectRoot, Root
from txn_source.storage.store_errors import StoreError

_PUT_WITHIN_S = 5.0
_REST_S = 30.0
_RESTS_UNTIL: dict[ObjectRoot, float] = {}
"""Stores that have refused what was put, by the clock that only goes up."""


class StoreRestsError(StoreError):
    """The store is left alone for a while, which was told when it refused."""


def put_file(root: Root, log_id: str, path: str, data: bytes) -> None:
    """Put a file; OSError says why it can't be, StoreRestsError that it wasn't tried.

    Raises:
        InvalidArgumentError: the prefix is another log's.
        LogNotFoundError: it is no log's.
    """
    if isinstance(root, Path):
        _put_in_folder(root / path, data)
        return
    from txn_source.storage.object_requests import requests_for
    from txn_source.storage.root_marker import confirm

    if _RESTS_UNTIL.get(root, 0.0) > time.monotonic():
        raise StoreRestsError("the store has just refused another one")
    try:
        confirm(root, log_id)
        requests_for(root.uri).put(path, data, within_s=_PUT_WITHIN_S)
    except OSError:
        _RESTS_UNTIL[root] = time.monotonic() + _REST_S
        raise


def read_file(root: Root, path: str) -> bytes:
    """Return a file; OSError says why it can't be read."""
    if isinstance(root, Path):
        return (root / path).read_bytes()
    from txn_source.storage.object_requests import requests_for

    return requests_for(root.uri).read(path)


def delete_file(root: Root, path: str) -> None:
    """Delete a file; harmless if there is none. OSError says why it stays."""
    if isinstance(root, Path):
        (root / path).unlink(missing_ok=True)
        return
    from txn_source.storage.object_requests import requests_for

    requests_for(root.uri).delete(path)


def _put_in_folder(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
