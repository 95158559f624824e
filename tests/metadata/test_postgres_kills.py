"""Service and PostgreSQL server are killed and restarted while a client writes: nothing acknowledged is lost."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.log.sites import Site
from tests.log.test_kills import FragileServer, insist, kill_servers
from tests.metadata.postgres import server
from txn_source import UnavailableError
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.log import create_log
from txn_source.metadata.store.opening import open_database

ROUNDS = 60
ATTACKS = ("stop", "immediate", "kill", "sessions", "service")


def restart(how: str) -> None:
    """End the database's server in some way, and start it again; or end its sessions only."""
    postgres = server()
    if how == "sessions":
        with postgres.connect() as connection:
            connection.execute(b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'log_%'")
        return
    if how == "kill":
        postgres.kill()
    else:
        postgres.stop("fast" if how == "stop" else how)
    postgres.start()


def attack(fragile: FragileServer, number: int) -> None:
    """Do one thing after the other."""
    how = ATTACKS[number % len(ATTACKS)]
    if how == "service":
        fragile.restart()
    else:
        restart(how)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_killed_database_and_service_lose_nothing_and_store_nothing_twice(tmp_path: Path, url: DatabaseUrl) -> None:
    """Attack database and service in each way, while a producer writes."""
    kill_servers(tmp_path / "log", ROUNDS, url, attack)


def test_restarted_database_is_taken_up_again(tmp_path: Path) -> None:
    """End all sessions while nobody calls: the next read and the next write work, without an error."""
    with Site("postgres", tmp_path / "log") as site:
        log = site.connect()
        log.create_topic("orders")
        for number in range(2):
            restart("sessions")
            if number:
                assert log.topics() == ["orders"]
            with log.producer("orders") as producer:
                producer.send(b"%d" % number)
        restart("sessions")
        assert log.scan("orders").read_all()["value"].to_pylist() == [b"0", b"1"]


@pytest.mark.long
@pytest.mark.usefixtures("impatient")
def test_database_that_is_away_is_told(tmp_path: Path) -> None:
    """Call while the database is stopped: calls end in UNAVAILABLE; once it is back they work."""
    with Site("postgres", tmp_path / "log") as site:
        log = site.connect()
        log.create_topic("orders")
        server().stop()
        try:
            for call in (log.topics, lambda: log.create_topic("bills"), log.transactions):
                with pytest.raises(UnavailableError, match="can't be reached"):
                    call()
        finally:
            server().start()
        insist(lambda: log.create_topic("bills"))
        assert log.topics() == ["bills", "orders"]


def test_consumers_are_told_of_changes_after_a_restart(tmp_path: Path) -> None:
    """Let a consumer wait at one service, restart the database, and write through another one."""
    with Site("postgres", tmp_path / "log") as site, Site.beside(site) as other:
        log, beside = site.connect(), other.connect()
        log.create_topic("orders")
        with log.subscribe("orders", "s", isolation_level="read_committed", initial_position="earliest") as consumer:
            for number in range(2):
                with beside.producer("orders") as producer:
                    producer.send(b"%d" % number)
                message = consumer.receive(timeout=30)
                assert message is not None
                assert message.value == b"%d" % number
                consumer.acknowledge(message)  # or it comes again, if the consumer has to connect anew
                consumer.flush()
                restart("sessions")


@pytest.mark.parametrize("committed", [True, False])
def test_lost_answer_to_a_commit_is_unsure(url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch, committed: bool) -> None:
    """Lose the connection in a commit, before it is carried out or after: the caller is told that it may have
    happened, and it isn't carried out a second time."""
    from txn_source.metadata.store.postgres_connections import Session

    inner = Session.run
    with closing(open_database(url)) as database:
        create_log(database)

        def run(session: Session, statements: str) -> list[object]:
            if not statements.endswith("COMMIT"):
                return inner(session, statements)
            monkeypatch.undo()
            if committed:
                inner(session, statements)
            restart("sessions")
            return inner(session, statements)

        monkeypatch.setattr(Session, "run", run)
        with pytest.raises(UnavailableError, match="may have happened"):
            database.write(lambda c: c.execute(text("UPDATE log_info SET decisions = decisions + 1")))
        with database.read() as read:
            assert read.execute(text("SELECT decisions FROM log_info")).scalar() == int(committed)
