"""A token names no place where the service would go with its own credentials, but those that its operator lists."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.access.authority import Signer
from tests.access.conftest import Guarded
from tests.access.test_roles import ORDERS
from txn_source import Log, PermissionDeniedError, SegmentUnreadableError, StorageWriteError, connect

STORE = "s3://bank/cold?endpoint_override=minio.example:9000"
ELSEWHERE = [
    "s3://bank/cold?endpoint_override=evil.example",
    "s3://bank/cold",
    "gs://x/y",
    "../up",
    "/etc",
    "file:///etc",
]
WAYS: dict[str, Callable[[Log, str], object]] = {
    "policy of a topic": lambda log, uri: log.set_policies(ORDERS, offload_uri=uri),
    "policy of all": lambda log, uri: log.set_policies(offload_uri=uri),
    "policy of a new topic": lambda log, uri: log.create_topic("bank/public/new", offload_uri=uri),
    "root": lambda log, uri: log.metadata.add_root("b", uri),
}


@pytest.mark.parametrize("way", WAYS)
def test_place_that_is_not_listed_is_refused(signer: Signer, tmp_path: Path, way: str) -> None:
    """Name it as administrator of everything: nothing is changed, and the audit has it."""
    with Guarded(tmp_path / "log", signer, places=[STORE]) as guarded:
        log = guarded.connect("alice", admin=["*"])
        before = log.topics(), log.policies(ORDERS), log.roots()
        for uri in ELSEWHERE:
            with pytest.raises(PermissionDeniedError, match=r"lies in no place that a token may name.*--place URI"):
                WAYS[way](log, uri)
        assert (log.topics(), log.policies(ORDERS), log.roots()) == before
        lines = [json.loads(line) for line in guarded.audit_file.read_text().splitlines()]
        assert [line["outcome"] for line in lines] == ["PERMISSION_DENIED"] * len(ELSEWHERE)


@pytest.fixture
def cold(tmp_path: Path) -> str:
    """A folder outside of the root of a log, whose only ledger was offloaded to it."""
    folder = str(tmp_path / "cold store")
    with connect(tmp_path / "log", create=True) as log:
        log.create_topic("orders", offload_uri=folder)
        with log.producer("orders") as producer:
            producer.send(b"a")
        log.roll_ledger("orders")
        log.offload("orders")
        log.delete_hot("orders")
    return folder


def test_stored_places_are_opened_as_the_reader_allows(
    tmp_path: Path, cold: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open a log whose metadata names another folder: it is used unless the reader has a list without it."""

    def rows() -> int:
        with connect(tmp_path / "log") as log:
            return len(log.scan("orders").read_all())

    assert rows() == 1
    for listed in ("", "s3://bank/cold", f"'{cold}s'"):
        monkeypatch.setenv("TXNLOG_PLACES", listed)
        with pytest.raises(SegmentUnreadableError, match=r"cold store/.* lies in no place that may be opened"):
            rows()
    with connect(tmp_path / "log") as log:
        with log.producer("orders") as producer:
            producer.send(b"b")
        log.roll_ledger("orders")
        with pytest.raises(StorageWriteError, match="lies in no place"):
            log.offload("orders")
    monkeypatch.setenv("TXNLOG_PLACES", f"s3://bank/cold '{cold}'")
    assert rows() == 2


def test_stored_place_of_a_store_is_not_asked(tmp_path: Path, cold: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the metadata name a store at a host of somebody else: with a list nothing connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as host:
        host.settimeout(0)
        uri = f"s3://bank/x?scheme=http&endpoint_override=127.0.0.1:{host.getsockname()[1]}"
        with sqlite3.connect(tmp_path / "log" / "metadata.db") as database:
            database.execute("UPDATE copies SET uri = ?", (uri,))
        monkeypatch.setenv("TXNLOG_PLACES", "")
        with connect(tmp_path / "log") as log, pytest.raises(SegmentUnreadableError, match="lies in no place"):
            log.scan("orders").read_all()
        with pytest.raises(BlockingIOError):
            host.accept()


def test_own_root_and_what_is_listed_may_be_named(signer: Signer, tmp_path: Path) -> None:
    with Guarded(tmp_path / "log", signer, places=[str(tmp_path / "tiered")]) as guarded:
        log = guarded.connect("alice", produce=["bank/*"], consume=["bank/*"], admin=["bank/*"])
        with log.producer(ORDERS) as producer:
            producer.send(b"a")
        for folder in ("cold", str(tmp_path / "tiered" / "orders")):
            log.set_policies(ORDERS, offload_uri=folder)
            log.roll_ledger(ORDERS)
            log.offload(ORDERS)
        assert (tmp_path / "log" / "cold").is_dir()
        assert len(log.scan(ORDERS).read_all()) == 1
