"""A PostgreSQL database that can't be used says why, and what to do."""

from __future__ import annotations

import threading
import traceback
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from tests.log.sites import log_on_postgres
from tests.metadata.postgres import GUARDED, PostgresServer, server
from txn_source import connect
from txn_source.client.target import open_service
from txn_source.metadata.store import postgres_connections, postgres_database, schema_versions, topic_changes, upgrades
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.log import create_log
from txn_source.metadata.store.opening import open_database
from txn_source.model.errors import (
    InternalError,
    InvalidArgumentError,
    LogNotFoundError,
    LogVersionError,
    StorageWriteError,
    TxnLogError,
    UnavailableError,
)
from txn_source.storage.root import LogRoot


@pytest.fixture
def postgres() -> PostgresServer:
    """The server of this process."""
    return server()


def as_account(url: DatabaseUrl, account: str) -> DatabaseUrl:
    return DatabaseUrl(url.revealed.replace("postgres@", f"{account}@"))


def test_database_that_is_not_there_is_unavailable(postgres: PostgresServer) -> None:
    """Connect where nobody listens, to a database and as an account that don't exist: no password shows."""
    for text_of_url, said in (
        ("postgresql://postgres:hidden@127.0.0.1:1/log", "can't be reached"),
        ("postgresql://postgres@/log?host=/nowhere", "can't be reached"),
        (postgres.url("missing"), "doesn't exist"),
        (postgres.url("postgres", "nobody", "hidden"), "doesn't exist"),
    ):
        with closing(open_database(text_of_url)) as database:
            for call in (lambda d=database: d.write(lambda _: None), lambda d=database: d.read().__enter__()):
                with pytest.raises(UnavailableError, match=said) as caught:
                    call()
                assert "hidden" not in "".join(traceback.format_exception(caught.value, chain=True))


def test_wrong_password_is_told_without_it(postgres: PostgresServer) -> None:
    """Connect as an account that needs a password: without one, with a wrong one, and with the right one."""
    with postgres.connect() as connection:
        connection.execute(f"DROP ROLE IF EXISTS {GUARDED}".encode())
        connection.execute(f"CREATE ROLE {GUARDED} LOGIN PASSWORD 'open sesame'".encode())
    for password, said in (
        (None, "wants a password"),
        ("open barley", "refuses the account or its password.* Check user and password"),
    ):
        with closing(open_database(postgres.url("postgres", GUARDED, password))) as database:
            with pytest.raises(UnavailableError, match=said) as caught:
                database.write(lambda _: None)
            assert "barley" not in str(caught.value)
    with closing(open_database(postgres.url("postgres", GUARDED, "open sesame"))) as database, database.read() as read:
        assert read.execute(text("SELECT 1")).scalar() == 1


def test_account_that_may_not_write_is_refused_at_the_beginning(postgres: PostgresServer, tmp_path: Path) -> None:
    """Make a log with an account that may make no tables, and serve one with an account that may only read."""
    with log_on_postgres(tmp_path / "log") as url:
        name = url.revealed.partition("?")[0].rpartition("/")[2]
        with postgres.connect(name) as connection:
            connection.execute(b"DROP ROLE IF EXISTS looker")
            connection.execute(b"CREATE ROLE looker LOGIN")
            connection.execute(b"GRANT SELECT ON ALL TABLES IN SCHEMA public TO looker")
            with pytest.raises(StorageWriteError, match="doesn't let this account"):
                open_service(str(tmp_path / "log"), as_account(url, "looker"))
            connection.execute(b"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM looker")
    empty = postgres.new_database(with_tables=False)
    with pytest.raises(StorageWriteError, match="doesn't let this account"):
        open_service(str(tmp_path / "other"), as_account(empty, "looker"), create=True)
    assert not LogRoot.at(tmp_path / "other").exists
    open_service(str(tmp_path / "other"), empty, create=True).close()  # what was left behind is no obstacle
    postgres.drop_database(empty)


def test_database_that_is_read_only_is_not_written(postgres: PostgresServer, tmp_path: Path) -> None:
    """Set a log's database, and an empty one, to be read only, as for the time of a backup: no service opens the log,
    and none is made. What was open before is refused when it connects anew."""
    freeze = b"ALTER DATABASE %s SET default_transaction_read_only = on"
    said = r"can only be read\. Name the primary server"
    with log_on_postgres(tmp_path / "log") as url, closing(open_database(url)) as database:
        empty = postgres.new_database(with_tables=False)
        with postgres.connect() as connection:
            for each in (url, empty):
                connection.execute(freeze % each.revealed.partition("?")[0].rpartition("/")[2].encode())
        with pytest.raises(StorageWriteError, match=said):
            open_service(str(tmp_path / "log"), url)
        with pytest.raises(StorageWriteError, match=said):
            open_service(str(tmp_path / "other"), empty, create=True)
        assert not LogRoot.at(tmp_path / "other").exists
        with pytest.raises(StorageWriteError, match=said):
            database.write(lambda c: c.execute(text("UPDATE log_info SET decisions = 0")))
        with database.read() as read:
            assert read.execute(text("SELECT decisions FROM log_info")).scalar() == 0
        postgres.drop_database(empty)


