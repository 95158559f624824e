"""Importing what Kafka wrote by the tasks of a Spark job."""

from __future__ import annotations

import pytest

import txn_source
from tests.foreign.kafka import samples
from tests.importing.imported_topics import target_rows
from txn_source import IsolationLevel
from txn_source.importing import import_topics as import_here
from txn_source.model.errors import SegmentUnreadableError
from txn_source.spark import import_topics


@pytest.mark.long
def test_import_job_brings_what_an_import_brings(spark, tmp_path) -> None:
    """Damage a batch: the job says so in our words. Mend it: the job goes on, and an import finds nothing to do."""
    case = samples.unpack("txn", tmp_path)
    source, topics = f"kafka:{case / 'log'}", ["txn", "txn3"]
    path = case / "log" / "txn3-1" / f"{0:020}.log"
    whole = path.read_bytes()
    with txn_source.connect(tmp_path / "one") as one, txn_source.connect(tmp_path / "other") as other:
        expected = import_here(source, topics, one)
        path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        with pytest.raises(SegmentUnreadableError, match="its checksum is wrong"):
            import_topics(spark, source, topics, other)
        path.write_bytes(whole)
        report = import_topics(spark, source, topics, other)
        assert report.messages <= expected.messages
        assert import_here(source, topics, other).messages == 0
        for level in IsolationLevel:
            for part in expected.parts:
                rows = target_rows(one, part.topic, part.partition, level)
                assert target_rows(other, part.topic, part.partition, level) == rows
