"""Where tiered objects lie: any file system that ``pyarrow.fs`` knows, by URI.

A URI without a scheme is a path; a relative one is inside the log's root. ``s3://bucket/folder`` takes the parameters
``endpoint_override``, ``region``, ``scheme``, ``request_timeout`` and ``connect_timeout`` (seconds); credentials come
from where the SDK looks for them. ``gs://`` and ``hdfs://`` are opened by ``pyarrow.fs.FileSystem.from_uri``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as fs

from txn_source.model.errors import InvalidArgumentError, StorageWriteError

_S3_TEXTS = ("endpoint_override", "region", "scheme")
_S3_SECONDS = ("request_timeout", "connect_timeout")


class ObjectStore:
    """Reads, writes and deletes objects by URI; ``root`` is the folder that relative ones are in."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, uri: str) -> pa.NativeFile:
        """Open an object for random reads, or raise OSError."""
        system, path = self._locate(uri)
        return system.open_input_file(path)

    @contextmanager
    def write(self, uri: str) -> Iterator[pa.NativeFile]:
        """A stream to a new object. It is there, and safe, when the block is left; if the block raises, it isn't.

        Raises:
            StorageWriteError: the store refused.
        """
        system, path = self._locate(uri)
        local = isinstance(system, fs.LocalFileSystem)
        try:
            if local:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            sink = system.open_output_stream(path)
        except (OSError, pa.ArrowException) as error:
            raise _refused(uri, error) from error
        try:
            yield sink
            sink.close()
            if local:
                _sync(Path(path))
        except BaseException as error:
            with suppress(OSError, pa.ArrowException):
                sink.close()
            with suppress(OSError, pa.ArrowException):
                system.delete_file(path)
            if isinstance(error, OSError | pa.ArrowException):
                raise _refused(uri, error) from error
            raise

    def delete(self, uri: str) -> None:
        """Delete an object if it is there, or raise OSError."""
        system, path = self._locate(uri)
        try:
            system.delete_file(path)
        except FileNotFoundError:
            return
        except OSError:
            if system.get_file_info(path).type is not fs.FileType.NotFound:
                raise

    def _locate(self, uri: str) -> tuple[fs.FileSystem, str]:
        if "://" not in uri and not uri.startswith("file:"):
            return _local(), str(self._root / uri)
        base, _, query = uri.partition("?")
        return _file_system(os.getpid(), urlsplit(base).scheme, urlsplit(base).netloc, query), _path(base)


def object_uri(folder: str | None, name: str) -> str:
    """Return the URI of an object in a folder (None: the log's root); a URI's parameters stay at its end."""
    if folder is None:
        return name
    base, mark, query = folder.partition("?") if "://" in folder else (folder, "", "")
    return f"{base.rstrip('/')}/{name}{mark}{query}"


def check_folder(uri: str) -> None:
    """Raise INVALID_ARGUMENT if no file system can be opened by a URI; nothing is asked of the store itself."""
    if "://" in uri:
        ObjectStore(Path("/"))._locate(uri)


def reason(error: BaseException) -> str:
    """Return why a store refused, in one line."""
    if isinstance(error, FileNotFoundError):
        return "it is missing"
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]} ..."


@functools.lru_cache(1)
def _local() -> fs.LocalFileSystem:
    return fs.LocalFileSystem()


@functools.lru_cache(64)
def _file_system(_process: int, scheme: str, authority: str, query: str) -> fs.FileSystem:
    """Return the file system, opened once in a process: its connections don't outlive a fork."""
    try:
        if scheme == "file":
            return _local()
        if scheme == "s3":
            return fs.S3FileSystem(**_s3_options(query))
        return fs.FileSystem.from_uri(f"{scheme}://{authority}/" + (f"?{query}" if query else ""))[0]
    except (OSError, ValueError, TypeError, NotImplementedError, pa.ArrowException) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(
            f"No file system can be opened for {scheme}://{authority}: {reason(error)}.",
            "Use a path, file://, s3://, gs:// or hdfs://.",
        ) from None


def _s3_options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in _S3_TEXTS:
            options[name] = value
        elif name in _S3_SECONDS:
            options[name] = float(value)
        else:
            raise InvalidArgumentError(
                f"The s3 URI has a parameter {name!r}.", f"Use {', '.join((*_S3_TEXTS, *_S3_SECONDS))}."
            )
    if "://" in (endpoint := options.get("endpoint_override", "")):
        options["scheme"], _, options["endpoint_override"] = endpoint.partition("://")
    if endpoint:
        options.setdefault("region", "us-east-1")  # or else it is asked for, of Amazon
    return options


def _path(base: str) -> str:
    """Return the path of a URI as its file system wants it."""
    parts = urlsplit(base)
    path = unquote(parts.path)
    if parts.scheme in ("s3", "gs", "gcs"):
        return f"{parts.netloc}{path}"
    return path


def _sync(path: Path) -> None:
    """Return when a local file would survive a power cut."""
    for target in (path, path.parent):
        fd = os.open(target, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _refused(uri: str, error: BaseException) -> StorageWriteError:
    return StorageWriteError(
        f"{uri.partition('?')[0]} can't be written: {reason(error)}. Nothing was registered.",
        "Check the target, its permissions and the credentials, then try again.",
    )
