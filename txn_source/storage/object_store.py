"""Where tiered objects lie: any file system that ``pyarrow.fs`` knows, by URI.

A URI without a scheme is a path; a relative one is inside the log's root. In one with a scheme ``%`` begins an escape
and ``?`` the parameters. ``s3://bucket/folder`` takes ``endpoint_override``, ``region``, ``scheme``,
``connect_timeout`` and ``request_timeout`` (seconds), ``max_attempts``, and ``write_deadline`` (seconds), which is how
long a segment's put is tried; credentials come from where the SDK looks for them. ``gs://`` and ``hdfs://`` are opened
by ``pyarrow.fs.FileSystem.from_uri``.

A store that is gone must not hold up readers, who may have another copy: nobody answering is found out after a few
seconds. The request timeout is how long a store may send nothing. curl looks at averages, so one that falls silent in
the middle of an answer gets about five seconds more.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa
import pyarrow.fs as fs

from txn_source.model.errors import InvalidArgumentError, StorageWriteError, TxnLogError
from txn_source.storage.folders import make_folder, sync_file, sync_folder
from txn_source.storage.object_root import Root, located
from txn_source.storage.object_uri import BUCKETS, parts_of
from txn_source.storage.s3_client import S3Place
from txn_source.storage.store_errors import StoreError

_SCHEMES = ("file", *BUCKETS, "hdfs", "viewfs")  # pyarrow knows more, one of which keeps everything in memory
_S3_SECONDS = {"connect_timeout": 1.0, "request_timeout": 5.0}
_WRITE_DEADLINE_S = 120.0
_S3_PARAMETERS = ("endpoint_override", "region", "scheme", *_S3_SECONDS, "max_attempts", "write_deadline")
_MAX_ATTEMPTS = 3
_MAX_TEXT = 300


class ObjectStore:
    """Reads, writes and deletes objects by URI; relative ones are in ``root``."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._deleted_in: set[Path] = set()

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
        try:
            system, path = self._locate(uri)
        except StoreError as error:
            raise _refused(uri, error) from error
        local = isinstance(system, fs.LocalFileSystem)
        sink = None
        try:
            if local:
                root, folder = self._root, Path(path).parent
                known = root if isinstance(root, Path) and folder.is_relative_to(root) else None
                make_folder(folder, known)
            sink = system.open_output_stream(path, compression=None)  # whatever its name says
            yield sink
            sink.close()
            if local:
                sync_file(Path(path))
        except BaseException as error:
            refused = isinstance(error, OSError | pa.ArrowException)
            if sink is not None:
                with suppress(OSError, pa.ArrowException):
                    sink.close()
            if sink is not None or not refused:
                with suppress(OSError, pa.ArrowException):
                    system.delete_file(path)
            if refused:
                raise _refused(uri, error) from error
            raise

    def delete(self, uri: str) -> None:
        """Delete an object if it is there, or raise OSError.

        A file system that has no folders of its own, such as S3, may keep an empty object in place of the last one's.
        """
        system, path = self._locate(uri)
        try:
            if isinstance(system, fs.LocalFileSystem):
                self._deleted_in.add(Path(path).parent)  # also if it is gone: who deleted it may not have synced that
                os.unlink(path)
            else:
                system.delete_file(path)
        except FileNotFoundError:
            return
        except OSError as error:
            if is_unreachable(error) or system.get_file_info(path).type is not fs.FileType.NotFound:
                raise

    def sync_deleted(self) -> None:
        """Return when what was deleted stays so after a power cut; before it, somebody must know of it still.

        Raises:
            OSError: a folder can't be synced.
        """
        while self._deleted_in:
            folder = self._deleted_in.pop()
            with suppress(FileNotFoundError, NotADirectoryError):  # with all that was in it
                sync_folder(folder)

    def _locate(self, uri: str) -> tuple[fs.FileSystem, str]:
        return file_system_of(located(self._root, uri))


