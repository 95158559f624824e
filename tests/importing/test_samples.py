"""What real brokers wrote shows the same after it was imported, at both levels."""

from __future__ import annotations

from pathlib import Path

import pytest

import txn_source
from tests.foreign.kafka import samples
from tests.foreign.pulsar import sample_cases
from tests.importing.imported_topics import Row, source_rows, target_rows
from tests.selection import mostly_long
from txn_source import IsolationLevel
from txn_source.foreign.foreign_log import PartitionName
from txn_source.importing import import_topics
from txn_source.importing.kafka_source import event_times, properties_of
from txn_source.model.position import PositionRange


@pytest.mark.parametrize("case", mostly_long(["txn", "compact", "tiered"], "txn"))
def test_kafka_s_topics_show_the_same(case: str, tmp_path: Path) -> None:
    """Import all topics of a case together, and compare each partition with the reader of the source."""
    source = samples.log_of(samples.unpack(case, tmp_path))
    topics = sorted({name.topic for name in source.partitions()})
    with txn_source.connect(tmp_path / "target") as log:
        report = import_topics(source, topics, log)
        assert report.messages == sum(
            len(target_rows(log, part.topic, part.partition, IsolationLevel.READ_UNCOMMITTED)) for part in report.parts
        )
        assert not log.transactions("open")
        for part in report.parts:
            partition = source.partition(PartitionName(part.topic, part.partition))
            of = PositionRange(partition.bounds().log_start, part.end)
            for level in IsolationLevel:
                decisions = partition.decisions(of)
                expected: list[Row] = []
                for unit in partition.units(of):
                    for batch in partition.read(unit, level, decisions, ("key", "value", "__timestamp_ms", "headers")):
                        properties = properties_of(batch.column(3))
                        maps = [None] * len(batch) if properties is None else properties.to_pylist()
                        columns = (batch.column(0).to_pylist(), batch.column(1).to_pylist())
                        times = event_times(batch.column(2)).to_pylist()
                        expected += zip(*columns, times, [dict(of or ()) for of in maps], strict=True)
                assert target_rows(log, part.topic, part.partition, level) == expected, (part, level)


@pytest.mark.parametrize("case", mostly_long(["chunked", "entry-metadata", "txn-mix", "txn-open"], "txn-mix"))
def test_pulsar_s_topics_show_the_same(case: str, tmp_path: Path) -> None:
    """Import each topic of a case, and compare it with the reader of the source."""
    source = sample_cases.unpack(case, tmp_path).log()
    with txn_source.connect(tmp_path / "target") as log:
        for name in source.partitions():
            report = import_topics(source, [name.topic], log)
            assert not log.transactions("open")
            [part] = report.parts
            partition = source.partition(name)
            of = PositionRange(partition.bounds().log_start, part.end)
            for level in IsolationLevel:
                rows = source_rows(partition, of, level, ("key", "value", "__event_time", "__properties"))
                expected = [(key, value, time, dict(properties)) for key, value, time, properties in rows]
                assert target_rows(log, name.topic, part.partition, level) == expected, (part, level)
