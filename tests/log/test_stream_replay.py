"""A batch that is read again gives the same rows whatever happened to our own log since.

Offsets go through their JSON text, and a batch is read again by a stream, and mostly a connection, of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.log.reading import COMMITTED, UNCOMMITTED, send_each
from tests.log.sites import Site
from tests.log.streaming import Follower, numbered, stream_of, transfer
from tests.selection import mostly_long
from txn_source import DataLossError, Log
from txn_source.reading.limits import StreamLimits


@pytest.mark.parametrize("level", mostly_long([COMMITTED, UNCOMMITTED], COMMITTED))
@pytest.mark.kinds("remote")
def test_batches_are_the_same_whenever_they_are_read_again(site: Site, level: str) -> None:
    """Read small batches while transactions are open; end these, append, roll, offload, delete the hot copies and
    restart: after each step every batch is read again, with each transaction's status as it was at first."""
    log = site.connect()
    log.create_topic("t", partitions=2, ledger_max_entries=6)
    producer = log.producer("t")
    query = Follower(log, stream_of(log, level=level, limits=StreamLimits(max_messages=4)))
    later = [log.begin_transaction(600), log.begin_transaction(600)]
    for number in range(5):
        transfer(log, producer, f"committed {number}")
        send_each(producer, [f"plain {number}"], partition=number % 2)
        aborted = log.begin_transaction()
        send_each(producer, [f"aborted {number}"], partition=number % 2, txn=aborted)
        aborted.abort()
        if number == 2:
            assert list(query.drain())
            for partition, transaction in enumerate(later):
                send_each(producer, ["later"], partition=partition, txn=transaction)
    list(query.drain())
    statuses = {row["__txn_status"] for _, _, rows in query.batches for row in rows}
    assert statuses == {None, "committed"} | ({"aborted", "open"} if level == UNCOMMITTED else set())

    def append() -> None:
        later[0].commit()
        later[1].abort()
        send_each(producer, numbered(5), partition=0)
        transfer(log, producer, "new")
        assert log.begin_transaction().id is not None

    steps: list[Callable[[], object]] = [
        append,
        lambda: log.roll_ledger("t"),
        lambda: log.offload("t"),
        lambda: log.delete_hot("t"),
    ]
    for step in steps:
        step()
        query.replay(stream_of(log, level=level))
    producer.close()
    if site.kind == "remote":
        site.stop_server()
        site.start_server()
    query.log = site.connect()
    query.replay(stream_of(query.log, level=level))
    query.stream = stream_of(query.log, level=level)
    seen = len(query.batches)
    assert {row["value"] for rows in query.drain() for row in rows} >= {b"m0", b"new"}
    assert len(query.batches) > seen


# What is lost


# Other topics


def test_log_that_is_put_back_under_a_stream_is_data_loss(log: Log) -> None:
    """Read a batch, and go on with the same stream from an offset that the log doesn't have any more."""
    log.create_topic("orders")
    with log.producer("orders") as producer:
        send_each(producer, numbered(2))
    stream = stream_of(log, "orders")
    end = stream.latest(stream.initial())
    assert stream.latest(end) is end
    beyond = replace(end, positions={name: at.plus(3) for name, at in end.positions.items()})
    with pytest.raises(DataLossError, match=r"orders-partition-0 .* 1:5 lies outside"):
        stream.latest(beyond)
