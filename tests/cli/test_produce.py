from __future__ import annotations

import json
import re
import signal
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_source
from tests.log.reading import eventually
from tests.selection import mostly_long
from txn_source.client.writing.linger import Linger

TYPED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", tz="UTC"))])


def values(log: txn_source.Log, level: str = "read_committed") -> list[bytes]:
    return [v for batch in log.scan("orders", level, ["value"]) for v in batch.column(0).to_pylist()]


def test_each_line_is_a_message(txnlog: Any, log: txn_source.Log, tmp_path: Path) -> None:
    """Lines from standard input and from a file, with any ending, become values: read them back as bytes."""
    log.create_topic("orders")
    file = tmp_path / "lines"
    file.write_bytes(b"four\n\nsix")
    first = txnlog("produce", "orders", input=b"one\r\ntwo \xff\nthree\n")
    second = txnlog("produce", "orders", file)
    third = txnlog("produce", "orders", "-", input=b"seven\n")
    assert [r.exit_code for r in (first, second, third)] == [0, 0, 0]
    assert values(log) == [b"one", b"two \xff", b"three", b"four", b"", b"six", b"seven"]
    assert re.fullmatch(r"3 messages in \d+\.\d s, [\d,]+ messages/s\.\n", first.stdout)


def test_transactions_of_so_many_lines_are_committed(txnlog: Any, log: txn_source.Log) -> None:
    """Seven lines by threes are three transactions, the last one short: count messages of each."""
    log.create_topic("orders")
    result = txnlog("produce", "orders", "--txn-size", "3", "--json", input="\n".join("abcdefg"))
    summary = json.loads(result.stdout)
    assert summary.keys() == {"messages", "transactions", "seconds", "messages_per_second"}
    assert (summary["messages"], summary["transactions"]) == (7, 3)
    sizes = [[p.messages for p in txn.partitions] for txn in log.transactions("committed")]
    assert sizes == [[1], [3], [3]]
    assert values(log) == [bytes([c]) for c in b"abcdefg"]


def test_no_lines_make_no_transaction(txnlog: Any, log: txn_source.Log) -> None:
    """An empty input leaves nothing behind: produce it with transactions and list all of them."""
    log.create_topic("orders")
    assert txnlog("produce", "orders", "--txn-size", "3", input=b"").stdout.startswith("0 messages in ")
    assert log.transactions(None) == []


def test_key_separator_splits_at_the_first_one(txnlog: Any, log: txn_source.Log) -> None:
    """The key ends where the separator first stands, and equal keys share a partition: read keys and partitions."""
    log.create_topic("orders", partitions=4)
    txnlog("produce", "orders", "--key-separator", "::", input="a::1::x\nb::2\na::3\n")
    rows = log.scan("orders", columns=["key", "value", "__partition"]).read_all().to_pylist()
    found = {(row["key"], row["value"]) for row in rows}
    assert found == {(b"a", b"1::x"), (b"b", b"2"), (b"a", b"3")}
    assert len({row["__partition"] for row in rows if row["key"] == b"a"}) == 1
    refused = txnlog("produce", "orders", "--key-separator", "::", input="a::1\nb2\n")
    assert refused.exit_code == 1
    assert "Line 2: b'b2' has no key" in refused.stderr


def test_typed_topic_takes_json_objects(txnlog: Any, log: txn_source.Log) -> None:
    """A line's members are the columns, in any order, missing ones null: produce two lines and read rows."""
    log.create_topic("orders", schema=TYPED)
    lines = '{"at": "2026-01-31T12:00:00Z", "id": 1}\n{"id": 2}\n'
    assert txnlog("produce", "orders", input=lines).exit_code == 0
    rows = log.scan("orders", columns=["id", "at"]).read_all().to_pylist()
    assert [(row["id"], row["at"] and row["at"].isoformat()) for row in rows] == [
        (1, "2026-01-31T12:00:00+00:00"),
        (2, None),
    ]


