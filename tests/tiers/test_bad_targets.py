"""Targets that can't be written: nothing is registered, and one line says why and what to do."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pyarrow as pa
import pytest

from tests.log.reading import UNCOMMITTED
from tests.log.tiers import everything, tiers_of, write_ledgers
from tests.tiers.stores import Bucket, S3Server
from txn_source import InvalidArgumentError, Log, SegmentUnreadableError, StorageWriteError
from txn_source.storage import object_store, tiered

"""For what never answers."""
ONCE = {"max_attempts": 1}


@pytest.fixture
def before(log: Log) -> pa.Table:
    """What two closed ledgers and an open one hold; nothing is offloaded."""
    log.create_topic("orders")
    write_ledgers(log, ledgers=2)
    return everything(log, "orders", UNCOMMITTED)


def check_refused(log: Log, before: pa.Table, uri: str, why: str) -> None:
    """Offload to a target: one line says why that failed, and the log is as it was."""
    log.set_policies(topic="orders", offload_uri=uri)
    with pytest.raises(StorageWriteError) as caught:
        log.offload("orders")
    folder = re.escape(uri.partition("?")[0])
    assert re.fullmatch(
        rf"\[TXNLOG_STORAGE_WRITE_FAILED\] {folder}/public/default/orders/0/_?ledger-1-\w+\.(parquet|aborted) can't"
        rf" be written: {why}\. Nothing was registered\. Check the target, its permissions and the credentials,"
        r" then try again\.",
        str(caught.value),
    )
    assert tiers_of(log, "orders") == [{"bookkeeper"}] * 2
    assert log.delete_hot("orders") == 0
    assert everything(log, "orders", UNCOMMITTED).equals(before)


# Endpoints


@contextmanager
def nobody() -> Iterator[int]:
    """A port on which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


class _NoStore(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.send_error(404)


@contextmanager
def another_service() -> Iterator[int]:
    """A port of a web server that is no object store."""
    with HTTPServer(("127.0.0.1", 0), _NoStore) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


ENDPOINTS = {
    nobody: "the store can't be reached: nobody listens there",
    another_service: "the store refused CreateMultipartUpload with [^\n]*",
}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.__name__)
def test_wrong_endpoint(log: Log, bucket: Bucket, before: pa.Table, endpoint: Callable[[], ExitStack]) -> None:
    """Name an endpoint where no store answers; then the right one."""
    with endpoint() as port:
        check_refused(log, before, bucket.uri_at(f"127.0.0.1:{port}", **ONCE), ENDPOINTS[endpoint])
    log.set_policies(topic="orders", offload_uri=bucket.uri)
    assert len(log.offload("orders").ledger_ids) == 2


def test_files_of_an_unreachable_store_are_not_tried_one_by_one(
    log: Log, bucket: Bucket, before: pa.Table, caplog: pytest.LogCaptureFixture
) -> None:
    """Fail to offload twice, and offload elsewhere: one warning about the files that are to be deleted there."""
    with nobody() as port:
        for _ in range(2):
            check_refused(log, before, bucket.uri_at(f"127.0.0.1:{port}", **ONCE), ENDPOINTS[nobody])
        caplog.clear()
        log.set_policies(topic="orders", offload_uri=bucket.uri)
        log.offload("orders")
    assert len([r for r in caplog.records if "can't be deleted and is tried again later" in r.message]) == 1
    assert everything(log, "orders", UNCOMMITTED).equals(before)


# Buckets and credentials


def test_bucket_that_is_not_there(log: Log, bucket: Bucket, before: pa.Table) -> None:
    """Name a bucket that nobody made."""
    check_refused(log, before, bucket.uri.replace("bucket-", "no-bucket-"), "there is no such bucket")
    assert log.metadata.list_doomed_files() == []


@contextmanager
def guarded(server: S3Server) -> Iterator[None]:
    """Let in those only who have the right."""
    server.check_credentials(True)
    try:
        yield
    finally:
        server.check_credentials(False)


@pytest.mark.long
def test_credentials_without_the_right_to_write(
    log: Log, s3: S3Server, bucket: Bucket, before: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Come as somebody who may only read."""
    access, secret = s3.make_reader()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", access)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    with guarded(s3):
        check_refused(log, before, bucket.uri, "the store denies access")
    assert bucket.files() == []


def test_object_that_its_reader_may_not_see(
    log: Log, s3: S3Server, bucket: Bucket, before: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read with an unknown key: the hot copy is read; where there is none, the error says that access is denied."""
    log.set_policies(offload_uri=bucket.uri)
    log.offload("orders")
    why = r"ledger-1-\w+\.parquet is unreadable: the store denies access\."
    with as_nobody(s3, monkeypatch):
        reader = log.scan("orders", UNCOMMITTED, before.schema.names)
        assert reader.read_all().equals(before)
        failures = log.copies_read(reader).failures
    assert len(failures) == 2
    assert re.search(why, failures[0].reason)

    log.delete_hot("orders")
    with as_nobody(s3, monkeypatch), pytest.raises(SegmentUnreadableError, match=why):
        everything(log, "orders", UNCOMMITTED)


@contextmanager
def as_nobody(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let in those only who have the right, and come with an unknown key, as a process of its own would."""
    with monkeypatch.context() as patch, guarded(server):
        patch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        patch.setattr(tiered, "_FOOTERS", tiered._FooterCache())
        object_store._file_system.cache_clear()
        yield
    object_store._file_system.cache_clear()


# Folders and URIs


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        ("ftp://host/folder", "There is no file system for ftp://host. Use a path, or file://, s3://, gs://"),
        ("mock://host/folder", "There is no file system for mock://host. Use a path, or file://, s3://, gs://"),
        ("s3:///folder", "s3:// names no bucket. Use s3://bucket/folder."),
        ("s3://b/f?endpoint=x", "The s3 URI has a parameter 'endpoint'. Use endpoint_override, region, scheme,"),
        ("s3://b/f?region=", "The s3 URI's parameter 'region' has no value. Give one, or leave it out."),
        ("s3://b/f?scheme=ftp", "The s3 URI's scheme is 'ftp'. Use http or https."),
        ("s3://b/f?request_timeout=soon", "The s3 URI's parameter 'request_timeout' is 'soon'. Use a number from"),
        ("s3://b/f?connect_timeout=nan", "The s3 URI's parameter 'connect_timeout' is 'nan'. Use a number from"),
        ("s3://b/f?max_attempts=0", "The s3 URI's parameter 'max_attempts' is '0'. Use a number from 1 to 100."),
        ("file://folder/sub", "file://folder is not a folder of this machine. Use file:///folder, with three slashes"),
    ],
)
def test_uri_that_means_no_store_is_refused_at_once(log: Log, uri: str, error: str) -> None:
    """Set it with another policy, and create a topic with it: both are refused, and nothing is set."""
    for attempt in (
        lambda: log.set_policies(offload_uri=uri, retention_age=1),
        lambda: log.create_topic("orders", offload_uri=uri),
    ):
        with pytest.raises(InvalidArgumentError, match=r"^\[TXNLOG_INVALID_ARGUMENT\] " + re.escape(error)):
            attempt()
    assert log.topics() == []
    log.create_topic("orders")
    assert {policy.source for policy in log.policies("orders").values()} == {"default"}
