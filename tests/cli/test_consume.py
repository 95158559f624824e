from __future__ import annotations

import json
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_source
from tests.log.reading import told_by


def send(log: txn_source.Log, *values: bytes | str, **options: Any) -> None:
    with log.producer("orders") as producer:
        for value in values:
            producer.send(value, **options)


@pytest.fixture
def undecided(log: txn_source.Log) -> txn_source.Log:
    """A topic with a committed, an aborted and an open transaction, and a plain message behind them."""
    log.create_topic("orders")
    with log.begin_transaction() as txn:
        send(log, "committed", txn=txn)
    aborted = log.begin_transaction()
    send(log, "aborted", txn=aborted)
    aborted.abort()
    send(log, "open", txn=log.begin_transaction(600))
    send(log, "behind")
    return log


def test_isolation_level_decides_what_is_printed(txnlog: Any, undecided: txn_source.Log) -> None:
    """The default is read_committed, which waits for the open transaction: print one topic at both levels."""
    assert txnlog("consume", "orders").stdout == "committed\n"
    everything = txnlog("consume", "orders", "--isolation-level", "read-uncommitted")
    assert everything.stdout == "committed\naborted\nopen\nbehind\n"


def test_json_tells_all_that_is_known(txnlog: Any, undecided: txn_source.Log) -> None:
    """A program can tell what it sees: read uncommitted messages as JSON lines and check ids, states and places."""
    result = txnlog("consume", "orders", "--isolation-level", "read_uncommitted", "--format", "json")
    messages = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(m["value"], m["txn_id"], m["txn_status"]) for m in messages] == [
        ("committed", "(0,0)", "committed"),
        ("aborted", "(0,1)", "aborted"),
        ("open", "(0,2)", "open"),
        ("behind", None, None),
    ]
    names = "message_id topic partition publish_time event_time properties producer_name sequence_id txn_id txn_status"
    assert list(messages[0]) == [*names.split(), "key", "value"]
    assert messages[0]["message_id"] == f"{undecided.stats('orders').partitions[0].log_start}:0"
    assert (messages[0]["topic"], messages[0]["partition"], messages[0]["key"]) == ("orders", 0, None)


def test_key_properties_and_times_are_printed(txnlog: Any, log: txn_source.Log) -> None:
    """Text shows keys if asked to, JSON everything: send one message that has all."""
    log.create_topic("orders")
    when = datetime(2026, 1, 31, 12, tzinfo=UTC)
    send(log, "v", key="k", properties={"a": "b"}, event_time=when)
    assert txnlog("consume", "orders", "--key-separator", "=").stdout == "k=v\n"
    message = json.loads(txnlog("consume", "orders", "--format", "json").stdout)
    assert (message["key"], message["properties"], message["event_time"]) == ("k", {"a": "b"}, when.isoformat())


def test_bytes_that_are_no_text_are_escaped(txnlog: Any, log: txn_source.Log) -> None:
    """Output stays UTF-8 whatever was stored: print text, a broken sequence and no value in both formats."""
    log.create_topic("orders")
    with log.producer("orders") as producer:
        for value in ("zürich".encode(), b"z\xfcrich", None):
            producer.send(value)
    assert txnlog("consume", "orders").stdout_bytes.decode() == "zürich\nz\\xfcrich\n\n"
    lines = txnlog("consume", "orders", "--format", "json").stdout_bytes.decode().splitlines()
    assert [json.loads(line)["value"] for line in lines] == ["zürich", {"base64": "evxyaWNo"}, None]


def test_typed_topic_is_printed_as_produce_takes_it(txnlog: Any, log: txn_source.Log) -> None:
    """Text of a typed topic goes back in unchanged: print it, produce that, and compare the rows."""
    schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(9, 2)), ("tags", pa.map_(pa.string(), pa.int32()))])
    log.create_topic("orders", schema=schema)
    lines = '{"id": 1, "price": "1.10", "tags": {"a": 1}}\n{"id": null, "price": null, "tags": null}\n'
    txnlog("produce", "orders", input=lines)
    assert txnlog("consume", "orders").stdout == lines
    txnlog("produce", "orders", input=lines)
    rows = log.scan("orders", columns=schema.names).read_all().to_pylist()
    assert rows[:2] == rows[2:]
    full = json.loads(txnlog("consume", "orders", "--format", "json", "--max-messages", "1").stdout)
    assert full["value"] == json.loads(lines.splitlines()[0])


