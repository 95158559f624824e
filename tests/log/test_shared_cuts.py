"""The text of a cut that several reads share."""

from __future__ import annotations

import json

from tests.log.reading import UNCOMMITTED
from txn_source import Cut, IsolationLevel, Log, Position
from txn_source.client.places import parse_side
from txn_source.model.position import LATEST


def test_cut_is_text_that_reads_back(log: Log) -> None:
    """Take a cut of two topics, and read its text."""
    for topic in ("debits", "credits"):
        log.create_topic(topic, partitions=2)
    cut = log.cut(["credits", "debits"], UNCOMMITTED)
    told = json.loads(str(cut))
    assert told["level"] == UNCOMMITTED
    assert list(told["positions"]) == ["credits", "debits"]
    assert parse_side(cut.json(), LATEST) == parse_side(cut, LATEST) == parse_side(told, LATEST)
    assert cut == Cut(dict(cut.positions), IsolationLevel.READ_UNCOMMITTED)
    assert all(isinstance(at, Position) for at in cut.positions.values())
