"""Imports into logs whose segments are objects."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import txn_source
from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.partition_writer import PartitionWriter
from tests.importing.imported_topics import target_rows, write_shared_transactions
from tests.log.reading import values
from tests.tiers.object_logs import objects
from tests.tiers.stores import Bucket, S3Server
from txn_source import IsolationLevel, Log
from txn_source.cli.app import app
from txn_source.importing import import_topics

PARTITIONS = 3


def all_rows(log: Log) -> list[Any]:
    """Return what both levels show of each partition."""
    return [target_rows(log, "t", index, level) for index in range(PARTITIONS) for level in IsolationLevel]


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A topic with transactions over its partitions."""
    write_shared_transactions(random.Random(5), tmp_path / "kafka", PARTITIONS)
    return f"kafka:{tmp_path / 'kafka'}"


@pytest.fixture
def expected(source: str, tmp_path: Path) -> list[Any]:
    """What the topic is in a log of files."""
    with txn_source.connect(tmp_path / "files") as log:
        import_topics(source, "t", log)
        return all_rows(log)


@pytest.mark.long
def test_batch_of_an_import_is_one_object(
    source: str, expected: list[Any], s3: S3Server, bucket: Bucket, tmp_path: Path
) -> None:
    """Import all partitions at once: one object has them, and goes when nothing refers to it any more."""
    with txn_source.connect(bucket.uri_at(s3.endpoint), metadata=tmp_path / "log.db") as log:
        import_topics(source, "t", log)
        assert all_rows(log) == expected
        assert len(objects(bucket)) == 1
        log.roll_ledger("t")
        log.offload("t")
        log.delete_hot("t")
        assert objects(bucket) == []
        assert all_rows(log) == expected


def test_command_imports_to_a_prefix(
    s3: S3Server, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Import with the metadata named by the environment; a dry run makes nothing, before and after."""
    writer = PartitionWriter(tmp_path / "kafka")
    writer.send([Record(b"k", b"1")])
    writer.flush()
    uri, metadata = bucket.uri_at(s3.endpoint), tmp_path / "log.db"
    command = ["import", f"kafka:{tmp_path / 'kafka'}", "t", "--to", uri]
    monkeypatch.delenv("TXNLOG_METADATA", raising=False)
    refused = CliRunner().invoke(app, command)
    assert (refused.exit_code, "which can't hold its metadata" in refused.stderr) == (2, True)
    monkeypatch.setenv("TXNLOG_METADATA", str(metadata))
    missing = CliRunner().invoke(app, [*command, "--dry-run"])
    assert (missing.exit_code, missing.stderr.count("There is no metadata in")) == (1, 1)
    assert (bucket.files(), metadata.exists()) == ([], False)
    assert CliRunner().invoke(app, command).exit_code == 0
    before = bucket.files()
    again = CliRunner().invoke(app, [*command, "--dry-run"])
    assert (again.exit_code, bucket.files()) == (0, before)
    with txn_source.connect(uri, metadata=metadata) as log:
        assert values(log, "t") == [b"1"]