def test_full_disk_is_told(postgres: PostgresServer, tmp_path: Path) -> None:
    """Let the database refuse a row for want of space: the call says so, and works when there is some again."""
    with log_on_postgres(tmp_path / "log") as url, closing(open_database(url)) as database:
        name = url.revealed.partition("?")[0].rpartition("/")[2]
        with postgres.connect(name) as connection:
            connection.execute(
                b"CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$"
                b" BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END $$"
            )
            connection.execute(
                b"CREATE TRIGGER full_disk BEFORE INSERT ON sinks FOR EACH ROW EXECUTE FUNCTION full_disk()"
            )
            insert = text("INSERT INTO sinks VALUES ('q', 1, 1, 1, '')")
            with pytest.raises(StorageWriteError, match=r"no space left\. Free some space"):
                database.write(lambda c: c.execute(insert))
            connection.execute(b"DROP TRIGGER full_disk ON sinks")
            database.write(lambda c: c.execute(insert))


def test_newer_log_is_refused(tmp_path: Path) -> None:
    """Open a log whose database was upgraded by a newer release."""
    with log_on_postgres(tmp_path / "log") as url:
        with closing(open_database(url)) as database:
            database.write(lambda c: c.execute(text("UPDATE log_info SET format_version = 99")))
        with pytest.raises(LogVersionError, match="99"):
            open_service(str(tmp_path / "log"), url)


def test_two_logs_do_not_share_a_database(tmp_path: Path, url: DatabaseUrl) -> None:
    """Make a second log in a log's database, and serve a log over another one's."""
    with log_on_postgres(tmp_path / "log") as taken:
        with pytest.raises(InvalidArgumentError, match="which has another root"):
            open_service(str(tmp_path / "second"), taken, create=True)
        assert not LogRoot.at(tmp_path / "second").exists
        open_service(str(tmp_path / "second"), url, create=True).close()
        with pytest.raises(InvalidArgumentError, match="which has another root"):
            open_service(str(tmp_path / "second"), taken)
        open_service(str(tmp_path / "second"), url).close()


def test_two_logs_share_a_database_in_two_schemas(postgres: PostgresServer, tmp_path: Path, url: DatabaseUrl) -> None:
    """Make two logs in schemas of their own: neither waits for the other's lock."""
    name = url.revealed.partition("?")[0].rpartition("/")[2]
    with postgres.connect(name) as connection:
        for schema in (b"a", b"b"):
            connection.execute(b"CREATE SCHEMA " + schema)
    a, b = (DatabaseUrl(f"{url.revealed}&options=-csearch_path%3D{schema}") for schema in "ab")
    for schema, of in (("a", a), ("b", b)):
        open_service(str(tmp_path / schema), of, create=True).close()
    with closing(open_database(a)) as first, closing(open_database(b)) as second:
        first.write(lambda _: second.write(lambda _: None))