def file_system_of(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI or an absolute path, and the path in it; nothing is asked of a store itself.

    Raises:
        InvalidArgumentError: no file system can be opened by it.
    """
    scheme, authority, path, query = parts_of(uri)
    return (_file_system(os.getpid(), scheme, authority, query) if scheme else _local()), path


def check_folder(uri: str) -> None:
    """Raise INVALID_ARGUMENT if no file system can be opened by a URI; nothing is asked of the store itself."""
    ObjectStore(Path("/"))._locate(uri)


def s3_place_of(uri: str) -> S3Place:
    """Return where the bucket of a URI is, for requests that ``pyarrow.fs`` doesn't make.

    Raises:
        InvalidArgumentError: the URI has a parameter that can't be.
    """
    _, bucket, _, query = parts_of(uri)
    given = dict(parse_qsl(query, keep_blank_values=True))
    options = _s3_options(query)
    endpoint = options.get("endpoint_override")
    return S3Place(
        bucket=bucket.partition("/")[0],
        endpoint=None if endpoint is None else f"{options.get('scheme', 'https')}://{endpoint}",
        region=options.get("region"),
        connect_timeout=options["connect_timeout"],
        request_timeout=options["request_timeout"],
        max_attempts=int(_number("max_attempts", given.get("max_attempts", _MAX_ATTEMPTS), 1, 100)),
        write_deadline=_number("write_deadline", given.get("write_deadline", _WRITE_DEADLINE_S), 0.001, 3600),
    )


def is_unreachable(error: BaseException | None) -> bool:
    """True if a store didn't answer at all, so that asking it for another object would be a waste of time."""
    if isinstance(error, StoreError):
        return error.unreachable
    found = _AWS_ERROR.search(str(error)) if isinstance(error, OSError) else None
    return found is not None and found["code"] == "NETWORK_CONNECTION"


def is_passing(error: BaseException | None) -> bool:
    """True if what a store refused may be taken later."""
    return is_unreachable(error) or (isinstance(error, StoreError) and error.passing)


def is_refused(error: BaseException | None) -> bool:
    """True if a place refused who asked for something, so that nothing is known of what lies there."""
    if isinstance(error, StoreError):
        return error.refused
    if isinstance(error, OSError) and (found := _AWS_ERROR.search(str(error))) is not None:
        return found["code"] not in ("NETWORK_CONNECTION", "NO_SUCH_KEY")
    return isinstance(error, PermissionError)


def reason(error: BaseException) -> str:
    """Return why a store refused, in one line."""
    if isinstance(error, FileNotFoundError):
        return "it is missing"
    if isinstance(error, TxnLogError):
        return error.fact.rstrip(".")
    text = str(error)
    if isinstance(error, OSError):
        text = _aws_reason(text) or error.strerror or text
    text = " ".join(text.split()).rstrip(".") or type(error).__name__
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} ..."


_AWS_ERROR = re.compile(
    r"AWS Error (?P<code>\w+)(?: \(HTTP status (?P<status>\d+)\))? during (?P<operation>\w+) operation:"
    r"(?P<text>.*?)(?:\(Request ID: .*)?$",
    re.DOTALL,
)
_AWS_MEANINGS = {
    "NO_SUCH_BUCKET": "there is no such bucket",
    "NO_SUCH_KEY": "it is missing",
    "ACCESS_DENIED": "the store denies access",
    "INVALID_ACCESS_KEY_ID": "the store doesn't know the access key",
    "SIGNATURE_DOES_NOT_MATCH": "the secret key is not that of the access key",
    "EXPIRED_TOKEN": "the credentials have expired",
    "REQUEST_TIME_TOO_SKEWED": "the clock of this machine is wrong",
    "SLOW_DOWN": "the store is too busy",
    "SERVICE_UNAVAILABLE": "the store is too busy",
    "301": "the bucket is in another region than the URI's",  # by status: what has no body has no code either
    "403": "the store denies access",
    "429": "the store is too busy",
    "503": "the store is too busy",
}
_CURL_MEANINGS = {"6": "its name is unknown", "7": "nobody listens there", "28": "it didn't answer in time"}


