"""``txnlog serve`` over a root on an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Served
from tests.log.objects import SURROUNDINGS, new_prefix

pytestmark = pytest.mark.usefixtures("s3")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SURROUNDINGS.items():
        monkeypatch.setenv(name, value)


def test_service_over_an_object_store(
    served: Served, bare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Serve, write and read by the endpoint; then read without the service."""
    uri, metadata = new_prefix(), tmp_path / "log.db"

    def use(address: str) -> None:
        assert bare("--endpoint", address, "topics", "create", "orders").exit_code == 0
        assert bare("produce", "orders", "--endpoint", address, input="1\n").exit_code == 0
        assert bare("--endpoint", address, "consume", "orders").stdout == "1\n"
        assert bare("--endpoint", address, "gc", "--older-than", "0s").exit_code == 0

    served("--root", uri, "--metadata", metadata, during=use)
    monkeypatch.setenv("TXNLOG_METADATA", str(metadata))
    assert bare("--root", uri, "consume", "orders").stdout == "1\n"


def test_root_on_an_object_store_needs_metadata(bare: Any) -> None:
    """Serve without it: one line."""
    result = bare("serve", "--root", new_prefix(), "--port", "0")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("[TXNLOG_INVALID_ARGUMENT] The log at s3://")
