"""Ledgers that real brokers offloaded, with what Pulsar's own reader returned of them (``samples``)."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs as fs

from txn_source.foreign.foreign_log import ReadUnit
from txn_source.foreign.pulsar.columns import SCHEMA
from txn_source.foreign.pulsar.partition import PulsarPartition
from txn_source.foreign.pulsar.pulsar_log import PulsarLog
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import PositionRange

SAMPLES = Path(__file__).with_name("samples")
CASES = sorted(path.name.removesuffix(".tar.gz") for path in SAMPLES.glob("*.tar.gz"))
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
_TIMES = ("__publish_time", "__event_time", "__broker_publish_time", "__deliver_at")


@dataclass(frozen=True)
class Case:
    """One sample, unpacked."""

    folder: Path

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    def lines(self, name: str) -> list[dict[str, Any]]:
        with gzip.open(self.folder / name) as lines:
            return [json.loads(line) for line in lines]

    def log(self, **options: Any) -> PulsarLog:
        """Open the case's objects with nothing but themselves, unless options say otherwise."""
        return log_of(self.folder / "objects", **options)

    def infos(self) -> dict[str, Any]:
        return {topic: info["internalInfo"] for topic, info in self.json("managed-ledger.json").items()}

    def snapshots(self) -> list[Any]:
        return [message["snapshot"] for message in self.json("tb-snapshot.json")]


def unpack(case: str, folder: Path) -> Case:
    """Unpack a sample."""
    with tarfile.open(SAMPLES / f"{case}.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 and older have none
        archive.extractall(folder)
    for packed in (folder / case / "objects").glob("*.gz"):
        with gzip.open(packed) as source, packed.with_suffix("").open("wb") as target:
            shutil.copyfileobj(source, target)
    return Case(folder / case)


def log_of(folder: Path, **options: Any) -> PulsarLog:
    """Open what lies in a folder."""
    return PulsarLog(fs.LocalFileSystem(), str(folder), **options)


def only_topic(folder: Path, **options: Any) -> PulsarPartition:
    """Return the only topic of which ledgers lie in a folder."""
    [partition] = partitions(log_of(folder, **options))
    return partition


def partitions(log: PulsarLog) -> Iterator[PulsarPartition]:
    for name in log.partitions():
        yield log.partition(name)


def whole(partition: PulsarPartition, level: IsolationLevel = COMMITTED) -> PositionRange:
    """Return all that a level shows."""
    bounds = partition.bounds()
    return bounds.clip(bounds.log_start, bounds.log_end, level)


def rows_of(
    partition: PulsarPartition,
    of: PositionRange,
    level: IsolationLevel = COMMITTED,
    columns: Sequence[str] = tuple(SCHEMA.names),
    unit_bytes: int = 1 << 30,
) -> list[dict[str, Any]]:
    """Return the rows of a range; times in microseconds, properties as a dict."""
    decided = partition.decisions(of)
    units: list[ReadUnit] = [*partition.units(of, unit_bytes)]
    rows: list[dict[str, Any]] = []
    for unit in units:
        for batch in partition.read(unit, level, decided, columns):
            batch.validate(full=True)
            assert batch.schema.names == list(columns)
            for name in _TIMES:
                if name in columns:
                    at = columns.index(name)
                    batch = batch.set_column(at, name, batch.column(at).cast("int64"))
            rows += batch.to_pylist()
    for row in rows:
        if "__properties" in row:
            row["__properties"] = dict(row["__properties"])
    return rows


def as_pulsar_says(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with all columns in the form of the samples' ``expected.jsonl``."""
    key = row["key"]
    txn = (row["__txn_id"] or "(,)")[1:-1].split(",")
    place: dict[str, Any] = {
        "ledger": row["__ledger_id"],
        "entry": row["__entry_id"],
        "partition": -1,
        "batch_index": row["__batch_index"],
        "batch_size": row["__batch_size"],
    }
    if row["__first_chunk"] is not None:
        ledger, entry = row["__first_chunk"].split(":")
        place |= {"first_chunk_ledger": int(ledger), "first_chunk_entry": int(entry)}
    found = {
        "id": place,
        "key": None if key is None else (base64.b64encode(key) if row["__key_is_base64"] else key).decode(),
        "key_b64": row["__key_is_base64"],
        "ordering_key": _base64(row["__ordering_key"]),
        "properties": row["__properties"],
        "event_time": (row["__event_time"] or 0) // 1000,
        "publish_time": row["__publish_time"] // 1000,
        "producer": row["__producer_name"],
        "sequence_id": row["__sequence_id"],
        "schema_version": _base64(row["__schema_version"]),
        "null_value": row["value"] is None,
        "value": _base64(row["value"]),
        "txn_most": int(txn[0]) if txn[0] else None,
        "txn_least": int(txn[1]) if txn[1] else None,
    }
    if row["__index"] is not None:
        found |= {"broker_publish_time": row["__broker_publish_time"] // 1000, "index": row["__index"]}
    return found


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
