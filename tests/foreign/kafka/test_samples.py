"""Reads what real brokers wrote, and compares each row and column with what Kafka's consumer returned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.foreign.kafka.samples import CASES, COLUMNS, expected, log_of, partitions, rows_of, unpack
from tests.selection import for_each, mostly_long
from txn_source.foreign.foreign_log import ForeignPartition
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange

pytestmark = pytest.mark.xdist_group("kafka_samples")


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(request.param, tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="module")
def bare(case: Path) -> Path:
    """The same without a transaction index."""
    copy = unpack(case.name, case.parent / "bare")
    for path in copy.rglob("*.txnindex"):
        path.unlink()
    return copy


def read_all(partition: ForeignPartition, level: IsolationLevel, start: int = 0, end: int | None = None) -> list[Any]:
    bounds = partition.bounds()
    low = max(Position.from_key(start), bounds.log_start)
    high = bounds.upper(level) if end is None else min(Position.from_key(end), bounds.upper(level))
    of = PositionRange(low, max(low, high))
    rows = []
    for unit in partition.units(of, 4096):
        rows += rows_of(partition.read(unit, level, partition.decisions(unit.of), COLUMNS))
    return rows


@for_each("level", IsolationLevel)
def test_rows_are_the_consumers(case: Path, level: IsolationLevel) -> None:
    """Read every partition at a level."""
    log = log_of(case)
    for name in partitions(case):
        assert read_all(log.partition(name), level) == expected(case, name, level.value), name


@pytest.mark.parametrize("case", mostly_long(["txn", "compact"], "txn"), indirect=True)
@pytest.mark.parametrize("level", IsolationLevel)
def test_rows_are_the_consumers_without_transaction_indexes(bare: Path, level: IsolationLevel) -> None:
    """Read every partition at a level after its transaction indexes were deleted."""
    log = log_of(bare)
    for name in partitions(bare):
        assert read_all(log.partition(name), level) == expected(bare, name, level.value), name


def test_bounds_are_the_brokers(case: Path) -> None:
    """Compare the bounds with those that the broker told before it was stopped."""
    log = log_of(case)
    for name, told in partitions(case).items():
        partition = log.partition(name)
        bounds = partition.bounds()
        assert bounds.log_start.key == told["log_start_offset"], name
        assert bounds.high_watermark.key == told["high_watermark"], name
        assert bounds.last_stable.key == told["last_stable_offset"], name
        assert partition.topic_id == told["topic_id"]
