"""``txnlog serve`` over a metadata database in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Served
from tests.cli.test_serve import address_of
from tests.metadata.postgres import GUARDED, server
from txn_source.metadata.store.database_url import DatabaseUrl


@pytest.mark.parametrize("given", ["option", pytest.param("variable", marks=pytest.mark.long)])
def test_log_is_made_and_served_again(
    given: str, served: Served, bare: Any, root: Path, url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Serve a new log, write to it, stop, serve it once more, and read."""
    option = ("--metadata", url.revealed) if given == "option" else ()
    if given == "variable":
        monkeypatch.setenv("TXNLOG_METADATA", url.revealed)

    def write(address: str) -> None:
        assert bare("--endpoint", address, "topics", "create", "orders").exit_code == 0
        assert bare("produce", "orders", "--endpoint", address, input="a\nb\n").exit_code == 0

    def read(address: str) -> None:
        assert bare("--endpoint", address, "consume", "orders").stdout == "a\nb\n"

    for use in (write, read):
        served("--root", root, *option, during=use)
    assert not (root / "metadata.db").exists()


def test_two_services_serve_one_log(spawn: Any, served: Served, bare: Any, root: Path, url: DatabaseUrl) -> None:
    """Write through one service, a process, and read through the other one."""

    def use(two: str) -> None:
        assert bare("--endpoint", one, "topics", "create", "orders").exit_code == 0
        assert bare("produce", "orders", "--endpoint", two, input="a\n").exit_code == 0
        assert bare("produce", "orders", "--endpoint", one, input="b\n").exit_code == 0
        assert bare("--endpoint", two, "consume", "orders").stdout == "a\nb\n"

    one = address_of(spawn("serve", "--root", root, "--port", "0", "--metadata", url.revealed))
    served("--root", root, "--metadata", url.revealed, during=use)


def test_root_is_opened_where_its_metadata_is(
    served: Served, txnlog: Any, bare: Any, root: Path, url: DatabaseUrl
) -> None:
    """Use the root of a log on PostgreSQL without a service, and serve it as if it were on SQLite."""
    served("--root", root, "--metadata", url.revealed, during=lambda _: None)
    for refused in (txnlog("topics", "list"), bare("serve", "--root", root, "--port", "0")):
        assert refused.exit_code == 2
        assert "[TXNLOG_INVALID_ARGUMENT] The log at" in refused.stderr
        assert "keeps its metadata in PostgreSQL" in refused.stderr


def test_password_is_in_no_output(shown: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve with a URL that can't be read, one of an unknown account and one of another database, each with a secret.

    Tracebacks are asked for, too.
    """
    for text in (
        "postgresql://teller:s3cret/x@db/log",
        server().url("postgres", GUARDED, "s3cret"),
        "mysql://teller:s3cret@db/log",
    ):
        monkeypatch.setenv("TXNLOG_METADATA", text)
        told = shown("serve", "--root", root, "--port", "0")
        assert "[TXNLOG_" in told
        assert "s3cret" not in told