def test_times_are_taken_in_any_unit(txnlog: Any, log: txn_source.Log) -> None:
    """Produce a day and times of several units, and what a unit can't hold: it is refused, not cut off."""
    units = {unit: pa.timestamp(unit, tz="UTC") for unit in ("s", "ms", "us", "ns")}
    log.create_topic("times", schema=pa.schema([("day", pa.date32()), *units.items()]))
    moments = ", ".join(f'"{unit}": "2026-01-31T12:00:00Z"' for unit in units)
    assert txnlog("produce", "times", input=f'{{"day": "2026-01-31", {moments}}}\n').exit_code == 0
    [row] = log.scan("times", columns=["day", *units]).read_all().to_pylist()
    assert row.pop("day") == date(2026, 1, 31)
    assert {moment.isoformat() for moment in row.values()} == {"2026-01-31T12:00:00+00:00"}
    result = txnlog("produce", "times", input='{"s": "2026-01-31T12:00:00.5Z"}\n')
    assert result.exit_code == 1
    assert "Column 's' doesn't fit" in result.stderr


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("nonsense", "Line 4: b'nonsense' is not a JSON object"),
        ("[1]", "Line 4: b'[1]' is not a JSON object (it is a list)"),
        ('{"id": 1.5}', "Line 4: Column 'id' doesn't fit: expected int64, came 1.5."),
        ('{"id": 1, "at": "noon"}', "Line 4: Column 'at' doesn't fit: expected timestamp[us, tz=UTC], came \"noon\"."),
        ('{"at": null}', "Line 4: Column 'id' doesn't fit: expected int64 and no null, came none."),
        ('{"id": 1, "x": 1}', "Line 4: The message has a column 'x', which the topic doesn't have."),
    ],
)
def test_bad_line_aborts_its_transaction_and_keeps_those_before(
    line: str, error: str, txnlog: Any, log: txn_source.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names line and column, and one knows where to go on: put a bad line into the second transaction."""
    monkeypatch.setattr(Linger, "start", lambda *_: None)  # lines come at once, and none is written before a commit
    log.create_topic("orders", schema=TYPED)
    lines = "".join(f'{{"id": {number}}}\n' for number in range(3))
    result = txnlog("produce", "orders", "--txn-size", "2", input=f"{lines}{line}\n")
    assert (result.exit_code, result.stdout) == (1, "")
    note, refusal = result.stderr.splitlines()
    assert note == "Stored before this: 2 messages in 1 transaction."
    assert refusal.startswith(f"[TXNLOG_SCHEMA_MISMATCH] {error}")
    assert log.scan("orders", columns=["id"]).read_all()["id"].to_pylist() == [0, 1]
    assert log.scan("orders", isolation_level="read_uncommitted").read_all().num_rows == 2
    assert [txn.state.value for txn in log.transactions(None)] == ["committed"]  # nobody heard of the other one


def test_bad_line_keeps_the_plain_messages_before_it(txnlog: Any, log: txn_source.Log) -> None:
    """Without transactions each line stands for itself: the two before a bad one are stored, and counted."""
    log.create_topic("orders", schema=TYPED)
    result = txnlog("produce", "orders", input='{"id": 1}\n{"id": 2}\n{}\n')
    assert result.stderr.splitlines()[0] == "Stored before this: 2 messages."
    assert log.scan("orders", columns=["id"]).read_all()["id"].to_pylist() == [1, 2]


def test_missing_topic_and_file_are_told_apart(txnlog: Any, log: txn_source.Log, tmp_path: Path) -> None:
    """The log refuses the topic, the usage is wrong for the file: name one missing of each."""
    result = txnlog("produce", "orders", input=b"a")
    assert (result.exit_code, result.stderr[:24]) == (1, "[TXNLOG_TOPIC_NOT_FOUND]")
    log.create_topic("orders")
    for path in (tmp_path, tmp_path / "missing"):
        assert txnlog("produce", "orders", path).exit_code == 2


def test_transactional_id_takes_over_from_the_older_producer(txnlog: Any, log: txn_source.Log) -> None:
    """The older one is fenced and its open transaction aborted: open one by the API, then produce with its id."""
    log.create_topic("orders")
    with log.begin_transaction() as txn, log.producer("orders", transactional_id="loader") as older:
        older.send("old", txn=txn)
        older.flush()
        assert txnlog("produce", "orders", "--transactional-id", "loader", input="new\n").exit_code == 0
        assert log.transaction(txn.id).state.value == "aborted"
        with pytest.raises(txn_source.ProducerFencedError):
            txn.commit()
        txn.abort()
    assert values(log) == [b"new"]


@pytest.mark.parametrize("by", mostly_long([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], signal.SIGTERM))
def test_interrupt_aborts_the_transaction_at_hand(
    spawn: Any, log: txn_source.Log, root: Path, by: signal.Signals
) -> None:
    """Ctrl-C, and being told to end, leave whole transactions only: send a third line of a transaction of two, wait for
    it, interrupt."""
    log.create_topic("orders")
    process = spawn("produce", "orders", "--root", root, "--txn-size", "2")
    process.stdin.write(b"a\nb\nc\n")
    process.stdin.flush()
    eventually(lambda: values(log, "read_uncommitted") == [b"a", b"b", b"c"])
    process.send_signal(by)
    _, errors = process.communicate()
    assert process.returncode == 128 + by
    assert errors == b"Stored before this: 2 messages in 1 transaction.\n"
    assert values(log) == [b"a", b"b"]
    assert log.transactions("open") == []


@pytest.mark.parametrize(
    ("committed", "told", "stored"), [(True, "2 messages in 1 transaction", [b"a", b"b"]), (False, "0 messages", [])]
)
def test_interrupt_beside_a_commit_tells_what_counts(
    committed: bool, told: str, stored: list[bytes], txnlog: Any, log: txn_source.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupt just after the first commit, and instead of it: the output names exactly what is stored."""
    log.create_topic("orders")
    commit = txn_source.Transaction.commit

    def interrupted(txn: txn_source.Transaction) -> None:
        if committed:
            commit(txn)
        raise KeyboardInterrupt

    monkeypatch.setattr(txn_source.Transaction, "commit", interrupted)
    result = txnlog("produce", "orders", "--txn-size", "2", input="a\nb\nc\n")
    assert result.exit_code == 130
    assert result.stderr == f"Stored before this: {told}.\n"
    assert values(log) == stored
