"""Whether a service is alive and ready, and who may see its metrics."""

from __future__ import annotations

import http.client
import shutil
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.access.authority import Authority, Signer
from tests.http.watched import Watched
from tests.log.reading import eventually
from txn_source import UnavailableError
from txn_source.http.readiness import Readiness
from txn_source.metadata.access.door import Door
from txn_source.metadata.access.keys import Keys
from txn_source.metadata.access.limits import Limits, Usage
from txn_source.metadata.access.tokens import Verifier
from txn_source.metadata.store.table_version import SCHEMA_VERSION


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with Watched(tmp_path / "log") as made:
        yield made


@pytest.fixture(autouse=True)
def _ask_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txn_source.http.readiness._KNOWN_S", 0.0)


def guarded(tmp_path: Path, limits: Limits | None = None) -> tuple[Door, Signer]:
    signer = Signer(tmp_path)
    return Door(Verifier(Keys([signer.public_file])), Usage(limits or Limits())), signer


def test_a_service_is_alive_and_ready(watched: Watched) -> None:
    """Ask for both, and for what isn't there; nothing takes a POST."""
    assert watched.get("/live")[:2] == (200, "alive\n")
    assert watched.get("/ready")[:2] == (200, '{"ready":true,"failed":{}}')
    assert watched.scrape().all("txnlog_ready") == [({"check": check}, 1) for check in ("database", "schema", "root")]
    assert watched.get("/").status == 404
    for path in ("/metrics", "/live", "/ready"):
        assert watched.get(path, method="POST").status == 405
    assert "server" not in watched.get("/live").headers


def test_a_broken_database_is_told_and_the_service_lives(watched: Watched, tmp_path: Path) -> None:
    """Put something else in the database's place: not ready, and why; metrics go on without the log's figures."""
    broken = tmp_path / "broken"
    for path in (tmp_path / "log").glob("metadata.db*"):
        broken.write_bytes(b"no database" * 1000)
        broken.replace(path)  # the service's threads map the -shm file: to cut it short kills the process (SIGBUS)
    watched.service.close_database()
    answer = watched.get("/ready")
    assert answer.status == 503
    assert '"ready":false' in answer.body
    assert "[TXNLOG_" in answer.body
    assert watched.get("/live").status == 200
    assert watched.scrape(refresh=False).one("txnlog_ready", check="database") == 0


def test_a_root_that_is_gone_is_told(watched: Watched, tmp_path: Path) -> None:
    """Move the root's marker away, as an unmounted folder does, and back."""
    marker = tmp_path / "log" / "txnlog.json"
    moved = shutil.move(marker, tmp_path / "elsewhere")
    answer = watched.get("/ready")
    assert (answer.status, "There is no log at" in answer.body) == (503, True)
    assert '"database"' not in answer.body
    shutil.move(moved, marker)
    assert watched.get("/ready").status == 200


def test_another_version_of_the_tables_is_told(watched: Watched) -> None:
    """A newer release upgrades the tables under a running service."""
    newer = SCHEMA_VERSION + 1
    statement = f"INSERT INTO schema_versions (version) VALUES ({newer})"
    watched.service._database.write(lambda connection: connection.exec_driver_sql(statement))
    answer = watched.get("/ready")
    assert (answer.status, f"has schema version {newer}" in answer.body) == (503, True)


def test_a_check_that_hangs_is_not_waited_for() -> None:
    """Ask often while a check hangs: each is told so, and there is one thread, not one for each."""
    begun, gate = [], threading.Event()

    def hang() -> None:
        begun.append(1)
        gate.wait(30)

    readiness = Readiness({"root": hang, "database": lambda: None}, patience_s=0.05)
    for _ in range(3):
        assert isinstance(readiness.ask()["root"], UnavailableError)
    eventually(lambda: readiness.ask()["database"] is None)  # on a busy machine it may take longer, too
    eventually(lambda: begun == [1])
    gate.set()


def test_metrics_need_a_token_where_calls_do(tmp_path: Path) -> None:
    """Ask without, with a wrong one, with one for another role or a part of the log, and with the right ones."""
    door, signer = guarded(tmp_path)
    with Watched(tmp_path / "log", door=door) as watched:

        def status(token: str) -> int:
            return watched.get("/metrics", Authorization=f"Bearer {token}").status

        refused = watched.get("/metrics")
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert refused.body.startswith("[TXNLOG_UNAUTHENTICATED]")
        assert watched.get("/metrics", Authorization="Basic YTpi").status == 401
        assert status("nonsense") == 401
        for roles in ({"consume": ["*"], "produce": ["*"]}, {"monitor": ["bank/*"]}, {"admin": ["bank/*"]}):
            assert status(signer.token("eve", **roles)) == 403
        for role in ("monitor", "admin"):
            assert status(signer.token("ops", **{role: ["*"]})) == 200
        found = watched.scrape(Authorization=f"Bearer {signer.token('ops', monitor=['*'])}")
        counts = {labels["reason"]: value for labels, value in found.all("txnlog_refused_requests_total")}
        assert counts == {"missing": 1, "scheme": 1, "malformed": 1, "denied": 3}


