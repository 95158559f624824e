"""Readiness while what a service stands on is away: its PostgreSQL, its object store."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.watched import Watched
from tests.log.objects import s3_surroundings, shared_bucket, shared_server
from tests.log.reading import eventually
from tests.log.sites import log_on_postgres
from tests.metadata.postgres import server
from tests.tiers.proxy import Fault, Proxy
from txn_source.metadata.store.database_url import DatabaseUrl

pytestmark = pytest.mark.usefixtures("s3")


@pytest.fixture(autouse=True)
def _ask_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txn_source.http.readiness._KNOWN_S", 0.0)


@pytest.fixture
def store() -> Iterator[Proxy]:
    """The way to an object store, which can be cut."""
    with s3_surroundings(), Proxy(shared_server().endpoint) as proxy:
        yield proxy


def failed(watched: Watched) -> dict[str, str]:
    """Return which checks fail, and why; the process lives in any case, and tells what it can."""
    assert watched.get("/live").status == 200
    answer = watched.get("/ready")
    found = json.loads(answer.body)
    assert (answer.status == 200) == found["ready"] == (not found["failed"])
    scraped = watched.scrape(refresh=False)
    for check in ("database", "schema", "root"):
        assert scraped.one("txnlog_ready", check=check) == float(check not in found["failed"])
    return dict(found["failed"])


def test_a_dead_postgresql_is_told_and_comes_back(tmp_path: Path) -> None:
    """Kill the database, ask, start it, ask: the service needs no restart, and nothing it has counted is lost."""
    with log_on_postgres(tmp_path / "log") as url, Watched(tmp_path / "log", metadata=url) as watched:
        log = watched.connect()
        log.create_topic("orders")
        assert failed(watched) == {}
        figures = watched.scrape()
        assert figures.one("txnlog_topics") == 1
        server().kill()
        try:
            found = failed(watched)
            assert set(found) == {"database", "schema"}
            assert all(text.startswith("[TXNLOG_UNAVAILABLE]") for text in found.values())
            # What was known of the log a moment ago is still told, with its time.
            away = watched.scrape(refresh=False)
            assert away.one("txnlog_topics") == 1
            assert away.one("txnlog_figures_timestamp_seconds") == figures.one("txnlog_figures_timestamp_seconds")
        finally:
            server().start()
        eventually(lambda: failed(watched) == {})
        log.create_topic("bills")
        back = watched.scrape()
        assert back.one("txnlog_topics") == 2
        assert back.one("txnlog_calls_total", call="CreateTopic", code="OK") == 2


def test_a_dead_object_store_is_told_and_comes_back(tmp_path: Path, store: Proxy) -> None:
    """Cut the way to the store: not ready, with what the store is, until it is back."""
    root = f"s3://{shared_bucket().name}/{uuid.uuid4().hex}?endpoint_override=http://{store.endpoint}"
    with Watched(root, metadata=DatabaseUrl(f"sqlite:///{tmp_path / 'metadata.db'}")) as watched:
        assert failed(watched) == {}
        store.set_fault(Fault("refuse", lambda request: True))
        found = failed(watched)
        assert set(found) == {"root"}
        assert found["root"].startswith("[TXNLOG_")
        store.set_fault(None)
        eventually(lambda: failed(watched) == {})
