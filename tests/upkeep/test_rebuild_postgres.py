"""A log that has its metadata in PostgreSQL loses that database, and gets another one."""

from __future__ import annotations

from pathlib import Path

import pytest

import txn_source
from tests.log.reading import BY_HAND
from tests.metadata.postgres import server
from txn_source.client.access import Access
from txn_source.client.scan import scan
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.service.migration import migrate
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST
from txn_source.storage.root import LogRoot
from txn_source.upkeep.rebuild import rebuild


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """A log with a plain, a committed and an aborted message, whose database on PostgreSQL is gone."""
    root = tmp_path / "log"
    with txn_source.connect(root) as log:
        log.create_topic("t")
        with log.producer("t", batching=BY_HAND) as producer:
            producer.send(b"plain")
            for commit in (True, False):
                txn = log.begin_transaction()
                producer.send(b"%d" % commit, txn=txn)
                producer.flush()
                txn.commit() if commit else txn.abort()
    gone = server().new_database(with_tables=False)
    migrate(LogRoot.at(root), gone, lambda _: None)
    server().drop_database(gone)
    return root


def test_another_database_takes_the_metadata(lost: Path, url: DatabaseUrl) -> None:
    """Make it again in an empty database, and not in one that has it."""
    before = sorted(path.name for path in lost.iterdir())
    report = rebuild(lost, metadata=url)
    assert [(topic.messages, topic.transactions) for topic in report.topics] == [(3, 2)]
    assert report.database == str(url)
    assert sorted(path.name for path in lost.iterdir()) == before
    assert [count(lost, url, level) for level in IsolationLevel] == [2, 3]
    with pytest.raises(InvalidArgumentError, match="empty"):
        rebuild(lost, metadata=url)


def count(root: Path, url: DatabaseUrl, level: IsolationLevel) -> int:
    """Read the topic as a service on the database has it."""
    opened = open_database(url)
    stub = MetadataStub(InProcessTransport(MetadataService(opened, str(root))))
    try:
        return scan(Access(stub, root), "t", level, None, EARLIEST, LATEST, None, False, None).read_all().num_rows
    finally:
        stub.close()
        opened.close()


def test_what_is_named_must_be_of_the_logs_kind(lost: Path, url: DatabaseUrl, tmp_path: Path) -> None:
    """Name no database for a log on PostgreSQL, and one for a log that isn't."""
    with pytest.raises(InvalidArgumentError, match=r"keeps its metadata in PostgreSQL.*--metadata"):
        rebuild(lost)
    with txn_source.connect(tmp_path / "other") as log:
        log.create_topic("t")
    with pytest.raises(InvalidArgumentError, match="one of them isn't on PostgreSQL"):
        rebuild(tmp_path / "other", metadata=url)
