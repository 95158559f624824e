"""A database's URL shows where it is, and never its password."""

from __future__ import annotations

import copy
import logging
import pickle
import sys
import traceback

import pytest

from tests.selection import for_each
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.opening import open_database
from txn_source.model.errors import InvalidArgumentError

SECRET = "s3cret"
URLS = (
    f"postgresql://teller:{SECRET}@db:5432/log",
    f"postgres://teller:{SECRET}@db/log",
    f"postgresql://teller@db/log?password={SECRET}",
    f"postgresql://:{SECRET}@/log?host=/run",
    f"postgresql://teller:{SECRET}@db:5432,db2:5433/log?sslmode=require",
    f"postgresql://teller:{SECRET}?x@db/log",
)
UNREADABLE = (
    f"postgresql://teller:{SECRET}/x@db/log",  # what isn't percent-encoded ends up in the host, port or database
    f"postgresql://teller:{SECRET}@x@db/log",
    f"postgresql://teller:x@{SECRET}@db/log",
    f"postgresql://teller:1/{SECRET}@db/log",
    f"postgresql://teller:{SECRET}%zz@db/log",
    f"postgresql://teller@db/log?pasword={SECRET}",
    f"mysql://teller:{SECRET}@db/log",
    f"teller:{SECRET}@db",
    f"host=db password={SECRET}",
)


@for_each("text", URLS)
def test_password_shows_nowhere(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Print, format, log, copy and pickle a URL."""
    url = DatabaseUrl(text)
    logging.getLogger("test").warning("%s %r", url, url)
    shown = [str(url), repr(url), f"{url}", f"{url!r:.20}", caplog.text, repr([url]), repr(open_database(url).__dict__)]
    for pickled in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(InvalidArgumentError) as caught:
            pickled(url)
        shown.append("".join(traceback.format_exception(caught.value)))
    assert [line for line in shown if SECRET in line] == []
    assert url.revealed == text
    assert "log" in str(url)


@for_each("text", UNREADABLE)
def test_url_that_can_not_be_read_is_not_shown(text: str) -> None:
    """Give URLs with a slip: none of them is repeated in the error, nor in what Python would print of it."""
    with pytest.raises(InvalidArgumentError) as caught:
        DatabaseUrl(text)
    assert SECRET not in "".join(traceback.format_exception(caught.value, chain=True))
    assert caught.value.__cause__ is None


def test_url_is_masked_by_what_it_names() -> None:
    """Look at what is shown: user, host, port and database, without options."""
    assert (
        str(DatabaseUrl("postgresql://teller:x%40y@db:5432/log?sslmode=require")) == "postgresql://teller@db:5432/log"
    )
    assert str(DatabaseUrl("sqlite:////data/metadata.db")) == "sqlite:////data/metadata.db"
    assert DatabaseUrl("sqlite:////data/metadata.db").sqlite_path == "/data/metadata.db"
    assert DatabaseUrl(URLS[0]) == DatabaseUrl(URLS[0])
    assert DatabaseUrl(URLS[0]) != DatabaseUrl(URLS[1])


def test_password_is_taken_out_of_what_the_driver_says() -> None:
    """A driver's text with the password in it, as a server's log line might be repeated, comes without it."""
    url = DatabaseUrl("postgresql://teller:p%40ss@db/log")
    assert url.scrubbed("FATAL: p@ss is wrong") == "FATAL: *** is wrong"


def test_missing_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name a PostgreSQL database where psycopg isn't installed."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidArgumentError, match=r"Install txn-source\[postgres\]"):
        DatabaseUrl(URLS[0])
