"""Object stores by URI: where an object lies, and what is said when a store refuses. Real stores: ``tests/tiers``."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.selection import for_each
from txn_source.model.errors import InvalidArgumentError, StorageWriteError
from txn_source.storage.object_store import (
    ObjectStore,
    check_folder,
    is_unreachable,
    reason,
)
from txn_source.storage.object_uri import object_uri, store_of

NAME = "t/n/orders/0/ledger-1-a.parquet"


@for_each(
    ("folder", "uri"),
    [
        (None, NAME),
        ("cold", f"cold/{NAME}"),
        ("/srv/cold/", f"/srv/cold/{NAME}"),
        ("/srv/why?", f"/srv/why?/{NAME}"),
        ("file:///srv/cold", f"file:///srv/cold/{NAME}"),
        ("s3://bucket", f"s3://bucket/{NAME}"),
        ("s3://bucket/a/b/?region=x&scheme=http", f"s3://bucket/a/b/{NAME}?region=x&scheme=http"),
    ],
)
def test_object_lies_in_its_folder(folder: str | None, uri: str) -> None:
    """Name an object in folders of every kind; parameters of a URI stay at its end."""
    assert object_uri(folder, NAME) == uri


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("a b#c%41?d/x", "root/a b#c%41?d/x"),
        ("{tmp}/elsewhere/x", "elsewhere/x"),
        ("file://{tmp}/a#b/x", "a#b/x"),
        ("file:{tmp}/one%20slash/x", "one slash/x"),
        ("FILE://localhost{tmp}/a%23b%3Fc/x", "a#b?c/x"),
    ],
)
def test_local_object_is_written_read_and_deleted(tmp_path: Path, uri: str, path: str) -> None:
    """Write to paths and file URIs with odd characters: the file is there by its name, and gone when it is deleted."""
    store, uri, file = ObjectStore(tmp_path / "root"), uri.format(tmp=tmp_path), tmp_path / path
    (tmp_path / "root").mkdir()
    check_folder(uri)
    with store.write(uri) as sink:
        sink.write(b"data")
    assert file.read_bytes() == b"data"
    with store.open(uri) as source:
        assert source.read() == b"data"
    store.delete(uri)
    assert not file.exists()
    store.delete(uri)  # it is gone already


@pytest.mark.parametrize(
    ("raised", "expected", "said"),
    [
        (KeyError("ours"), KeyError, "^'ours'$"),
        (
            OSError(28, "No space left"),
            StorageWriteError,
            "a/x can't be written: No space left. Nothing was registered",
        ),
    ],
)
def test_write_that_fails_leaves_nothing(
    tmp_path: Path, raised: Exception, expected: type[Exception], said: str
) -> None:
    """Raise in the block: our own errors stay as they are, those of files are said in our words; no file is left."""

    def write() -> None:
        with ObjectStore(tmp_path).write("a/x") as sink:
            sink.write(b"data")
            raise raised

    with pytest.raises(expected, match=said):
        write()
    assert list((tmp_path / "a").iterdir()) == []


def test_names_with_a_fragment_sign_are_not_one_object(tmp_path: Path) -> None:
    """Write two objects in a folder whose URI has a #: each keeps its own bytes."""
    store = ObjectStore(tmp_path)
    names = [object_uri(f"file://{tmp_path}/orders#1", name) for name in ("a", "b")]
    for name in names:
        with store.write(name) as sink:
            sink.write(name.encode())
    for name in names:
        with store.open(name) as source:
            assert source.read() == name.encode()


def test_local_files_that_cannot_be_deleted_are_an_error(tmp_path: Path) -> None:
    """Delete a folder as if it were an object."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        ObjectStore(tmp_path).delete("folder")


@for_each("uri", ["ftp://h/f", "s3:///f", "s3://b/f?colour=red", "file://host/f", "file:///f?x=1"])
def test_uri_without_a_store_is_refused(uri: str, tmp_path: Path) -> None:
    """Check URIs that mean nothing, and write to them all the same: each time the argument is to blame."""
    with pytest.raises(InvalidArgumentError):
        check_folder(uri)
    with pytest.raises(InvalidArgumentError):
        ObjectStore(tmp_path).write(uri).__enter__()


AWS = "When reading information for key 'x' in bucket 'b': AWS Error {} during HeadObject operation: {}"
CURL = AWS.format("NETWORK_CONNECTION", "curlCode: {}, {}; Details: Failed to connect to 10.0.0.1:80 after 2 ms")


@for_each(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file"), "it is missing"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (InvalidArgumentError("There is no file system for a://.", "Use another."), "There is no file system for a://"),
        (ValueError("two\n  lines."), "two lines"),
        (ValueError(), "ValueError"),
        (pa.ArrowInvalid("x" * 1000), "x" * 300 + " ..."),
        (OSError(CURL.format(7, "Could not connect")), "the store can't be reached: nobody listens there"),
        (OSError(CURL.format(6, "Could not resolve")), "the store can't be reached: its name is unknown"),
        (OSError(CURL.format(28, "Timeout was reached")), "the store can't be reached: it didn't answer in time"),
        (OSError(CURL.format(35, "SSL connect error")), "the store can't be reached: SSL connect error"),
        (OSError(AWS.format("NO_SUCH_BUCKET", "No such (Request ID: ab)")), "there is no such bucket"),
        (OSError(AWS.format("ACCESS_DENIED", "No response body.")), "the store denies access"),
        (OSError(AWS.format("UNKNOWN (HTTP status 503)", "No response body.")), "the store is too busy"),
        (
            OSError(AWS.format("UNKNOWN (HTTP status 418)", "I'm a teapot. (Request ID: ab)")),
            "the store refused HeadObject with UNKNOWN (HTTP status 418): I'm a teapot",
        ),
    ],
)
def test_reason_is_one_readable_line(error: Exception, said: str) -> None:
    """Give errors of files, of our own and of S3's client, with all that it says."""
    assert reason(error) == said


def test_unreachable_is_what_no_other_object_would_change() -> None:
    """Tell a store that doesn't answer from one that refuses, and from anything else."""
    assert is_unreachable(OSError(CURL.format(7, "Could not connect")))
    assert not is_unreachable(OSError(AWS.format("ACCESS_DENIED", "")))
    assert not is_unreachable(ValueError(CURL.format(7, "Could not connect")))
    assert not is_unreachable(None)


def test_objects_of_one_store_have_it_in_common() -> None:
    """Compare the stores of URIs: scheme, bucket and parameters count, the path doesn't."""
    assert store_of("s3://b/x/y?region=a") == store_of("S3://b/z?region=a")
    others = {store_of(uri) for uri in ("s3://b/x", "s3://b/x?region=a", "s3://c/x", "gs://b/x", "x", "file:///x")}
    assert len(others) == 6
    assert store_of("x") == store_of("/y")
