"""A count is what a scan has, wherever the messages lie, and reads none of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.log import tiers
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, send_each
from tests.log.sites import ManualClock, Site
from txn_source import DataLossError, InvalidArgumentError, Log, OutOfRangeError, Position
from txn_source.model.copies import Tier

LEVELS = (COMMITTED, UNCOMMITTED)


def scanned(log: Log, topic: str | Sequence[str], level: str, **options: Any) -> int:
    return int(log.scan(topic, level, ["__entry_id"], **options).read_all().num_rows)


Places = dict[int, list[Position]]


def write(log: Log, clock: ManualClock, source: random.Random, places: Places, steps: int = 60) -> None:
    """Let plain messages and transactions of several partitions overlap, in ledgers that are closed now and then."""
    open_ = [log.begin_transaction(800) for _ in range(3)]
    with log.producer("orders", batching=BY_HAND) as producer:
        for _ in range(steps):
            partition, number = source.randrange(3), source.randrange(6)
            txn = open_[number] if number < len(open_) else None
            for _ in range(source.randint(1, 4)):
                producer.send(b"x", txn=txn, partition=partition)
            places[partition].append(producer.flush()[0].position)
            clock.advance(1)
            if txn is not None and source.random() < 0.15:
                txn.commit() if source.random() < 0.4 else txn.abort()
                open_[number] = log.begin_transaction(800)
            if source.random() < 0.1:
                log.roll_ledger("orders", source.choice([None, 0, 1, 2]))
        for txn in open_[1:]:
            txn.abort()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 40))])
def test_count_is_what_a_scan_has(tmp_path: Path, clock: ManualClock, seed: int) -> None:
    """Count random ranges, while ledgers are offloaded, lose hot copies and rows, and are trimmed."""
    source = random.Random(seed)
    with Site("embedded", tmp_path / "log", clock) as site, site.connect() as log:
        log.create_topic("orders", partitions=3)
        places: Places = {p.partition: [p.log_start] for p in log.stats("orders").partitions}
        write(log, clock, source, places)
        started = clock.now_us
        for state in ("hot", "tiered", "purged", "more", "trimmed"):
            if state == "tiered":
                log.offload("orders")
                log.delete_hot("orders")
            elif state == "purged":
                clock.advance(3601)
                log.delete_hot("orders")
            elif state == "more":
                write(log, clock, source, places, 20)
            elif state == "trimmed":
                log.trim("orders", before={"orders": {p: source.choice(at) for p, at in places.items()}})
                for p in log.stats("orders").partitions:
                    there = [at for at in places[p.partition] if at >= p.log_start]
                    places[p.partition] = [p.log_start, *there]
            for level in LEVELS:
                assert log.count("orders", level) == scanned(log, "orders", level)
                for _ in range(6):
                    options = _range(places, source, started, level)
                    try:
                        expected: int | str = scanned(log, "orders", level, **options)
                    except OutOfRangeError as error:  # a time of which nothing is left
                        expected = str(error)
                    try:
                        counted: int | str = log.count("orders", level, **options)
                    except OutOfRangeError as error:
                        counted = str(error)
                    assert counted == expected, options


def _range(places: Places, source: random.Random, started: int, level: str) -> dict[str, Any]:
    options: dict[str, Any] = {"consistent_cut": source.random() < 0.5}
    for side in ("start", "end"):
        match source.randrange(4):
            case 0:
                options[side] = {"orders": {p: source.choice(at) for p, at in places.items() if source.random() < 0.7}}
            case 1:
                options[side] = _moment(source, started)
            case 2 if side == "end" and level == COMMITTED:
                options["as_of"] = _moment(source, started)
    return options


def _moment(source: random.Random, started_us: int) -> datetime:
    return datetime.fromtimestamp((started_us - source.randrange(80_000_000)) / 1e6, UTC)


def test_count_takes_what_scan_takes(log: Log) -> None:
    """Count several topics, one partition, up to a cut, and with ranges that can't be."""
    for topic in ("orders", "bills"):
        log.create_topic(topic, partitions=2)
        with log.producer(topic) as producer:
            for number in range(10):
                producer.send(b"x", partition=number % 2)
    cut = log.cut(["orders", "bills"])
    with log.producer("orders") as producer:
        producer.send(b"later", partition=0)
        txn = log.begin_transaction()
        producer.send(b"open", partition=0, txn=txn)
        producer.flush()
    assert log.count(["orders", "bills"]) == 21
    assert log.count(["orders", "bills"], end=cut) == 20
    assert log.count("orders-partition-1") == 5
    assert log.count("orders", UNCOMMITTED) == 12
    assert log.count("orders", start="latest") == 0
    with pytest.raises(InvalidArgumentError, match="read_committed"):
        log.count("orders", UNCOMMITTED, as_of=tiers.NOON)
    txn.abort()
    assert (log.count("orders"), log.count("orders", UNCOMMITTED)) == (11, 12)


def test_count_reads_no_bytes(tmp_path: Path, clock: ManualClock) -> None:
    """Take away what the messages are in: only the part of a ledger that has left the metadata needs its object."""
    with Site("embedded", tmp_path / "log", clock) as site, site.connect() as log:
        log.create_topic("orders")
        tiers.write_ledgers(log)
        whole = {level: log.count("orders", level) for level in LEVELS}
        inside = Position(tiers.closed_ledgers(log, "orders")[1], 3)
        parts = {level: log.count("orders", level, start=inside) for level in LEVELS}
        assert parts == {level: scanned(log, "orders", level, start=inside) for level in LEVELS}
        log.offload("orders")
        log.delete_hot("orders")
        clock.advance(3601)
        log.delete_hot("orders")
        assert {level: log.count("orders", level, start=inside) for level in LEVELS} == parts
        tiers.remove(tiers.copy_of(site.root, inside.ledger_id, Tier.TIERED))
        for segment in tiers.segments(site.root):
            tiers.remove(segment)
        with site.open() as fresh:
            assert {level: fresh.count("orders", level) for level in LEVELS} == whole


def test_count_of_what_was_trimmed_is_data_loss(log: Log) -> None:
    """Plan a count at a position whose ledger is trimmed before the range is counted."""
    log.create_topic("orders", ledger_max_entries=2)
    with log.producer("orders") as producer:
        ids = send_each(producer, [b"x"] * 7)
    stub, original = log.metadata, log.metadata.count_range

    def trim_first(*args: Any) -> Any:
        log.trim("orders", before=ids[4].position)
        return original(*args)

    stub.count_range = trim_first  # type: ignore[method-assign]
    with pytest.raises(DataLossError, match="it was trimmed while the read was planned"):
        log.count("orders")
    assert log.count("orders") == 3
