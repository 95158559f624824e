"""``txnlog serve`` over a metadata database in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Served
from tests.metadata.postgres import GUARDED, server
from txn_source.metadata.store.database_url import DatabaseUrl


def test_log_is_made_and_served_again(served: Served, bare: Any, root: Path, url: DatabaseUrl) -> None:
    """Serve a new log, write to it, stop, serve it once more, and read."""

    def write(address: str) -> None:
        assert bare("--endpoint", address, "topics", "create", "orders").exit_code == 0
        assert bare("produce", "orders", "--endpoint", address, input="a\nb\n").exit_code == 0

    def read(address: str) -> None:
        assert bare("--endpoint", address, "consume", "orders").stdout == "a\nb\n"

    for use in (write, read):
        served("--root", root, "--metadata", url.revealed, during=use)
    assert not (root / "metadata.db").exists()


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
