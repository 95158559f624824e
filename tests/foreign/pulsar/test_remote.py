"""Offloaded ledgers in a bucket, over HTTP: read by ranges that are asked for ahead."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow.fs as fs
import pytest

from tests.foreign.pulsar.offload_writer import LZ4, Frame, Sent, batch, write_ledger
from tests.foreign.pulsar.sample_cases import partitions
from tests.tiers.stores import CREDENTIALS, Bucket, S3Server
from txn_source.foreign.pulsar.pulsar_log import PulsarLog
from txn_source.foreign.pulsar.raw_entries import ObjectFile
from txn_source.model.errors import DataLossError, LogNotFoundError, SegmentUnreadableError
from txn_source.model.position import Position


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    return s3.make_bucket()


def _system(endpoint: str) -> fs.S3FileSystem:
    access, secret = CREDENTIALS
    return fs.S3FileSystem(
        access_key=access,
        secret_key=secret,
        endpoint_override=endpoint,
        scheme="http",
        region="us-east-1",
        connect_timeout=20,
        request_timeout=60,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )


def _upload(bucket: Bucket, folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            bucket.write(path.relative_to(folder).as_posix(), path.read_bytes())


def test_store_that_does_not_answer(s3: S3Server, bucket: Bucket, tmp_path: Path) -> None:
    """List a store that isn't there and a bucket without objects; delete an object under an open log."""
    with pytest.raises(SegmentUnreadableError, match="can't be listed: the store can't be reached"):
        PulsarLog(_system("127.0.0.1:9"), "bucket/folder")
    with pytest.raises(LogNotFoundError):
        PulsarLog(_system(s3.endpoint), f"{bucket.name}/folder")
    write_ledger(tmp_path, 3, [batch([Sent(b"a")], Frame(codec=LZ4))])
    _upload(bucket, tmp_path)
    [partition] = partitions(PulsarLog(_system(s3.endpoint), f"{bucket.name}/folder"))
    for name in bucket.files():
        bucket.remove(name)
    with pytest.raises(DataLossError, match="is gone"):
        partition.bounds()


def test_a_plan_asks_for_many_ledgers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open and plan 16 ledgers in a store that answers 16 requests at once only: one for an index, one for its data."""
    for ledger in range(16):
        write_ledger(tmp_path, ledger, [batch([Sent(b"a")])])
    gate, asked, read = threading.Barrier(16), [], ObjectFile.read

    def at_once(self: ObjectFile, start: int, size: int) -> bytes:
        gate.wait(60)
        asked.append(self.uri)
        return read(self, start, size)

    monkeypatch.setattr(ObjectFile, "read", at_once)
    [partition] = partitions(PulsarLog(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), ""))
    assert partition.bounds().log_end == Position(15, 1)
    assert len(set(asked)) == len(asked) == 32
