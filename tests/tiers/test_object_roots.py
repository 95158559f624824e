"""Logs whose root is a prefix of an object store: making and opening them, by a path or by an endpoint alone."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import txn_source
from tests.log.reading import BY_HAND, send_each, values
from tests.metadata.postgres import server as postgres
from tests.selection import for_each, mostly_long
from tests.tiers.proxy import Fault, Proxy
from tests.tiers.stores import Bucket, S3Server
from txn_source import InvalidArgumentError, LogNotFoundError, StorageWriteError, TxnLogError, UnavailableError
from txn_source.client.target import metadata_url as database
from txn_source.client.target import open_service
from txn_source.metadata.service.server import Server
from txn_source.storage import root_marker
from txn_source.storage.object_requests import S3Requests, requests_for
from txn_source.storage.object_root import ObjectRoot, root_at
from txn_source.storage.object_store import s3_place_of
from txn_source.storage.root_marker import log_id_at, new_log_id


@pytest.fixture
def uri(bucket: Bucket, s3: S3Server) -> str:
    return bucket.uri_at(s3.endpoint)


@pytest.fixture
def served(uri: str, tmp_path: Path) -> Iterator[Server]:
    """A service over a log on an object store."""
    service = open_service(uri, database(tmp_path / "log.db"), create=True)
    with Server(service, "127.0.0.1", 0) as server:
        yield server
    service.close()


def test_endpoint_is_all_that_a_client_needs(served: Server, bucket: Bucket) -> None:
    """Write, read, and read again in a connection that was pickled: no client was told where the segments are."""
    with txn_source.connect(endpoint=served.address) as log:
        log.create_topic("orders", partitions=3)
        send_each(log.producer("orders"), [b"1", b"2", b"3"])
        with log.begin_transaction() as transaction:
            send_each(log.producer("orders"), [b"4"], txn=transaction)
        with pickle.loads(pickle.dumps(log)) as other:
            assert sorted(values(other, "orders")) == [b"1", b"2", b"3", b"4"]
    assert {name.split("/")[0] for name in bucket.files()} == {"segments", "txnlog.json"}


def test_embedded_log_keeps_its_metadata_where_it_is_told(uri: str, tmp_path: Path) -> None:
    """Open it again by the same prefix and file."""
    for wanted in ([b"1"], [b"1", b"2"]):
        with txn_source.connect(uri, metadata=tmp_path / "log.db") as log:
            if len(wanted) == 1:
                log.create_topic("orders")
            send_each(log.producer("orders"), wanted[-1:])
            with pickle.loads(pickle.dumps(log)) as other:
                assert values(other, "orders") == values(log, "orders") == wanted


def test_metadata_may_lie_in_postgres(uri: str) -> None:
    """Serve a prefix with PostgreSQL twice: both services have one log, and another log's database is refused."""
    url, other = postgres().new_database(), postgres().new_database()
    try:
        for wanted in ([b"1"], [b"1", b"2"]):
            with (
                Server(open_service(uri, url, create=True), "127.0.0.1", 0) as server,
                txn_source.connect(endpoint=server.address) as log,
            ):
                if len(wanted) == 1:
                    log.create_topic("orders", partitions=2)
                send_each(log.producer("orders"), wanted[-1:])
                assert sorted(values(log, "orders")) == wanted
        with pytest.raises(LogNotFoundError, match="has no log in it"):
            open_service(uri, other, create=True)
    finally:
        for each in (url, other):
            postgres().drop_database(each)


def test_two_logs_never_share_a_prefix(uri: str, tmp_path: Path, bucket: Bucket) -> None:
    """Open a log's prefix with metadata that is new, and with that of another log; nothing of either changes."""
    txn_source.connect(uri, metadata=tmp_path / "log.db").close()
    marker = bucket.read("txnlog.json")
    with pytest.raises(LogNotFoundError, match="has no log in it"):
        txn_source.connect(uri, metadata=tmp_path / "new.db")
    elsewhere = uri.replace("/folder", "/other")
    txn_source.connect(elsewhere, metadata=tmp_path / "other.db").close()
    with pytest.raises(InvalidArgumentError, match="is the root of the log"):
        txn_source.connect(uri, metadata=tmp_path / "other.db")
    assert bucket.read("txnlog.json") == marker


