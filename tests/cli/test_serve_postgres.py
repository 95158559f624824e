"""``txnlog serve`` over a metadata database in PostgreSQL."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_serve import address_of
from tests.metadata.postgres import GUARDED, server
from txn_source.metadata.store.database_url import DatabaseUrl


@pytest.mark.parametrize("given", ["option", "variable"])
def test_log_is_made_and_served_again(given: str, spawn: Any, bare: Any, root: Path, url: DatabaseUrl) -> None:
    """Serve a new log, write to it, stop, serve it once more, and read."""
    option = ("--metadata", url.revealed) if given == "option" else ()
    environment = {**os.environ, "TXNLOG_METADATA": url.revealed} if given == "variable" else {**os.environ}
    for first in (True, False):
        process = spawn("serve", "--root", root, "--port", "0", *option, env=environment)
        address = address_of(process)
        if first:
            assert bare("--endpoint", address, "topics", "create", "orders").exit_code == 0
            assert bare("produce", "orders", "--endpoint", address, input="a\nb\n").exit_code == 0
        assert bare("--endpoint", address, "consume", "orders").stdout == "a\nb\n"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate()
        assert (process.returncode, output) == (0, b"")
    assert not (root / "metadata.db").exists()


def test_two_services_serve_one_log(spawn: Any, bare: Any, root: Path, url: DatabaseUrl) -> None:
    """Write through one service and read through the other one."""
    one, two = (address_of(spawn("serve", "--root", root, "--port", "0", "--metadata", url.revealed)) for _ in range(2))
    assert bare("--endpoint", one, "topics", "create", "orders").exit_code == 0
    assert bare("produce", "orders", "--endpoint", two, input="a\n").exit_code == 0
    assert bare("produce", "orders", "--endpoint", one, input="b\n").exit_code == 0
    assert bare("--endpoint", two, "consume", "orders").stdout == "a\nb\n"


def test_root_is_opened_where_its_metadata_is(spawn: Any, txnlog: Any, bare: Any, root: Path, url: DatabaseUrl) -> None:
    """Use the root of a log on PostgreSQL without a service, and serve it as if it were on SQLite."""
    process = spawn("serve", "--root", root, "--port", "0", "--metadata", url.revealed)
    address_of(process)
    for refused in (txnlog("topics", "list"), bare("serve", "--root", root, "--port", "0")):
        assert refused.exit_code == 2
        assert "[TXNLOG_INVALID_ARGUMENT] The log at" in refused.stderr
        assert "keeps its metadata in PostgreSQL" in refused.stderr


def test_password_is_in_no_output(spawn: Any, root: Path) -> None:
    """Serve with a URL that can't be read, one of an unknown account and one of another database, each with a secret.

    Tracebacks are asked for, too.
    """
    for text in (
        "postgresql://teller:s3cret/x@db/log",
        server().url("postgres", GUARDED, "s3cret"),
        "mysql://teller:s3cret@db/log",
    ):
        environment = {**os.environ, "TXNLOG_METADATA": text, "TXNLOG_TRACEBACK": "1"}
        process = spawn("serve", "--root", root, "--port", "0", env=environment)
        output, errors = process.communicate()
        assert process.returncode in (1, 2)
        assert b"[TXNLOG_" in errors
        assert b"s3cret" not in output + errors
