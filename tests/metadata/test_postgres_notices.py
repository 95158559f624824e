"""What one service commits is told to the others over the same PostgreSQL database, and to nobody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from sqlalchemy import text

from tests.metadata.postgres import server
from txn_source.metadata.store import postgres_clock, postgres_connections
from txn_source.metadata.store.database import Change, Database, Wait, note_change
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.postgres_notices import changes_in

PATIENCE_S = 20.0


@pytest.fixture
def url() -> Iterator[DatabaseUrl]:
    """A database with the tables of a log."""
    url = server().new_database()
    yield url
    server().drop_database(url)


def commit(database: Database, *changes: Change) -> None:
    """Commit something that changes topics and subscriptions."""

    def note(connection: object) -> None:
        for change in changes:
            note_change(connection, *change)  # type: ignore[arg-type]

    database.write(note)


@contextmanager
def two_listening(url: DatabaseUrl) -> Iterator[tuple[Database, Database, Wait]]:
    """Two processes' databases, the first of which listens."""
    with (
        closing(open_database(url)) as one,
        closing(open_database(url)) as two,
        one.changes(threading.Event()) as wait,
    ):
        yield one, two, wait


def test_changes_are_told_by_topic_and_subscription(url: DatabaseUrl) -> None:
    """Listen in one process, and commit through another one's connection, and through the listener's own."""
    with two_listening(url) as (one, two, wait):
        commit(one, (9, 9))  # its own, which it is told elsewhere
        commit(two, (1, 0), (2, 7))
        assert wait(PATIENCE_S) == {(1, 0), (2, 7)}
        commit(two)  # nothing that anybody waits for
        assert wait(0.0) == set()


def test_change_that_is_rolled_back_is_not_told(url: DatabaseUrl) -> None:
    """Refuse a change after it was noted; the next one is told alone."""
    with two_listening(url) as (_, two, wait):

        def refused(connection: object) -> None:
            note_change(connection, 1)  # type: ignore[arg-type]
            raise RuntimeError

        with pytest.raises(RuntimeError):
            two.write(refused)
        commit(two, (2, 0))
        assert wait(PATIENCE_S) == {(2, 0)}


def test_many_changes_are_told_as_anything(url: DatabaseUrl) -> None:
    """Commit changes of more topics than a notice can name."""
    with two_listening(url) as (_, two, wait):
        commit(two, *((topic_id, 0) for topic_id in range(5_000)))
        assert wait(PATIENCE_S) is None


def test_listener_stops_when_it_is_told_to(url: DatabaseUrl) -> None:
    """Set the event of a listener that would wait for long."""
    stop = threading.Event()
    with closing(open_database(url)) as one, one.changes(stop) as wait:
        answers: list[object] = []
        thread = threading.Thread(target=lambda: answers.append(wait(3600.0)))
        thread.start()
        stop.set()
        thread.join(PATIENCE_S)
        assert answers == [set()]


def test_odd_notices_mean_anything() -> None:
    """Read what others might send on the channel."""
    assert changes_in(["a:1,0;2,7", "b:3,0"]) == {(1, 0), (2, 7), (3, 0)}
    for odd in ("a:*", "", "a:", "a:1", "a:1,x", "a:1,0;"):
        assert changes_in([odd]) is None


def test_time_is_the_servers(url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine's clock be wrong by years: two services still agree with the server, and go on with it."""
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    minute_us = 60_000_000
    with closing(open_database(url)) as one, closing(open_database(url)) as two:
        with one.read() as read:
            server_us = read.execute(text(postgres_connections.CLOCK)).scalar_one()
        assert [abs(each.clock() - server_us) < minute_us for each in (one, two)] == [True, True]


def test_time_is_asked_for_again(url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the local clock that bridges the time between two looks run wild: reads and writes set it right."""
    with closing(open_database(url)) as database:
        before = database.clock()
        monotonic = time.monotonic_ns
        for use in (lambda: database.read().__enter__(), lambda: database.write(lambda _: None)):
            with monkeypatch.context() as patch:
                patch.setattr(time, "monotonic_ns", lambda: monotonic() + 10**15)
                patch.setattr(postgres_clock, "FRESH_S", 0.0)
                assert database.clock() > before + 10**11
                use()
                assert before <= database.clock() < before + 10**11
            database.write(lambda _: None)


def test_texts_are_ordered_by_code_points_in_any_locale(url: DatabaseUrl) -> None:
    """Look for columns of text that would sort as the database's locale does."""
    texts = text(
        "SELECT count(*), count(*) FILTER (WHERE collation_name = 'C') FROM information_schema.columns"
        " WHERE table_schema = 'public' AND data_type IN ('text', 'character varying', 'character')"
    )
    with closing(open_database(url)) as database, database.read() as read:
        found, in_code_points = read.execute(texts).one()
    assert found == in_code_points > 20


def test_ids_are_never_given_again(url: DatabaseUrl) -> None:
    """Roll an insert back, and delete the newest row: the next id is larger than all before."""
    insert = text("INSERT INTO doomed_files (uri, forget_after_ms) VALUES ('x', 0) RETURNING doomed_id")
    with closing(open_database(url)) as database:
        given: list[int] = []

        def refused(connection: object) -> None:
            given.append(connection.execute(insert).scalar_one())  # type: ignore[attr-defined]
            raise RuntimeError

        for _ in range(2):
            with pytest.raises(RuntimeError):
                database.write(refused)
            given.append(database.write(lambda c: c.execute(insert).scalar_one()))
            database.write(lambda c: c.execute(text("DELETE FROM doomed_files")))
        assert given == sorted(set(given))