def test_logs_that_are_made_at_the_same_moment_share_no_prefix(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another log be made between the look at the prefix and the marker: it keeps the prefix."""
    root = root_at(uri)
    first, second = (new_log_id(root) for _ in range(2))
    looks = [lambda _: root_marker.claim(root, first)]  # and finds nothing, as before it was made

    def look(at: ObjectRoot) -> str | None:
        return looks.pop()(at) if looks else log_id_at(at)

    monkeypatch.setattr(root_marker, "log_id_at", look)
    with pytest.raises(InvalidArgumentError, match=f"is the root of the log {first}"):
        root_marker.claim(root, second)
    assert log_id_at(root) == first


def test_metadata_in_use_makes_no_second_prefix(uri: str, tmp_path: Path) -> None:
    """Open the metadata of a log that has a topic with a prefix that is empty."""
    with txn_source.connect(uri, metadata=tmp_path / "log.db") as log:
        log.create_topic("orders")
    with pytest.raises(LogNotFoundError, match="it has no txnlog"):
        txn_source.connect(uri.replace("/folder", "/other"), metadata=tmp_path / "log.db")


def test_metadata_of_an_empty_log_makes_no_second_prefix(uri: str, tmp_path: Path) -> None:
    """Serve the database of a log that has no topic yet with another root: refused, or else clients of the two services
    would write to two places."""
    first, second = uri, uri.replace("/folder", "/other")
    assert first != second
    txn_source.connect(first, metadata=tmp_path / "log.db").close()
    with pytest.raises(LogNotFoundError, match="There is no log at"):
        txn_source.connect(second, metadata=tmp_path / "log.db")
    txn_source.connect(first, metadata=tmp_path / "log.db").close()


def test_store_that_is_away_is_not_a_log_that_is_lost(uri: str, s3: S3Server, tmp_path: Path) -> None:
    """Ask for a log while nobody listens at its store: LOG_NOT_FOUND would send whoever looks to a backup."""
    txn_source.connect(uri, metadata=tmp_path / "log.db").close()
    away = uri.replace(s3.endpoint, "127.0.0.1:1")
    with pytest.raises(UnavailableError, match=r"can't be read for now: .* See whether the store runs"):
        log_id_at(root_at(away))
    assert log_id_at(root_at(uri)) is not None


def test_creation_that_was_interrupted_goes_on(uri: str, tmp_path: Path, bucket: Bucket) -> None:
    """Remove the marker of a log that was just made, as if its creation had ended before it."""
    txn_source.connect(uri, metadata=tmp_path / "log.db").close()
    before = json.loads(bucket.read("txnlog.json"))
    bucket.remove("txnlog.json")
    txn_source.connect(uri, metadata=tmp_path / "log.db").close()
    assert json.loads(bucket.read("txnlog.json")) == before


@for_each(
    ("change", "error", "said"),
    [
        (lambda uri: uri.replace("s3://", "s3://key:secret@"), InvalidArgumentError, "has a user or a password"),
        (lambda uri: uri.replace("/folder", "/a/../b"), InvalidArgumentError, r"has a '.' or '..' in its path"),
        (lambda uri: uri.replace("/folder", "/a//b"), InvalidArgumentError, "has an empty part in its path"),
        (lambda uri: uri.replace("/folder", "/a%2fb"), InvalidArgumentError, "has a '#' or '%' in its path"),
        (lambda uri: uri.replace("s3://", "ftp://"), InvalidArgumentError, "There is no file system for ftp://"),
        (lambda uri: "http://localhost:6650", InvalidArgumentError, "Give a service's address as endpoint='host:port'"),
        (lambda uri: uri + "&password=secret", InvalidArgumentError, "has a parameter 'password'"),
        (lambda uri: uri.replace("bucket-", "nobucket-"), LogNotFoundError, "there is no such bucket"),
    ],
)
def test_roots_that_can_not_be_are_refused(
    uri: str, tmp_path: Path, change: object, error: type[TxnLogError], said: str
) -> None:
    """Each says what is wrong, and none shows a secret."""
    with pytest.raises(error, match=said) as raised:
        txn_source.connect(change(uri), metadata=tmp_path / "log.db")  # type: ignore[operator]
    assert "secret" not in str(raised.value)


def test_object_root_needs_metadata(uri: str, tmp_path: Path) -> None:
    """Without metadata, or with metadata for a folder, it is refused; a file that isn't there is made for no reader."""
    with pytest.raises(InvalidArgumentError, match="which can't hold its metadata"):
        txn_source.connect(uri)
    with pytest.raises(InvalidArgumentError, match="without the URI of an object store"):
        txn_source.connect(tmp_path / "log", metadata=tmp_path / "log.db")
    with pytest.raises(InvalidArgumentError, match="without the URI of an object store"):
        txn_source.connect(endpoint="localhost:1", metadata=tmp_path / "log.db")
    with pytest.raises(InvalidArgumentError, match="has no metadata of ours"):
        txn_source.connect(f"kafka:{uri}", metadata=tmp_path / "log.db")
    with pytest.raises(LogNotFoundError, match="There is no metadata in"):
        txn_source.connect(uri, metadata=tmp_path / "log.db", create=False)
    with pytest.raises(InvalidArgumentError, match="asks for no token"):
        txn_source.connect(uri, metadata=tmp_path / "log.db", token="secret")
    assert not (tmp_path / "log.db").exists()


def test_no_right_to_write_is_told(uri: str, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write as a user who may only read: the messages are refused with the reason, and what was there is read."""
    with txn_source.connect(uri, metadata=tmp_path / "log.db") as log:
        log.create_topic("orders")
        send_each(log.producer("orders"), [b"1"])
        access, secret = s3.make_reader()
        s3.check_credentials(True)
        try:
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", access)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
            producer = log.producer("orders", batching=BY_HAND)
            producer.send(b"2")
            with pytest.raises(StorageWriteError, match="the store denies access"):
                producer.flush()
            assert values(log, "orders") == [b"1"]
        finally:
            s3.check_credentials(False)


def test_store_that_errors_for_long_loses_nothing(
    bucket: Bucket, proxy: Proxy, tmp_path: Path, pauses_pass_at_once: None
) -> None:
    """Let the store be busy past the deadline of a write: flush says so, and stores all when the store is back."""
    with txn_source.connect(bucket.uri_at(proxy.endpoint), metadata=tmp_path / "log.db") as log:
        log.create_topic("orders")
        producer = log.producer("orders", batching=BY_HAND)
        producer.send(b"1")
        proxy.set_fault(Fault("busy", lambda request: request.method == "PUT"))
        with pytest.raises(UnavailableError, match=r"can't be written for now: .*\. Nothing is lost"):
            producer.flush()
        assert proxy.struck >= 1
        proxy.set_fault(None)
        producer.send(b"2")
        assert len(producer.flush()) == 2
        assert values(log, "orders") == [b"1", b"2"]


@pytest.mark.parametrize("what", mostly_long(["lose", "busy"], "lose"))
def test_passing_faults_are_not_noticed(bucket: Bucket, proxy: Proxy, tmp_path: Path, what: str) -> None:
    """Spoil two requests of each kind: nothing is lost or doubled."""
    with txn_source.connect(bucket.uri_at(proxy.endpoint), metadata=tmp_path / "log.db") as log:
        log.create_topic("orders")
        producer = log.producer("orders", batching=BY_HAND)
        producer.send(b"1")
        proxy.set_fault(Fault(what, lambda request: True, times=2))
        assert len(producer.flush()) == 1
        proxy.set_fault(Fault(what, lambda request: True, times=2))
        assert values(log, "orders") == [b"1"]
        assert proxy.struck == 2


def test_silent_store_is_given_up(bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    """Let a store that has taken a connection never answer: writes and reads end, with what they waited for."""
    uri = bucket.uri_at(proxy.endpoint)
    hasty = bucket.uri_at(proxy.endpoint, request_timeout=0.1, write_deadline=0.3, max_attempts=1)
    with txn_source.connect(uri, metadata=tmp_path / "log.db") as log:
        log.create_topic("orders")
        send_each(log.producer("orders"), [b"1"])
        proxy.set_fault(Fault("silence", lambda request: True))
        set_limits(uri, hasty)
        with pytest.raises(txn_source.SegmentUnreadableError, match="it didn't answer in time"):
            values(log, "orders")
        producer = log.producer("orders", batching=BY_HAND)
        producer.send(b"2")
        with pytest.raises(UnavailableError, match="it didn't answer in time"):
            producer.flush()
        proxy.set_fault(None)
        set_limits(uri, uri)
        producer.flush()
        assert values(log, "orders") == [b"1", b"2"]


def set_limits(uri: str, of: str) -> None:
    """Have the requests to a prefix go by the limits in another URI from now on."""
    requests = requests_for(uri)
    assert isinstance(requests, S3Requests)
    requests.client._place, requests.client._made = s3_place_of(of), None
