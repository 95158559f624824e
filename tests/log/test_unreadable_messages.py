"""Stored messages that Python can't have: each fails alone, with its id, and can be stepped over.

The service and producers refuse to store such messages, so they are made on their way from the segment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.log.consuming import WAIT_S, numbered, receive, subscribe
from tests.log.reading import BY_HAND
from tests.log.sites import Site
from txn_source import Log, MessageId, MessageUnreadableError, SegmentUnreadableError
from txn_source.model.topic_name import TopicName
from txn_source.storage.segment import SegmentReader

TEXTS = pa.schema([("text", pa.string()), ("number", pa.int64())])


def stored_as(monkeypatch: pytest.MonkeyPatch, column: str, change: Callable[[pa.Array], pa.Array]) -> None:
    """Have a column of each batch changed as it is read."""
    read = SegmentReader.read

    def changed(self: SegmentReader, *given: Any) -> list[pa.RecordBatch]:
        return [b.set_column(b.schema.names.index(column), column, change(b[column])) for b in read(self, *given)]

    monkeypatch.setattr(SegmentReader, "read", changed)


def invalid_text(at: int) -> Callable[[pa.Array], pa.Array]:
    """Make one row's text no UTF-8."""

    def change(column: pa.Array) -> pa.Array:
        values = [b"\xff\xfe" if row == at else value.encode() for row, value in enumerate(column.to_pylist())]
        return pa.array(values, pa.binary()).view(pa.string())

    return change


def wild_offset(at: int) -> Callable[[pa.Array], pa.Array]:
    """Make one row end far beyond the data."""

    def change(column: pa.Array) -> pa.Array:
        values = column.to_pylist()
        offsets = np.cumsum([0, *(len(v) for v in values)]).astype(np.int32)
        offsets[at + 1] = 1 << 30
        return pa.Array.from_buffers(
            pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
        )

    return change


def write(log: Log, schema: pa.Schema | None = None, **options: Any) -> list[MessageId]:
    """Write ten messages in one entry."""
    log.create_topic("t", schema=schema)
    with log.producer("t", batching=BY_HAND) as producer:
        for n in range(10):
            producer.send({"text": f"m{n}", "number": n} if schema else b"m%d" % n, **options)
        return producer.flush()


