"""What the benchmarks write is what brokers write: both readers find the rows that they count."""

from __future__ import annotations

from pathlib import Path

import pytest

import txn_source
from benchmarks import pulsar_ledgers
from benchmarks.kafka_files import ROWS, write_empty_segments, write_partition
from tests.selection import mostly_long


@pytest.mark.parametrize("options", mostly_long([{}, {"codec": "lz4"}, {"half_aborted": True}], {"half_aborted": True}))
def test_kafka_s_files_are_sound(options: dict[str, object], tmp_path: Path) -> None:
    """Several segments, a transaction index where something is aborted, and nothing that is undecided."""
    rows = sum(write_partition(tmp_path, index, 7, segment=200_000, **options) for index in range(2))  # type: ignore[arg-type]
    with txn_source.connect(f"kafka:{tmp_path}") as log:
        assert log.count("t") == rows
        assert log.count("t", "read_uncommitted") == 2 * 7 * ROWS
        assert not log.transactions("open")
        assert len(log.scan("t").read_all().column("value").chunk(0)[0].as_py()) == 120
    assert len(list((tmp_path / "t-0").glob("*.log"))) > 2


def test_many_segments_are_sound(tmp_path: Path) -> None:
    """Ten messages to each."""
    write_empty_segments(tmp_path, 30)
    with txn_source.connect(f"kafka:{tmp_path}") as log:
        assert log.count("t") == 300


@pytest.mark.parametrize("with_properties", [True, False])
def test_pulsar_s_ledgers_are_sound(with_properties: bool, tmp_path: Path) -> None:
    """As many messages as are said, with properties or without."""
    rows = pulsar_ledgers.write_topic(tmp_path / "pulsar", 2, with_properties=with_properties)
    with txn_source.connect(f"pulsar:{tmp_path / 'pulsar'}") as log:
        assert log.count("orders") == rows
        [first] = log.scan("orders", columns=["key", "value", "__properties"]).read_all().slice(0, 1).to_pylist()
        assert len(first["value"]) == 120
        assert dict(first["__properties"]) == ({"a": "one", "b": "0"} if with_properties else {})
