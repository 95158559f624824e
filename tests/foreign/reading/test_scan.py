"""Logs that others wrote, opened by ``connect``: what they show, how they are read, and what is refused."""

from __future__ import annotations

import inspect
import logging
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_source
from tests.foreign.kafka import samples as kafka
from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.partition_writer import PartitionWriter
from tests.foreign.pulsar import sample_cases as pulsar
from tests.selection import mostly_long
from txn_source.foreign.read_only_log import WRITES, ReadOnlyLog
from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import (
    InvalidArgumentError,
    LogNotFoundError,
    SchemaMismatchError,
    SegmentUnreadableError,
    TopicNotFoundError,
)
from txn_source.model.isolation import IsolationLevel


def of_kafka(case: Path) -> Any:
    """Open a case, with its remote tier if it has one."""
    return txn_source.connect(f"kafka:{','.join(folder.path for folder in kafka.folders(case))}")


@pytest.fixture(scope="module")
def txn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kafka.unpack("txn", tmp_path_factory.mktemp("kafka"))


@pytest.fixture
def log(txn: Path) -> Any:
    return of_kafka(txn)


@pytest.mark.parametrize("name", mostly_long(["txn", "tiered"], "txn"))
def test_topics_of_kafka_read_as_its_consumer_does(name: str, tmp_path: Path) -> None:
    """Scan each topic of a sample at both levels."""
    case = kafka.unpack(name, tmp_path)
    log, told = of_kafka(case), kafka.partitions(case)
    assert set(log.topics()) == {of.topic for of in told}
    for topic, level in ((topic, level) for topic in log.topics() for level in IsolationLevel):
        of_topic = [of for of in sorted(told) if of.topic == topic]
        expected = [row for of in of_topic for row in kafka.expected(case, of, level.value)]
        columns = ["timestamp" if column == "__timestamp_ms" else column for column in kafka.COLUMNS]
        rows = log.scan(topic, level, columns, consistent_cut=False).read_all()
        milliseconds = rows["timestamp"].cast("int64").to_numpy() // 1000
        rows = rows.set_column(1, "__timestamp_ms", pa.array(milliseconds))
        assert kafka.rows_of(iter(rows.to_batches())) == expected, topic
        assert log.count(topic, level, consistent_cut=False) == len(expected)
        assert [(p.log_start, p.high_watermark, p.last_stable) for p in log.stats(topic).partitions] == [
            tuple(told[of][bound] for bound in ("log_start_offset", "high_watermark", "last_stable_offset"))
            for of in of_topic
        ]


@pytest.mark.parametrize("name", mostly_long(["fs-txn", "txn-mix"], "txn-mix"))
def test_topics_of_pulsar_read_as_its_partitions_do(name: str, tmp_path: Path) -> None:
    """Scan each topic of a sample at both levels: the rows of its partitions, with topic and number."""
    case = pulsar.unpack(name, tmp_path)
    log = txn_source.connect(f"pulsar:{case.folder / 'objects'}")
    for partition in pulsar.partitions(case.log()):
        for level in IsolationLevel:
            columns = ["value", "__ledger_id", "__entry_id", "__batch_index", "__txn_status"]
            expected = pulsar.rows_of(partition, pulsar.whole(partition, level), level, columns)
            found = log.scan(partition.topic, level, [*columns, "__topic", "__partition"]).read_all()
            assert found.select(columns).to_pylist() == expected
            assert set(found["__topic"].to_pylist()) == ({partition.name.topic} if expected else set())


def test_values_that_cannot_be_are_refused(log: Any, tmp_path: Path) -> None:
    """Ask for what isn't there, and for what can't be."""
    refused: list[tuple[type[Exception], Any]] = [
        (TopicNotFoundError, lambda: log.scan("nope")),
        (TopicNotFoundError, lambda: log.stats("nope")),
        (SchemaMismatchError, lambda: log.scan("txn", columns=["nope"])),
        (SchemaMismatchError, lambda: log.scan("txn", columns=["key", "key"])),
        (SchemaMismatchError, lambda: log.scan("txn", columns=[])),
        (InvalidArgumentError, lambda: log.scan("txn", "read_everything")),
        (InvalidArgumentError, lambda: log.scan("txn", start={"txn": {"0": "x"}})),
        (InvalidArgumentError, lambda: log.scan("txn", start='{"txn": {"0": 1, "0": 2}}')),
        (InvalidArgumentError, lambda: log.transactions("undecided")),
        (LogNotFoundError, lambda: txn_source.connect(f"kafka:{tmp_path}")),
        (LogNotFoundError, lambda: txn_source.connect(f"pulsar:{tmp_path}/nothing")),
        (InvalidArgumentError, lambda: txn_source.connect("kafka:")),
        (InvalidArgumentError, lambda: txn_source.connect("kafka:s3://bucket/a?color=red")),
        (InvalidArgumentError, lambda: txn_source.connect("kafka:memory://a")),
        (InvalidArgumentError, lambda: txn_source.connect(tmp_path / "own", options={"a": "b"})),
    ]
    for error, call in refused:
        with pytest.raises(error):
            call()


