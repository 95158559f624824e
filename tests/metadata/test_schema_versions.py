"""Upgrades of the metadata database's tables: a log of the release before is opened, and becomes as a new one.

``log_of_schema_1.sql`` is a log that the release with version 1 of the tables wrote, and its files.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import txn_source
from tests.log.reading import eventually
from tests.log.sites import Site
from tests.log.test_read_only_root import unwritable
from tests.metadata.postgres import server
from tests.selection import mostly_long
from txn_source.client.target import open_service
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.store import schema_versions, upgrades
from txn_source.metadata.store.log import create_log
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.schema_versions import upgrade
from txn_source.metadata.store.table_version import SCHEMA_VERSION
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import LogVersionError, UnavailableError
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.topic_name import TopicName

OLD = Path(__file__).with_name("log_of_schema_1.sql")
COMMITTED = [b"plain-0", b"committed-0", b"plain-1", b"committed-1"]
"""What is seen in the old log, partition by partition."""


def old_log(root: Path) -> Path:
    """Write the old log at a root; return its database."""
    root.mkdir()
    database = root / "metadata.db"
    with closing(sqlite3.connect(database)) as raw:
        raw.executescript(OLD.read_text(encoding="utf-8"))
        for path, data in raw.execute("SELECT path, bytes FROM fixture_files").fetchall():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
        raw.execute("DROP TABLE fixture_files")
        raw.execute("PRAGMA journal_mode = WAL")
        raw.commit()
    return database


def schema_of(database: Path) -> dict[str, Any]:
    """Return what SQLite knows of the tables: their columns, with types as it keeps them, and their indexes."""
    with closing(sqlite3.connect(database)) as raw:
        found: dict[str, Any] = {}
        statements = {
            name: None if sql is None else " ".join(sql.split())
            for name, sql in raw.execute("SELECT name, sql FROM sqlite_master").fetchall()
        }
        for (table,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall():
            columns = raw.execute(f"PRAGMA table_info({table})").fetchall()
            found[table] = [
                (number, name, re.sub(r".*INT.*", "INTEGER", type_), *rest) for number, name, type_, *rest in columns
            ]
            found[f"{table} is"] = [
                how for how in ("AUTOINCREMENT", "WITHOUT ROWID") if how in (statements[table] or "")
            ]
            found[f"{table} refers"] = sorted(raw.execute(f"PRAGMA foreign_key_list({table})").fetchall())
            for _, index, unique, origin, partial in raw.execute(f"PRAGMA index_list({table})").fetchall():
                of = [row[2] for row in raw.execute(f"PRAGMA index_info({index})").fetchall()]
                found[f"{table}.{index}"] = (unique, origin, partial, of, statements.get(index))
        return found


def contents_of(database: Path) -> str:
    with closing(sqlite3.connect(database)) as raw:
        return "\n".join(raw.iterdump())


@pytest.fixture
def root() -> Iterator[Path]:
    """A place for a log where anybody may look."""
    folder = Path(tempfile.mkdtemp(prefix="txnlog-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder / "log"
    shutil.rmtree(folder)


@pytest.fixture
def database(root: Path) -> Path:
    """The database of an old log."""
    return old_log(root)


def values(log: txn_source.Log, level: str = "read_committed") -> list[bytes]:
    found: list[bytes] = log.scan("orders", level).read_all()["value"].to_pylist()
    return found


@pytest.mark.parametrize("version", mostly_long(range(1, SCHEMA_VERSION), 1, SCHEMA_VERSION - 1))
def test_each_version_becomes_as_a_new_one(version: int, database: Path, root: Path, tmp_path: Path) -> None:
    """Upgrade an old log so far only, as a release between would have left it, and open it: its tables are those of a
    new log. This fails if the tables change without a version."""
    with closing(open_database(f"sqlite:///{database}")) as between:
        for reached in range(2, version + 1):
            assert between.write(upgrades.upgrade_once) == reached
    before = schema_of(database)
    made = ("schema_versions", "owners", "segment_parts", "short_entries")
    assert [name in before for name in made] == [version > number for number in range(1, 5)]
    txn_source.connect(tmp_path / "new").close()
    with txn_source.connect(root, create=False) as log:
        assert sorted(values(log)) == sorted(COMMITTED)
    new = schema_of(tmp_path / "new" / "metadata.db")
    assert schema_of(database) == new != before
    with closing(sqlite3.connect(database)) as raw:
        versions = raw.execute("SELECT version FROM schema_versions ORDER BY 1").fetchall()
    assert versions == [(number,) for number in range(2, SCHEMA_VERSION + 1)]


def test_old_log_is_read_and_written(root: Path, database: Path) -> None:
    """Read its messages, take what its subscription has left, and write to it."""
    with txn_source.connect(root, create=False) as log:
        assert sorted(values(log)) == sorted(COMMITTED)
        assert sorted(values(log, "read_uncommitted")) == sorted([*COMMITTED, b"aborted"])
        with log.subscribe("orders", "billing", type="shared") as consumer:
            left = [consumer.receive(timeout=30).value for _ in range(3)]
        assert len(set(left)) == 3
        assert set(left) < set(COMMITTED)
        with log.begin_transaction() as txn, log.producer("orders") as producer:
            producer.send(b"new", txn=txn)
        assert sorted(values(log)) == sorted([*COMMITTED, b"new"])
        log.create_topic("more")


def test_two_upgrade_at_once(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one service find the old version, and go on after another one has upgraded."""
    first, second = (open_database(f"sqlite:///{database}") for _ in range(2))
    step, entered = upgrades.upgrade_once, []

    def behind(connection: Any) -> int:
        entered.append(step(connection))
        return entered[-1]

    write = first.write

    def late(action: Any) -> Any:
        upgrade(second)
        return write(action)

    monkeypatch.setattr(upgrades, "upgrade_once", behind)
    monkeypatch.setattr(first, "write", late)
    upgrade(first)
    assert entered == [*range(2, SCHEMA_VERSION + 1), SCHEMA_VERSION]
    first.close()
    second.close()


