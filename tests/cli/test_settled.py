"""What a service keeps out of garbage collections, which stop all its calls."""

from __future__ import annotations

import gc
import signal
from collections.abc import Collection
from pathlib import Path

import pytest
from typer.testing import CliRunner

import txn_source
from txn_source.cli.app import app


@pytest.mark.parametrize("command", ["serve", "console"])
def test_what_is_loaded_is_left_out_while_it_serves(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """End a service as soon as it waits for its end."""
    txn_source.connect(tmp_path / "log").close()
    left_out = []

    def sigwait(_: Collection[int]) -> int:
        left_out.append(gc.get_freeze_count())
        return signal.SIGTERM

    monkeypatch.setattr(signal, "sigwait", sigwait)
    before = gc.get_freeze_count()
    done = CliRunner().invoke(app, [command, "--root", str(tmp_path / "log"), "--port", "0"])
    assert done.exit_code == 0, done.output
    assert left_out[0] > before + 10_000
    assert gc.get_freeze_count() == 0
