"""``txnlog topics export-iceberg``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import txn_source

pytestmark = pytest.mark.filterwarnings("default")  # PyIceberg's own


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The properties of a catalog in SQLite."""
    given = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}", "warehouse": f"file://{tmp_path}"}
    return [part for key, value in given.items() for part in ("--property", f"{key}={value}")]


def test_export_tells_what_it_did(txnlog: Any, log: txn_source.Log, options: list[str]) -> None:
    """Export an offloaded ledger beside one that isn't, again, and as JSON."""
    log.create_topic("orders", ledger_max_entries=2)
    with log.producer("orders") as producer:
        for value in ("a", "b", "c"):
            producer.send(value)
            producer.flush()
    log.offload("orders")
    export = ("topics", "export-iceberg", "orders", "bank.orders", *options)
    result = txnlog(*export)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "Exported topic 'orders' to bank.orders: 1 file added, 0 removed, 2 messages now.\n"
        "1 ledger with messages above the cut: not offloaded yet, or divided by it.\n"
    )
    assert txnlog(*export).stdout.startswith("Nothing to export to bank.orders: it shows 2 messages.\n")
    found = json.loads(txnlog(*export, "--json").stdout)
    assert (found["topic"], found["table"], found["rows"], found["waiting"]) == ("orders", "bank.orders", 2, 1)
    assert json.loads(found["cut"])["positions"] == {"orders": {"0": "2:0"}}


@pytest.mark.parametrize(
    ("given", "said"), [([], "Name a catalog"), (["--property", "type"], "'type' is not KEY=VALUE")]
)
def test_export_without_a_catalog_is_a_usage_error(
    txnlog: Any, log: txn_source.Log, given: list[str], said: str
) -> None:
    """Give no catalog, and a property without a value."""
    log.create_topic("orders")
    result = txnlog("topics", "export-iceberg", "orders", "bank.orders", *given)
    assert result.exit_code == 2
    assert said in result.stderr
