"""``txnlog serve`` over a root on an object store."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_serve import address_of
from tests.log.objects import SURROUNDINGS, new_prefix


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SURROUNDINGS.items():
        monkeypatch.setenv(name, value)


def test_service_over_an_object_store(spawn: Any, bare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve, write and read by the endpoint, and once more after a restart; then without the service."""
    uri, metadata = new_prefix(), tmp_path / "log.db"
    for number in (1, 2):
        process = spawn("serve", "--root", uri, "--metadata", metadata, "--port", "0")
        address = address_of(process)
        if number == 1:
            assert bare("--endpoint", address, "topics", "create", "orders").exit_code == 0
        assert bare("produce", "orders", "--endpoint", address, input=f"{number}\n").exit_code == 0
        assert bare("--endpoint", address, "consume", "orders").stdout == "1\n2\n"[: 2 * number]
        assert bare("--endpoint", address, "gc", "--older-than", "0s").exit_code == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    monkeypatch.setenv("TXNLOG_METADATA", str(metadata))
    assert bare("--root", uri, "consume", "orders").stdout == "1\n2\n"


def test_root_on_an_object_store_needs_metadata(spawn: Any) -> None:
    """Serve without it: one line."""
    process = spawn("serve", "--root", new_prefix(), "--port", "0")
    _, errors = process.communicate()
    assert process.returncode == 2
    assert errors.decode().startswith("[TXNLOG_INVALID_ARGUMENT] The log at s3://")
    assert errors.count(b"\n") == 1