def test_database_of_something_else_is_left_alone(postgres: PostgresServer, tmp_path: Path, url: DatabaseUrl) -> None:
    """Make a log in a database that has a table of one of our names."""
    name = url.revealed.partition("?")[0].rpartition("/")[2]
    with postgres.connect(name) as connection:
        connection.execute(b"CREATE TABLE topics (theirs int)")
        with pytest.raises(InvalidArgumentError, match="tables of something else"):
            open_service(str(tmp_path / "log"), url, create=True)
        tables = connection.execute(b"SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert tables == [("topics",)]


def test_database_without_a_log_is_told(tmp_path: Path, url: DatabaseUrl) -> None:
    """Serve a log over an empty database, as after a URL with a slip."""
    with log_on_postgres(tmp_path / "log"), pytest.raises(LogNotFoundError):
        open_service(str(tmp_path / "log"), url)


def test_other_encoding_is_refused(postgres: PostgresServer, tmp_path: Path) -> None:
    """Make a log in a database that can't hold every name."""
    url = postgres.new_database(with_tables=False, options="TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    with pytest.raises(InvalidArgumentError, match="LATIN1"):
        open_service(str(tmp_path / "log"), url, create=True)
    postgres.drop_database(url)


def test_metadata_stays_where_it_is(tmp_path: Path, url: DatabaseUrl) -> None:
    """Open a log on PostgreSQL embedded, and serve an embedded one over PostgreSQL."""
    with log_on_postgres(tmp_path / "there"):
        for create in (False, True):
            with pytest.raises(InvalidArgumentError, match=r"keeps its metadata in PostgreSQL.*endpoint="):
                connect(tmp_path / "there", create=create)
    assert not (tmp_path / "there" / "metadata.db").exists()
    connect(tmp_path / "here").close()
    with pytest.raises(InvalidArgumentError, match=r"keeps its metadata in SQLite.*without --metadata"):
        open_service(str(tmp_path / "here"), url, create=True)


@pytest.mark.parametrize("step", ["make_folder", "claim", "finish"])
def test_creation_that_failed_is_finished(
    step: str, tmp_path: Path, url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """End a creation before one of its steps, then try again: the log has the id that was claimed first."""

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    root = LogRoot.at(tmp_path / "log")
    with monkeypatch.context() as patch:
        patch.setattr(LogRoot, step, crash)
        with pytest.raises(KeyboardInterrupt):
            open_service(str(root.path), url, create=True)
    assert not root.exists
    open_service(str(root.path), url, create=True).close()
    assert root.id_on_postgres is not None
    assert sorted(path.name for path in root.path.iterdir()) == ["txnlog.json"]


def test_creations_at_once_make_one_log(tmp_path: Path, url: DatabaseUrl) -> None:
    """Make a log in eight threads at once: all find the same one, and its database has one."""
    found: list[str] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        service = open_service(str(tmp_path / "log"), url, create=True)
        service.close()
        found.append(str(LogRoot.at(tmp_path / "log").id_on_postgres))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(open_database(url)) as database, database.read() as read:
        assert read.execute(text("SELECT log_id FROM log_info")).scalars().all() == found[:1]
    assert len(found) == 8
    assert len(set(found)) == 1


def test_values_that_do_not_fit_are_the_callers(url: DatabaseUrl) -> None:
    """Store a number of more than 63 bits, and a text with a NUL."""
    with closing(open_database(url)) as database:
        create_log(database)
        for statement, value in (
            ("INSERT INTO sinks VALUES ('q', :value, 1, 1, '')", 1 << 63),
            ("INSERT INTO sinks VALUES (:value, 1, 1, 1, '')", "a\0b"),
        ):
            with pytest.raises(InvalidArgumentError):
                database.write(lambda c, s=statement, v=value: c.execute(text(s), {"value": v}))


def test_lock_that_is_not_to_be_had_is_told(
    postgres: PostgresServer, url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write while somebody holds the log's lock all the time, with a short patience."""
    monkeypatch.setitem(postgres_connections.SETTINGS, "lock_timeout", "20ms")
    monkeypatch.setattr(postgres_database, "_ATTEMPTS", 2)
    with closing(open_database(url)) as holder, closing(open_database(url)) as database:

        def hold(_: object) -> None:
            with pytest.raises(UnavailableError, match="stayed locked by another writer"):
                database.write(lambda _: None)

        holder.write(hold)
        database.write(lambda _: None)


def test_only_what_cannot_be_cut_may_take_long(url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let statements take longer than they may: they are ended, but for the deletion of a topic, and an upgrade."""
    with closing(open_database(url)) as first:
        create_log(first)
    monkeypatch.setitem(postgres_connections.SETTINGS, "statement_timeout", "500ms")
    limits: list[str] = []

    def look(connection: Connection) -> None:
        limits.append(connection.execute(text("SHOW statement_timeout")).scalar_one())

    def delete(connection: Connection) -> None:
        topic_changes.remove(connection, 1, 0)
        look(connection)

    with closing(open_database(url)) as database:
        with pytest.raises(UnavailableError, match="took too long"):
            database.write(lambda c: c.execute(text("SELECT pg_sleep(60)")))
        database.write(delete)
        monkeypatch.setattr(upgrades, "UPGRADES", upgrades.UPGRADES | {1: look})
        database.write(lambda c: c.execute(text("UPDATE schema_versions SET version = 1")))
        schema_versions.upgrade(database)
        database.write(look)
    assert limits == ["0", "0", "500ms"]


def test_readers_are_bounded(url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in more threads than there are connections: one waits, and is told after a while that it did in vain."""
    monkeypatch.setattr(postgres_connections, "MAX_READERS", 2)
    monkeypatch.setattr(postgres_connections, "READER_WAIT_S", 0.05)
    with closing(open_database(url)) as database:
        with database.read(), database.read(), pytest.raises(UnavailableError, match="All 2 connections"):
            database.read().__enter__()
        with database.read(), database.read():
            pass


def test_bug_is_told_as_one(url: DatabaseUrl) -> None:
    """Send what isn't SQL, and break a constraint each time: both are errors of ours, after few attempts."""
    with closing(open_database(url)) as database:
        create_log(database)
        for statement in ("SELEKT", "INSERT INTO log_info SELECT * FROM log_info"):
            with pytest.raises(InternalError):
                database.write(lambda c, s=statement: c.execute(text(s)))
        with pytest.raises(TxnLogError), database.read() as read:
            read.execute(text("SELEKT"))
        with database.read() as read:
            assert read.execute(text("SELECT count(*) FROM log_info")).scalar() == 1