def test_checks_need_no_token_and_tell_no_secret(tmp_path: Path) -> None:
    """Without a token a failed check has its code alone; with one, its reason."""
    door, signer = guarded(tmp_path)
    with Watched(tmp_path / "log", door=door) as watched:
        (tmp_path / "log" / "txnlog.json").unlink()
        assert watched.get("/live").status == 200
        answer = watched.get("/ready")
        assert (answer.status, answer.body) == (503, '{"ready":false,"failed":{"root":"[TXNLOG_LOG_NOT_FOUND]"}}')
        answer = watched.get("/ready", Authorization=f"Bearer {signer.token('ops', monitor=['*'])}")
        assert str(tmp_path) in answer.body


def test_who_scrapes_too_often_is_held_off(tmp_path: Path) -> None:
    """The limit of calls counts for scrapes, too."""
    door, signer = guarded(tmp_path, Limits(calls=1))
    door.usage._clock = lambda: 100.0  # all in one moment
    with Watched(tmp_path / "log", door=door) as watched:
        headers = {"Authorization": f"Bearer {signer.token('ops', monitor=['*'])}"}
        found = [watched.get("/metrics", **headers).status for _ in range(5)]
        assert found[0] == 200
        assert 429 in found


def test_monitor_may_see_figures_and_nothing_else(tmp_path: Path) -> None:
    """A token that can scrape reads no topic."""
    door, signer = guarded(tmp_path)
    with Watched(tmp_path / "log", door=door) as watched:
        admin = watched.connect(token=signer.token("root", admin=["*"], produce=["*"]))
        admin.create_topic("orders")
        log = watched.connect(token=signer.token("ops", monitor=["*"]))
        assert log.topics() == []
        with pytest.raises(Exception, match="PERMISSION_DENIED"):
            log.stats("orders")


def test_http_has_the_certificates_of_the_service(tmp_path: Path) -> None:
    """Scrape over TLS; a client without a certificate, or in plain text, gets nothing."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("service")
    mine = authority.issue("prometheus")
    with Watched(tmp_path / "log", tls=(cert, key), client_ca=authority.ca) as watched:
        tls = ssl.create_default_context(cafile=str(authority.ca))
        with pytest.raises((ssl.SSLError, OSError)):
            watched.get("/live", tls)
        tls.load_cert_chain(*mine)
        assert watched.get("/metrics", tls).status == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            watched.get("/live")
        assert watched.monitoring.listener.scheme == "https"


def test_new_certificates_count_for_new_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the files with those of another authority: after a scrape only its certificate is shown, and its end."""
    monkeypatch.setattr("txn_source.metadata.access.watched_files._LOOK_EVERY_S", 0.0)
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    files, metric = old.issue("service", days=1), "txnlog_certificate_expires_timestamp_seconds"
    with Watched(tmp_path / "log", tls=files) as watched:
        trusts_old, trusts_new = (ssl.create_default_context(cafile=str(each.ca)) for each in (old, new))
        before = watched.scrape(trusts_old).one(metric)
        for made, file in zip(new.issue("newer", days=30), files, strict=True):
            made.replace(file)
        assert watched.scrape(trusts_old).one(metric) - before == pytest.approx(29 * 86400, abs=3600)
        assert watched.get("/live", trusts_new).status == 200
        with pytest.raises(ssl.SSLError):
            watched.get("/live", trusts_old)


def test_check_that_hangs_is_known_to_a_scrape_without_being_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask once, and nobody after that, as when who asks hangs himself: a scrape begins the check, and tells that it
    doesn't end."""
    monkeypatch.setattr("txn_source.http.readiness._OLD_S", 0.0)
    let_go = threading.Event()
    let_go.set()
    readiness = Readiness({"database": lambda: let_go.wait(30) and None}, patience_s=20.0)
    assert readiness.last() == {}
    assert readiness.ask() == {"database": None}
    let_go.clear()
    readiness.patience_s = -1.0  # any time is too long
    assert readiness.last() == {"database": True}
    assert readiness.last() == {"database": False}
    let_go.set()
    readiness.patience_s = 20.0
    assert readiness.ask() == {"database": None}
    assert readiness.last() == {"database": True}