def _offsets(log: Any, **ends: Any) -> list[int]:
    return list(log.scan("txn", columns=["offset"], **ends).read_all()["offset"].to_pylist())


def test_nothing_writes(log: Any) -> None:
    """Every method of a log of our own is there, and does what it does or is refused in one sentence."""
    own = {name for name, _ in inspect.getmembers(txn_source.Log, callable) if not name.startswith("_")}
    does = {name for name in dir(ReadOnlyLog) if not name.startswith("_")}
    assert own - does <= set(WRITES)
    assert not set(WRITES) & does
    for name in WRITES:
        with pytest.raises(InvalidArgumentError, match=r"only read: there is no \w+\(\)"):
            getattr(log, name)("txn", x=1)
    with pytest.raises(AttributeError):
        log.nonsense()


def test_travels_and_tells_no_secret(log: Any) -> None:
    """Pickle a log; show one with parameters."""
    again = pickle.loads(pickle.dumps(log))
    assert again.target == log.target
    assert again.topics() == log.topics()
    target = ForeignTarget.parse("kafka:s3://me:secret@bucket/prefix?endpoint_override=http://user:secret@host,/a,b")
    assert str(target) == "kafka:s3://bucket/prefix,/a,b"
    assert target.places[1] == "/a,b"


def test_open_transactions_are_told(log: Any) -> None:
    """The sample has one transaction that is undecided on two topics; it holds readers back."""
    found = log.transactions()
    assert [(txn.topic, txn.partition, txn.first) for txn in found] == [("txn", 0, 175), ("txn3", 1, 96)]
    assert len({txn.producer_id for txn in found}) == 1
    decided = log.transactions(None, "txn", oldest_first=True)
    assert {txn.state.value for txn in decided} == {"open", "committed", "aborted"}
    assert [txn.first for txn in decided] == sorted(txn.first for txn in decided)
    assert {txn.state.value for txn in log.transactions("aborted", "txn")} == {"aborted"}


def test_reader_gives_messages_one_by_one(log: Any) -> None:
    """Read a topic message by message, and again from elsewhere."""
    with log.reader("txn") as reader:
        offsets = [reader.read_next(0).message_id for _ in range(78)]
        assert offsets == _offsets(log)
        assert not reader.has_message_available()
        assert reader.read_next(0) is None
        reader.seek(165)
        message = reader.read_next(0)
        assert (message.topic, message.partition, message.message_id) == ("txn", 0, 166)
        assert message.value == b"fenced-new-committed value 0"
        assert reader.has_message_available()
    with pytest.raises(InvalidArgumentError, match="closed"):
        reader.read_next(0)
    with pytest.raises(TopicNotFoundError):
        log.reader("nope")


def test_new_records_and_partitions_are_followed(tmp_path: Path) -> None:
    """A place in a topic goes on with what was added, and takes a new partition from its start."""
    case = kafka.unpack("plain", tmp_path)
    log = of_kafka(case)
    place = log.follow("plain", IsolationLevel.READ_COMMITTED, ["partition", "offset"])
    assert sum(batch.num_rows for batch in place.read()) == 334
    assert list(place.read()) == []
    other = PartitionWriter(tmp_path / "other", topic="plain", partition=7)
    other.send([Record(None, value, 1_750_000_000_000) for value in (b"a", b"b")])
    other.close()
    other.folder.rename(case / "log" / "plain-7")
    assert [row for batch in place.read() for row in batch.to_pylist()] == [
        {"partition": 7, "offset": 0},
        {"partition": 7, "offset": 1},
    ]


def test_damage_is_told_or_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Flip a byte: the read fails with the place; with ``fail_on_data_loss=False`` the rest is read, with a warning."""
    from txn_source.foreign.scan import scan
    from txn_source.reading.request import ReadRequest, Selection

    case = kafka.unpack("plain", tmp_path)
    path = next((case / "log" / "plain-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    log = of_kafka(case)
    with pytest.raises(SegmentUnreadableError, match="offset 0"):
        log.scan("plain").read_all()
    request = ReadRequest(fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING):
        rows = scan(log.target, Selection(("plain",)), request).read_all()
    assert rows.num_rows == 334 - 5
    assert any("left out" in record.message for record in caplog.records)