def test_range_and_number_bound_what_is_printed(txnlog: Any, log: txn_source.Log) -> None:
    """Start is inclusive, end exclusive, by position, JSON or time: print parts of five entries of one message."""
    log.create_topic("orders")
    for value in "abcde":
        send(log, value)
    ledger = log.stats("orders").ledgers[0].ledger_id

    def printed(*options: str) -> str:
        result = txnlog("consume", "orders", *options)
        assert result.exit_code == 0
        return str(result.stdout.replace("\n", ""))

    assert printed("--max-messages", "2") == "ab"
    assert printed("--start", f"{ledger}:1", "--end", f"{ledger}:3") == "bc"
    assert printed("--start", json.dumps({"orders": {"0": f"{ledger}:3"}})) == "de"
    assert printed("--start", "latest") == ""
    assert printed("--start", "2000-01-01T00:00:00Z") == "abcde"
    assert printed("--end", "2000-01-01T00:00:00Z") == ""
    assert printed("--start", "9999999999999") == ""
    outside = txnlog("consume", "orders", "--start", f"{ledger + 9}:0")
    assert (outside.exit_code, outside.stderr[:22]) == (1, "[TXNLOG_OUT_OF_RANGE] ")


def test_one_partition_can_be_printed(txnlog: Any, log: txn_source.Log) -> None:
    """A partition has a name of its own: send to two and print one."""
    log.create_topic("orders", partitions=2)
    send(log, "zero", partition=0)
    send(log, "one", partition=1)
    assert txnlog("consume", "orders-partition-1").stdout == "one\n"
    assert txnlog("consume", "orders").stdout == "zero\none\n"


def test_end_and_follow_exclude_each_other(txnlog: Any, undecided: txn_source.Log) -> None:
    """Following has no end: give both and expect wrong usage."""
    assert txnlog("consume", "orders", "--follow", "--end", "latest").exit_code == 2


def test_follow_prints_what_arrives_until_interrupted(spawn: Any, log: txn_source.Log, root: Path) -> None:
    """Nothing twice and nothing left out, transactions when committed: write step by step and read the pipe."""
    log.create_topic("orders")
    send(log, "a")
    process = spawn("consume", "orders", "--follow", "--root", root)
    assert process.stdout.readline() == b"a\n"
    with log.begin_transaction() as txn:
        send(log, "b", txn=txn)
        send(log, "c")
        log.roll_ledger("orders")
    assert process.stdout.readline() + process.stdout.readline() == b"b\nc\n"
    send(log, "d")
    assert process.stdout.readline() == b"d\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate() == (b"", b"")
    assert process.returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("options", [[], pytest.param(["--follow"], marks=pytest.mark.long)], ids=["once", "follow"])
def test_reader_that_goes_away_is_no_error(options: list[str], spawn: Any, log: txn_source.Log, root: Path) -> None:
    """As in `txnlog consume ... | head -1`: read one of many lines, close the pipe, and look at status and errors."""
    log.create_topic("orders")
    send(log, *["x" * 100] * 10_000)
    process = spawn("consume", "orders", "--root", root, *options)
    assert process.stdout.readline() == b"x" * 100 + b"\n"
    process.stdout.close()
    assert process.wait() == 0
    assert process.stderr.read() == b""


def test_read_priority_decides_which_copy_is_tried_first(
    txnlog: Any, log: txn_source.Log, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The option is stronger than the topic's policy: lose the offloaded object, and see who misses it."""
    log.create_topic("orders")
    send(log, "a")
    log.roll_ledger("orders")
    log.offload("orders")
    [offloaded] = root.glob("tiered/**/*.parquet")
    offloaded.unlink()
    assert txnlog("consume", "orders", "--data-read-priority", "bookkeeper-first").stdout == "a\n"
    assert told_by("client.reading", caplog) == []
    log.set_data_read_priority("bookkeeper-first", "orders")
    assert txnlog("consume", "orders", "-drp", "tiered-first").stdout == "a\n"
    assert offloaded.name in caplog.text
