"""Several reads at one cut: each gives its topics up to the same moment, and no transaction is seen by half."""

from __future__ import annotations

import json

import pytest

from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, send_each, values
from tests.log.streaming import Follower, stream_of
from txn_source import Cut, InvalidArgumentError, IsolationLevel, Log, Position
from txn_source.client.places import parse_side
from txn_source.model.position import LATEST


def transfer(log: Log, name: str) -> None:
    with log.begin_transaction() as transaction:
        for topic in ("debits", "credits"):
            with log.producer(topic) as producer:
                producer.send(name, txn=transaction)


@pytest.fixture
def bank(log: Log) -> Log:
    """A log with topics ``debits`` and ``credits`` of two partitions."""
    for topic in ("debits", "credits"):
        log.create_topic(topic, partitions=2)
    return log


def test_cut_leaves_out_what_is_held_back_elsewhere(bank: Log) -> None:
    """Hold one leg of a transfer back: the cut has neither leg, though the other topic alone shows its leg."""
    with bank.producer("debits", batching=BY_HAND) as producer:
        hanging = bank.begin_transaction()
        for partition in range(2):
            send_each(producer, ["open"], partition=partition, txn=hanging)
    transfer(bank, "leg")
    cut = bank.cut(["debits", "credits"])
    assert values(bank, "credits") == [b"leg"]
    assert values(bank, "credits", end=cut) == values(bank, "debits", end=cut) == []
    hanging.abort()
    assert values(bank, "debits", end=cut) == []
    assert values(bank, "debits", start=cut) == values(bank, "credits", start=cut) == [b"leg"]
    assert Follower(bank, stream_of(bank, "debits", start=cut.json())).all_values() == [b"leg"]


def test_cut_is_text_that_reads_back(bank: Log) -> None:
    transfer(bank, "leg")
    cut = bank.cut(["credits", "debits"], UNCOMMITTED)
    told = json.loads(str(cut))
    assert told["level"] == UNCOMMITTED
    assert list(told["positions"]) == ["credits", "debits"]
    assert parse_side(cut.json(), LATEST) == parse_side(cut, LATEST) == parse_side(told, LATEST)
    assert cut == Cut(dict(cut.positions), IsolationLevel.READ_UNCOMMITTED)
    assert all(isinstance(at, Position) for at in cut.positions.values())


def test_cut_that_does_not_fit_a_read_is_refused(bank: Log) -> None:
    """Read a topic that the cut doesn't have, or at read_committed what is a cut of read_uncommitted only."""
    cut = bank.cut("debits")
    with pytest.raises(InvalidArgumentError, match="credits-partition-0"):
        bank.scan(["debits", "credits"], end=cut)
    with pytest.raises(InvalidArgumentError, match="read_uncommitted, and the read is read_committed"):
        bank.scan("debits", COMMITTED, end=bank.cut("debits", UNCOMMITTED))
    bank.scan("debits", UNCOMMITTED, end=cut)