def test_scan_shows_no_foreign_memory(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a row end beyond the data, under a right checksum: a scan that has its column is refused."""
    write(log)
    stored_as(monkeypatch, "value", wild_offset(5))
    with pytest.raises(
        SegmentUnreadableError, match=r"up to 1:1 of t-partition-0, can't be shown: .*written like that"
    ):
        log.scan("t").read_all()
    assert log.scan("t", columns=["__batch_index"]).read_all().num_rows == 10


def receive_all(consumer: Any, count: int = 10) -> tuple[list[Any], list[MessageUnreadableError]]:
    """Receive so many, one by one, those that can't be shown too."""
    found, errors = [], []
    for _ in range(count):
        try:
            found.append(receive(consumer).value)
        except MessageUnreadableError as error:
            errors.append(error)
    return found, errors


def test_text_that_is_not_utf8_fails_alone(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Receive: the others come; it can be acknowledged, in a transaction too, and then doesn't come again."""
    ids = write(log, TEXTS)
    stored_as(monkeypatch, "text", invalid_text(4))
    with subscribe(log) as consumer:
        found, [error] = receive_all(consumer)
        assert [value["number"] for value in found] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        assert error.message_id == ids[4]
        assert str(ids[4]) in str(error)
        assert error.message.publish_time.year > 2000
        with pytest.raises(MessageUnreadableError):
            _ = error.message.value
    with subscribe(log) as consumer:
        [again] = receive_all(consumer)[1]
        with log.begin_transaction() as transaction:
            transaction.acknowledge(again.message)
    with subscribe(log) as consumer:
        found, errors = receive_all(consumer, 9)
        assert (len(found), errors) == (9, [])


def test_iteration_steps_over_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterate over a reader: the error is raised in its place, and the same iterator goes on."""
    ids = write(log, TEXTS)
    stored_as(monkeypatch, "text", invalid_text(0))
    with log.reader("t") as reader:
        messages = iter(reader)
        with pytest.raises(MessageUnreadableError) as error:
            next(messages)
        assert error.value.message_id == ids[0]
        assert [next(messages).value["number"] for _ in range(9)] == list(range(1, 10))


@pytest.mark.parametrize("at", [0, 5, 9])
def test_damaged_buffers_show_no_foreign_memory(log: Log, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Let a row end beyond the data: it fails, and its neighbour, whose start that is; the others come."""
    ids = write(log)
    stored_as(monkeypatch, "value", wild_offset(at))
    if at == 9:  # found as soon as the entry is read: its data is shorter than it says
        monkeypatch.undo()
        stored_as(monkeypatch, "value", wild_offset(8))
    bad = [min(at, 8), min(at, 8) + 1]
    with log.reader("t") as reader:
        found, errors = receive_all(reader._consumer)
        assert found == [b"m%d" % n for n in range(10) if n not in bad]
        assert [error.message_id for error in errors] == [ids[n] for n in bad]
    consumer = subscribe(log)
    batches, failed = [], []
    while sum(map(len, batches)) + len(failed) < 10:
        try:
            batch = consumer.receive_batch(WAIT_S)
        except MessageUnreadableError as error:
            failed.append(error.message_id)
            consumer.acknowledge(error.message)
        else:
            assert batch is not None
            batches.append(batch)
            batch.data.validate(full=True)
            consumer.acknowledge(batch)
    assert [value for batch in batches for value in batch.values] == found
    assert failed == [ids[n] for n in bad]
    consumer.flush()
    assert log.subscription("t", "s").partitions[0].backlog == 0


def no_text(count: int) -> Callable[[pa.Array], pa.Array]:
    """Make the properties of the first rows no UTF-8."""

    def change(column: pa.Array) -> pa.Array:
        items = pa.array([b"\xff"] * count + [b"b"] * (10 - count)).view(pa.string())
        return pa.MapArray.from_arrays(pa.array(range(11), pa.int32()), pa.array(["a"] * 10), items)

    return change


YEAR_10000 = pa.array([253402300800000000] + [1] * 9, pa.timestamp("us", "UTC"))


@pytest.mark.parametrize(
    ("column", "change"), [("event_time", lambda _: YEAR_10000), ("properties", no_text(1))], ids=["time", "properties"]
)
def test_part_that_python_can_not_have_fails_when_it_is_asked_for(
    log: Log, monkeypatch: pytest.MonkeyPatch, column: str, change: Callable[[pa.Array], pa.Array]
) -> None:
    """Store an event time of the year 10000, or properties that aren't UTF-8: the message comes, and only that can't
    be shown."""
    ids = write(log, event_time=1, properties={"a": "b"})
    stored_as(monkeypatch, f"__{column}", change)
    consumer = subscribe(log)
    first, second = receive(consumer), receive(consumer)
    assert first.value == b"m0"
    with pytest.raises(MessageUnreadableError, match=f"__{column}") as error:
        getattr(first, column)
    assert error.value.message_id == ids[0]
    assert getattr(second, column)


def test_message_that_can_not_be_buried_is_received(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a message with properties that can't be shown up to the limit: it is received instead of buried."""
    write(log, properties={"a": "b"})
    stored_as(monkeypatch, "__properties", no_text(10))
    consumer = subscribe(log, max_redeliveries=0, negative_acknowledge_delay=0.0)
    consumer.negative_acknowledge(receive(consumer))
    while (message := receive(consumer)).epoch == 0 or message.value != b"m0":
        pass
    assert message.redelivery_count >= 1


@pytest.mark.parametrize("how", ["exclusive", "failover", "shared", "reader", "scan"])
def test_what_lies_before_damage_is_handed_out(site: Site, how: str) -> None:
    """Damage entry 7 of twenty: the seven before it come first, then the error names it, with queues as they are."""
    log = site.connect()
    numbered(log, 20)
    [segment] = log.metadata.list_hot_segments(TopicName.parse("t"))
    entry = log.metadata.list_segment_entries(TopicName.parse("t"), segment.path).to_pylist()[7]
    path = Path(site.root) / segment.path
    data = bytearray(path.read_bytes())
    data[entry["offset"] + entry["length"] - 10] ^= 0xFF
    path.write_bytes(data)
    found: list[Any] = []
    with pytest.raises(SegmentUnreadableError, match="entry 1:7 has checksum"):  # noqa: PT012
        if how == "scan":
            for batch in log.scan("t"):
                found += batch.column("value").to_pylist()
        elif how == "reader":
            reader = log.reader("t")
            while (message := reader.read_next(WAIT_S)) is not None:
                found.append(message.value)
        else:
            consumer = subscribe(log, type=how)
            while (message := consumer.receive(WAIT_S)) is not None:
                found.append(message.value)
    assert found == [b"%d" % number for number in range(7)]
