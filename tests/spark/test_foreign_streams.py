"""Streaming queries over a Kafka topic that a broker rolls, moves, trims and compacts under them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.foreign.kafka.live_log import LiveLog
from tests.spark.plain import Query
from txn_source import DataLossError


def test_query_tells_what_is_lost(query: Query, tmp_path: Path) -> None:
    """Trim what a query hasn't read, between two runs of it."""
    log = LiveLog(tmp_path / "kafka", 3, partitions=1, segment_bytes=400)
    for _ in range(20):
        log.send_plain()
    log.finish()
    query.run(topic="t", path=log.path)
    read = log.parts[0].writer.end
    for _ in range(40):
        log.send_plain()
    log.finish()
    log.trim(log.parts[0], log.parts[0].writer.bases[-1])
    begin = log.parts[0].start
    with pytest.raises(DataLossError, match=rf"t-0 begins at {begin}: \[{read}, {begin}\)"):
        query.run(topic="t", path=log.path)
    query.run(topic="t", path=log.path, failOnDataLoss="false")
    offsets = [row["offset"] for _, rows in sorted(query.batches.items()) for row in rows]
    assert offsets == [*range(read), *range(begin, log.parts[0].writer.end)]
