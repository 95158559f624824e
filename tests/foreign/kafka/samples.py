"""What real brokers wrote, unpacked, and what a consumer returned of it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.fs as fs

from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.kafka.kafka_log import KafkaLog
from txn_source.foreign.kafka.partition_folders import Folder

ARCHIVES = Path(__file__).with_name("samples")
CASES = sorted(path.name.removesuffix(".tar.gz") for path in ARCHIVES.glob("*.tar.gz"))
COLUMNS = ("offset", "__timestamp_ms", "timestampType", "__leader_epoch", "key", "value", "headers")
LARGE = 4096
"""Values longer than this are there as a hash."""


def unpack(case: str, to: Path) -> Path:
    """Unpack a case, and return its folder."""
    with tarfile.open(ARCHIVES / f"{case}.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 and older have none
        archive.extractall(to)
    return to / case


def folders(case: Path) -> list[Folder]:
    """Return the folders of a case: the broker's, and of the tiered one that of the remote tier."""
    paths = [case / "log", case / "remote"]
    return [Folder(fs.LocalFileSystem(), str(path)) for path in paths if path.is_dir()]


def log_of(case: Path, *, trust_indexes: bool = True) -> KafkaLog:
    return KafkaLog(folders(case), trust_indexes=trust_indexes)


def partitions(case: Path) -> dict[PartitionName, dict[str, Any]]:
    """Return the partitions of a case with the bounds that the broker told."""
    told = json.loads((case / "bounds.json").read_text())
    return {PartitionName(name.rpartition("-")[0], int(name.rpartition("-")[2])): of for name, of in told.items()}


@cache
def _lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def expected(case: Path, name: PartitionName, level: str) -> list[tuple[Any, ...]]:
    """Return the rows that the consumer returned at a level, as ``rows_of`` has them."""
    return [
        (
            row["offset"],
            row["timestamp"],
            {"CreateTime": 0, "LogAppendTime": 1}[row["timestamp_type"]],
            row["leader_epoch"],
            _bytes(row, "key"),
            _bytes(row, "value"),
            [(name, None if value is None else base64.b64decode(value)) for name, value in row["headers"]] or None,
        )
        for row in _lines(case / "expected" / f"{name}.{level}.jsonl.gz")
    ]


def _bytes(row: dict[str, Any], name: str) -> Any:
    if f"{name}_sha256" in row:
        return row[f"{name}_length"], row[f"{name}_sha256"]
    return None if row[name] is None else base64.b64decode(row[name])


def rows_of(batches: Iterator[Any]) -> list[tuple[Any, ...]]:
    """Return rows of ``COLUMNS`` in the form of ``expected``."""
    rows = []
    for batch in batches:
        batch.validate(full=True)
        for row in batch.to_pylist():
            headers = row["headers"] and [(header["key"], header["value"]) for header in row["headers"]]
            bytes_of = (_short(row["key"]), _short(row["value"]))
            rows.append((*(row[name] for name in COLUMNS[:4]), *bytes_of, headers))
    return rows


def _short(value: bytes | None) -> Any:
    if value is None or len(value) <= LARGE:
        return value
    return len(value), hashlib.sha256(value).hexdigest()