def test_failed_upgrade_changes_nothing(root: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the upgrade fail after its last statement, and open the log once more without the fault."""
    before = contents_of(database)
    step = upgrades.UPGRADES[1]

    def broken(connection: Any) -> None:
        step(connection)
        raise RuntimeError("broken")

    with monkeypatch.context() as patched:
        patched.setitem(upgrades.UPGRADES, 1, broken)
        with pytest.raises(Exception, match="broken"):
            txn_source.connect(root, create=False)
    assert contents_of(database) == before
    with txn_source.connect(root, create=False) as log:
        assert sorted(values(log)) == sorted(COMMITTED)


def test_newer_tables_are_refused(root: Path, database: Path) -> None:
    """Open a log of a later release, for writing and for reading only: it says so, and stays as it is."""
    txn_source.connect(root, create=False).close()
    with closing(sqlite3.connect(database)) as raw:
        raw.execute("INSERT INTO schema_versions VALUES (?)", (SCHEMA_VERSION + 1,))
        raw.commit()
    before = contents_of(database)
    said = f"has schema version {SCHEMA_VERSION + 1}; this release reads up to {SCHEMA_VERSION}. Upgrade txn-source."
    with pytest.raises(LogVersionError, match=re.escape(said)):
        txn_source.connect(root, create=False)
    with unwritable(root), pytest.raises(LogVersionError, match=re.escape(said)):
        txn_source.connect(root, create=False)
    assert contents_of(database) == before


NEWER = text("INSERT INTO schema_versions VALUES (:version)").bindparams(version=SCHEMA_VERSION + 1)
UPGRADED = f"A newer release has upgraded the metadata database to schema version {SCHEMA_VERSION + 1}, while this one"


def stub_of(site: Site) -> MetadataStub:
    return MetadataStub(InProcessTransport(site.service()))


def create(stub: MetadataStub, name: str) -> None:
    stub.create_topic(TopicName.parse(name), 1, None, LedgerLimits(), {})


@pytest.mark.parametrize("kind", ["embedded", "postgres"])
def test_running_service_refuses_what_a_newer_release_has_upgraded(kind: str, tmp_path: Path) -> None:
    """Upgrade the tables of a log that is open: reads and writes are refused, and change nothing, until they are as
    they were."""
    with Site(kind, tmp_path / "log") as site, closing(stub_of(site)) as stub:
        create(stub, "a")
        site.execute(str(NEWER.compile(compile_kwargs={"literal_binds": True})))
        for call in (lambda: create(stub, "b"), lambda: stub.get_view([TopicName.parse("a")])):
            with pytest.raises(UnavailableError, match=UPGRADED):
                call()
        with pytest.raises(LogVersionError, match="Upgrade txn-source"):
            open_service(str(site.root), site.url)
        site.execute(f"DELETE FROM schema_versions WHERE version > {SCHEMA_VERSION}")
        assert [name.short for name in stub.list_topics(None)] == ["a"]
        create(stub, "b")


def test_write_that_waits_for_an_upgrade_is_refused(tmp_path: Path) -> None:
    """Begin a write while an upgrade has the log's lock: it waits, and finds the newer version."""
    refused: list[Exception] = []
    with Site("postgres", tmp_path / "log") as site, closing(stub_of(site)) as stub:
        assert site.url is not None
        name = site.url.revealed.partition("?")[0].rpartition("/")[2]
        waiting = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND wait_event = 'advisory'"

        def write() -> None:
            try:
                create(stub, "b")
            except UnavailableError as error:
                refused.append(error)

        def upgrade_meanwhile(connection: Any) -> None:
            thread.start()
            with server().connect() as raw:
                eventually(lambda: raw.execute(waiting).fetchone() == (1,))
            connection.execute(NEWER)

        thread = threading.Thread(target=write)
        with closing(open_database(site.url)) as database:
            database.write(upgrade_meanwhile)
        thread.join()
        assert [UPGRADED in str(error) for error in refused] == [True]
        assert stub.list_topics(None) == []


def test_what_cannot_be_upgraded_is_refused(root: Path, database: Path) -> None:
    """Give a ledger two complete copies, which the new tables refuse."""
    with closing(sqlite3.connect(database)) as raw:
        raw.executemany(
            "INSERT INTO copies (ledger_id, uri, begun_at_ms, complete) SELECT min(ledger_id), ?, 0, 1 FROM ledgers",
            [("a",), ("b",)],
        )
        raw.commit()
    before = contents_of(database)
    with pytest.raises(LogVersionError, match="has two complete copies"):
        txn_source.connect(root, create=False)
    assert contents_of(database) == before


def test_version_without_an_upgrade_is_refused(root: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the upgrade away: what can't be brought up is refused, and stays as it is."""
    before = contents_of(database)
    monkeypatch.delitem(upgrades.UPGRADES, 1)
    with pytest.raises(LogVersionError, match="schema version 1, which this release can't upgrade"):
        txn_source.connect(root, create=False)
    assert contents_of(database) == before


def test_reader_reads_an_old_log_as_it_is(root: Path, database: Path) -> None:
    """Read an old log where it can't be written: nothing is upgraded."""
    before = contents_of(database)
    with unwritable(root), txn_source.connect(root, create=False) as log:
        assert sorted(values(log)) == sorted(COMMITTED)
    assert contents_of(database) == before


def test_reader_refuses_what_it_cannot_read(root: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this release read the newest tables only: whoever may only read the log is told what to do."""
    monkeypatch.setattr(schema_versions, "OLDEST_READABLE", SCHEMA_VERSION)
    with unwritable(root), pytest.raises(LogVersionError, match="Open the log once where it can be written"):
        txn_source.connect(root, create=False)


@pytest.fixture
def on_postgres() -> Iterator[Any]:
    """A log on PostgreSQL with its tables as they were before they had a version."""
    url = server().new_database()
    database = open_database(url)
    create_log(database)
    with server().connect(url.revealed.partition("?")[0].rpartition("/")[2]) as raw:
        raw.execute("DROP TABLE schema_versions")
        raw.execute("DROP TABLE owners")
        raw.execute("DROP TABLE segment_parts, roots, segment_copies, short_entries")
        raw.execute("DROP INDEX one_log")
        raw.execute("DROP INDEX complete_copies")
        yield database, raw
    database.close()
    server().drop_database(url)


def test_upgrade_on_postgres(on_postgres: Any) -> None:
    """Upgrade twice, and once more from the version before; compare the indexes with those of new tables."""
    database, raw = on_postgres
    for _ in range(2):
        upgrade(database)
    raw.execute("DROP TABLE roots, segment_copies, short_entries")
    raw.execute("DELETE FROM schema_versions WHERE version >= 5")
    upgrade(database)
    asked = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"
    with server().connect("txnlog_template") as new:
        assert raw.execute(asked).fetchall() == new.execute(asked).fetchall()
    versions = raw.execute("SELECT version FROM schema_versions ORDER BY 1").fetchall()
    assert versions == [(version,) for version in range(2, SCHEMA_VERSION + 1)]