def _aws_reason(text: str) -> str | None:
    """Return what an error of the AWS SDK means; None if it is none."""
    found = _AWS_ERROR.search(text)
    if found is None:
        return None
    said = found["text"].strip()
    if found["code"] == "NETWORK_CONNECTION":
        curl = re.match(r"curlCode: (\d+), ([^;]*)", said)
        why = (_CURL_MEANINGS.get(curl[1]) or curl[2].strip()) if curl else said
        return f"the store can't be reached: {why}"
    meaning = _AWS_MEANINGS.get(found["code"]) or _AWS_MEANINGS.get(found["status"])
    if meaning is not None:
        return meaning
    status = f" (HTTP status {found['status']})" if found["status"] else ""
    return f"the store refused {found['operation']} with {found['code']}{status}{': ' if said else ''}{said}"


@functools.lru_cache(1)
def _local() -> fs.LocalFileSystem:
    return fs.LocalFileSystem()


@functools.lru_cache(64)
def _file_system(_process: int, scheme: str, authority: str, query: str) -> fs.FileSystem:
    """Return the file system, opened once in a process: its connections don't outlive a fork."""
    name = f"{scheme}://{authority}"
    if scheme not in _SCHEMES:
        raise InvalidArgumentError(
            f"There is no file system for {name}.", f"Use a path, or {', '.join(f'{s}://' for s in _SCHEMES)}."
        )
    if scheme in BUCKETS and not authority:
        raise InvalidArgumentError(f"{name} names no bucket.", f"Use {scheme}://bucket/folder.")
    if scheme == "file":
        if authority not in ("", "localhost") or query:
            raise InvalidArgumentError(
                f"{name} is not a folder of this machine.", "Use file:///folder, with three slashes and no parameters."
            )
        return _local()
    try:
        if scheme == "s3":
            return fs.S3FileSystem(**_s3_options(query))
        return fs.FileSystem.from_uri(f"{name}/" + (f"?{query}" if query else ""))[0]
    except InvalidArgumentError:
        raise
    except (OSError, ValueError, TypeError, NotImplementedError, pa.ArrowException) as error:
        raise InvalidArgumentError(
            f"No file system can be opened for {name}: {reason(error)}.",
            "Check the URI, and what its file system needs on this machine.",
        ) from None


def _s3_options(query: str) -> dict[str, Any]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in given.items():
        if name not in _S3_PARAMETERS:
            raise InvalidArgumentError(f"The s3 URI has a parameter {name!r}.", f"Use {', '.join(_S3_PARAMETERS)}.")
        if not value:
            raise InvalidArgumentError(f"The s3 URI's parameter {name!r} has no value.", "Give one, or leave it out.")
    options: dict[str, Any] = {name: given[name] for name in ("endpoint_override", "region", "scheme") if name in given}
    if "://" in (endpoint := options.get("endpoint_override", "")):
        options["scheme"], _, rest = endpoint.partition("://")
        options["endpoint_override"] = rest.rstrip("/")
    if options.get("scheme", "https") not in ("http", "https"):
        raise InvalidArgumentError(f"The s3 URI's scheme is {options['scheme']!r}.", "Use http or https.")
    if endpoint:
        options.setdefault("region", "us-east-1")  # or else it is asked for, of Amazon
    for name, usual in _S3_SECONDS.items():
        options[name] = _number(name, given.get(name, usual), 0.001, 3600)
    attempts = int(_number("max_attempts", given.get("max_attempts", _MAX_ATTEMPTS), 1, 100))
    return {**options, "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=attempts)}


def _number(name: str, value: str | float, lowest: float, highest: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not lowest <= number <= highest:
        raise InvalidArgumentError(
            f"The s3 URI's parameter {name!r} is {value!r}.", f"Use a number from {lowest:g} to {highest:g}."
        )
    return number


def _refused(uri: str, error: BaseException) -> StorageWriteError:
    return StorageWriteError(
        f"{uri.partition('?')[0]} can't be written: {reason(error)}. Nothing was registered.",
        "Check the target, its permissions and the credentials, then try again.",
    )
