"""Real failovers of PostgreSQL: what was acknowledged is on the standby that it waited for, an older database is
noticed, and a standby is never read."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import txn_source
from tests.log.reading import eventually, values
from tests.metadata.postgres import PostgresServer
from txn_source import TxnLogError, UnavailableError
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.client.access import Access
from txn_source.client.target import open_service
from txn_source.client.tiering.maintenance import maintain
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.service.server import Server
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.upkeep.after_restore import after_restore


class Pair:
    """A primary of its own, and copies of it."""

    def __init__(self, stack: ExitStack) -> None:
        self.primary = PostgresServer()
        self._stack = stack
        stack.callback(_end, self.primary)
        self.url = self.primary.new_database()
        self._name = self.url.revealed.partition("?")[0].rpartition("/")[2]

    def copy(self, *, standby: bool) -> PostgresServer:
        """Return a copy of the primary as it is now, which isn't started; a standby will follow it."""
        primary, made = self.primary, object.__new__(PostgresServer)
        made.__dict__.update(primary.__dict__)
        made._data = primary._folder / ("standby" if standby else "older")
        made._data.mkdir(mode=0o700)
        owner = os.stat(primary._data)
        os.chown(made._data, owner.st_uid, owner.st_gid)
        follow = ("-R",) if standby else ()
        primary._pgexec(
            "pg_basebackup",
            ("-D", str(made._data), "-h", str(primary._data), "-U", "postgres", "-X", "stream", "-c", "fast", *follow),
            bin_path=primary._server.bin_path,
            user=primary._server.system_user,
            timeout=60,
        )
        (made._data / ".s.PGSQL.5432.lock").unlink()
        with (made._data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(f"\nunix_socket_directories = '{made._data}'\nhot_standby = on\n")
        return made

    def start(self, server: PostgresServer) -> None:
        server.start()
        self._stack.callback(_end, server)

    def url_at(self, *servers: PostgresServer) -> DatabaseUrl:
        """Return the log's URL at some servers, the first one to be asked first."""
        hosts = ",".join(quote(str(server._data), safe="") for server in servers)
        return DatabaseUrl(f"postgresql://postgres@/{self._name}?host={hosts}")

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        with self.primary.connect(self._name) as connection:
            return connection.execute(question.encode()).fetchall()


def _end(server: PostgresServer) -> None:
    with suppress(FileNotFoundError):  # it has ended
        server.kill()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack)


def waiting(pair: Pair) -> list[int]:
    """Return the sessions that wait for the standby with a commit."""
    return [row[0] for row in pair.ask("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")]


@pytest.mark.long
def test_answer_to_a_repetition_waits_for_the_standby(pair: Pair, tmp_path: Path) -> None:
    """Let the wait of a commit end without the standby: its answer is unknown, and its repetition waits again. When the
    standby is back it is answered, and the standby has it when the primary dies."""
    open_service(str(tmp_path / "log"), pair.url, create=True).close()
    standby = pair.copy(standby=True)
    with pair.primary.connect() as connection:
        connection.execute(b"ALTER SYSTEM SET synchronous_standby_names = '*'")
        connection.execute(b"SELECT pg_reload_conf()")
    eventually(lambda: pair.ask("SHOW synchronous_standby_names") == [("*",)])
    request = pb.CreateTopicRequest(request_id="once", name="persistent://public/default/t", partitions=1)
    request.policies.ledger_max_entries = request.policies.ledger_max_bytes = request.policies.ledger_max_age_ms = 1000
    came: list[object] = []

    def ask() -> None:
        try:
            came.append(way.call("CreateTopic", request))
        except TxnLogError as error:
            came.append(error)

    with closing(open_database(pair.url)) as database:
        way = InProcessTransport(MetadataService(database, str(tmp_path / "log"), clock=database.clock))
        first = threading.Thread(target=ask)
        first.start()
        eventually(lambda: waiting(pair))
        pair.ask(f"SELECT pg_cancel_backend({waiting(pair)[0]})")
        first.join(30)
        [lost] = came
        assert isinstance(lost, UnavailableError)
        assert "the change may have happened" in lost.fact
        assert pair.ask("SELECT count(*) FROM topics") == [(1,)]
        second = threading.Thread(target=ask)
        second.start()
        eventually(lambda: waiting(pair))
        assert len(came) == 1
        pair.start(standby)
        second.join(30)
        assert isinstance(came[1], pb.CreateTopicResponse), came[1]
    pair.primary.kill()
    standby._control("-w", "promote")
    with closing(open_database(pair.url_at(standby))) as database, database.read() as read:
        assert read.exec_driver_sql("SELECT count(*) FROM topics").scalar() == 1


@pytest.mark.long
def test_standby_is_not_read(pair: Pair, tmp_path: Path) -> None:
    """Name a standby, alone and before the primary."""
    open_service(str(tmp_path / "log"), pair.url, create=True).close()
    standby = pair.copy(standby=True)
    pair.start(standby)
    with pytest.raises(UnavailableError, match="is a standby, which has what the primary had a while ago"):
        open_service(str(tmp_path / "log"), pair.url_at(standby))
    with closing(open_database(pair.url_at(standby, pair.primary))) as database, database.read() as read:
        assert read.exec_driver_sql("SELECT pg_is_in_recovery()").scalar() is False


@pytest.mark.usefixtures("impatient")
def test_database_that_went_back_is_noticed(pair: Pair, tmp_path: Path) -> None:
    """Put an older copy of the server in its place under a service, a client and a log's root: each says so, and none
    goes on before `after-restore`."""
    root = str(tmp_path / "log")
    service = open_service(root, pair.url, create=True)
    with Server(service, "127.0.0.1", 0) as server, txn_source.connect(endpoint=server.address) as log:
        log.create_topic("t")
        older = pair.copy(standby=False)
        for number in range(3):
            with log.begin_transaction() as transaction, log.producer("t") as producer:
                producer.send(b"%d" % number, txn=transaction)
        assert values(log, "t") == [b"0", b"1", b"2"]
        with closing(open_service(root, pair.url)) as another:
            stub = MetadataStub(InProcessTransport(another))
            stub.get_log()
            maintain(Access(stub, tmp_path / "log"))
        pair.primary.stop("immediate")
        now = pair.primary._data
        now.rename(now.with_name("newer"))
        older._data.rename(now)
        with (now / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(f"\nunix_socket_directories = '{now}'\n")
        pair.primary.start()
        with pytest.raises(UnavailableError, match="gone back"):
            log.stats("t")
        with pytest.raises(UnavailableError, match="gone back"), log.producer("t") as producer:
            producer.send(b"3")
        with pytest.raises(UnavailableError, match=r"is older than what was noted of it"):
            open_service(root, pair.url)
    after_restore(root, pair.url.revealed)
    with (
        Server(open_service(root, pair.url), "127.0.0.1", 0) as server,
        txn_source.connect(endpoint=server.address) as log,
    ):
        assert values(log, "t") == []
    shutil.rmtree(now.with_name("newer"))
