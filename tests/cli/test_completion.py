"""What a shell completes: commands, options, topics, subscriptions and values, and never an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import txn_source
from tests.selection import for_each
from txn_source.cli.app import app


@pytest.fixture
def completed(log: txn_source.Log, root: Path) -> Any:
    """A function that completes a line; its last word is being typed."""
    log.create_topic("orders")
    log.create_topic("payments")
    log.create_subscription("orders", "booking")

    def complete(line: str) -> list[str]:
        words = ["txnlog", *line.split(" ")]
        given = {
            "_TXNLOG_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
            "TXNLOG_ROOT": str(root),
        }
        return CliRunner().invoke(app, [], env=given, prog_name="txnlog").stdout.split()

    return complete


@for_each(
    ("line", "expected"),
    [
        ("topics st", ["stats"]),
        ("topics stats ", ["orders", "payments"]),
        ("topics stats pay", ["payments"]),
        ("consume o", ["orders"]),
        ("produce o", ["orders"]),
        ("transactions list --topic p", ["payments"]),
        ("consume orders --subscription ", ["booking"]),
        ("subscriptions stats orders b", ["booking"]),
        ("subscriptions stats nothing b", []),
        ("consume orders --isolation-level read_u", ["read_uncommitted"]),
        ("topics set-data-read-priority orders t", ["tiered-first"]),
        ("--root /nowhere topics stats o", []),
        ("--endpoint localhost:1 topics stats o", []),
        ("--endpoint nonsense topics stats o", []),
    ],
)
def test_names_and_values_are_completed(completed: Any, line: str, expected: list[str]) -> None:
    assert completed(line) == expected
