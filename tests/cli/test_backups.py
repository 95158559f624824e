"""``txnlog backup``, ``txnlog restore`` and ``txnlog after-restore``: what they print, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import txn_source
from txn_source.cli.app import app


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with txn_source.connect(tmp_path / "log") as log:
        log.create_topic("orders")
        with log.producer("orders") as producer:
            producer.send(b"x")
    return tmp_path / "log"


@pytest.fixture
def run(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("TXNLOG_ROOT", str(root))
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_backup_and_restore_say_what_they_did(run: Callable[..., Any], tmp_path: Path) -> None:
    """One line for people, the whole report as JSON; --base tells what wasn't copied again."""
    done = run("backup", tmp_path / "one")
    assert done.exit_code == 0, done.output
    assert "1 topic" in done.stdout
    assert "1 messages at read_committed" in done.stdout
    again = json.loads(run("backup", tmp_path / "two", "--base", tmp_path / "one", "--json").stdout)
    assert (again["files"], again["reused"], again["messages"]["read_uncommitted"]) == (2, 1, 1)
    restored = run("restore", tmp_path / "two", "--root", tmp_path / "new", "--no-check")
    assert restored.exit_code == 0, restored.output
    assert again["log_id"] in restored.stdout
    assert "It was not read." in restored.stdout
    topics = run("--root", tmp_path / "new", "topics", "list", "--json")
    assert [topic["topic"] for topic in json.loads(topics.stdout)] == ["orders"]


def test_refusals_are_one_line_with_a_status(run: Callable[..., Any], tmp_path: Path, root: Path) -> None:
    """Where something lies, what is no backup, and an endpoint, which has no folder."""
    full = run("restore", root, "--root", tmp_path / "new")
    assert (full.exit_code, full.stderr.count("\n")) == (1, 1)
    assert run("backup", tmp_path / "one").exit_code == 0
    assert run("restore", tmp_path / "one").exit_code == 2  # to the log that the environment names
    assert run("--endpoint", "localhost:6650", "backup", tmp_path / "two").exit_code == 2
    assert run("backup", tmp_path / "no" / "such").exit_code == 1


def test_log_in_a_folder_goes_on_behind_a_gap(run: Callable[..., Any], root: Path) -> None:
    """Put metadata.db back by hand, and say so: what is written next lies behind what may have been given out."""
    done = run("after-restore")
    assert done.exit_code == 0, done.output
    with txn_source.connect(root) as log:
        assert log.count("orders") == 1
        [position] = log.cut("orders").positions.values()
        assert position.ledger_id > 1 << 20
