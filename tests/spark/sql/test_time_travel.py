"""TIMESTAMP AS OF and VERSION AS OF: a table as it was."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tests.spark.sql.conftest import Statements, in_long_runs


def append(bank: Statements, *ids: int) -> None:
    with bank.log.producer(bank.topic("t")) as producer:
        producer.send_batch(pa.table({"id": list(ids)}))


@pytest.fixture
def history(bank: Statements) -> tuple[Statements, str, str]:
    """A table of two writes, and the time and the position between them."""
    bank.log.create_topic(bank.topic("t"), schema=pa.schema([("id", pa.int64())]))
    append(bank, 1, 2)
    [(between,)] = bank.rows("SELECT CAST(current_timestamp() AS STRING)")
    [partition] = bank.log.stats(bank.topic("t")).partitions
    append(bank, 3)
    return bank, between, str(partition.log_end)


def test_table_is_read_as_it_was(history: tuple[Statements, str, str]) -> None:
    bank, time, position = history
    by_json = f'{{"{bank.topic("t")}": {{"0": "{position}"}}}}'
    for place in (f"TIMESTAMP AS OF '{time}'", f"FOR SYSTEM_TIME AS OF TIMESTAMP'{time}'"):
        assert bank.rows(f"SELECT id FROM {{ns}}.t {place}") == [(1,), (2,)], place
    for place in (f"VERSION AS OF '{position}'", f"VERSION AS OF '{by_json}'"):
        assert bank.rows(f"SELECT id FROM {{ns}}.t {place}") == [(1,), (2,)], place
    table = f"{bank.ns}.t"
    assert sorted(row.id for row in bank.spark.read.option("versionAsOf", position).table(table).collect()) == [1, 2]
    assert sorted(row.id for row in bank.spark.read.option("timestampAsOf", time).table(table).collect()) == [1, 2]
    assert bank.rows("SELECT id FROM {ns}.t") == [(1,), (2,), (3,)]


@pytest.mark.long
def test_two_times_of_one_table_are_two_reads(history: tuple[Statements, str, str]) -> None:
    bank, time, position = history
    union = f"SELECT id FROM {{ns}}.t VERSION AS OF '{position}' UNION ALL SELECT id FROM {{ns}}.t"
    assert bank.rows(union) == [(1,), (1,), (2,), (2,), (3,)]
    new = f"SELECT id FROM {{ns}}.t EXCEPT SELECT id FROM {{ns}}.t TIMESTAMP AS OF '{time}'"
    assert bank.rows(new) == [(3,)]


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (
            "TIMESTAMP AS OF '2020-01-01'",
            "[TXNLOG_OUT_OF_RANGE] The time 2019-12-31T18:30:00+00:00 is before topic",
        ),
        ("VERSION AS OF '999999:0'", "[TXNLOG_OUT_OF_RANGE] Position 999999:0 lies outside"),
        ("VERSION AS OF 'x'", "[TXNLOG_INVALID_ARGUMENT] Option 'endingOffsets': 'x' is not a position."),
        *in_long_runs(
            (
                "TIMESTAMP AS OF timestamp_micros(-9223372036854775808)",
                "36854775808 \u00b5s after 1970 is before topic",
            ),
            ("TIMESTAMP AS OF timestamp_micros(9223372036854775807)", "TIMESTAMP AS OF is after the year 9999."),
        ),
    ],
)
def test_place_that_the_table_never_had_is_told(history: tuple[Statements, str, str], place: str, why: str) -> None:
    assert why in history[0].refused(f"SELECT id FROM {{ns}}.t {place}")


def test_place_before_what_was_trimmed_is_told(history: tuple[Statements, str, str]) -> None:
    bank, time, position = history
    end = str(bank.log.stats(bank.topic("t")).partitions[0].log_end)
    bank.log.roll_ledger(bank.topic("t"))
    append(bank, 4)
    bank.log.trim(bank.topic("t"), keep_bytes=0)
    for place in (position, end):
        told = bank.refused(f"SELECT id FROM {{ns}}.t VERSION AS OF '{place}'")
        assert f"[TXNLOG_OUT_OF_RANGE] VERSION AS OF {place} is before all that partition 0 of topic" in told
    for query in ("SELECT id", "SELECT count(*)"):
        assert "-partition-0 had at 20" in bank.refused(f"{query} FROM {{ns}}.t TIMESTAMP AS OF '{time}'")
    lossy = "WITH (failOnDataLoss = false)"
    assert bank.rows(f"SELECT id FROM {{ns}}.t TIMESTAMP AS OF '{time}' {lossy}") == []
    start = bank.log.stats(bank.topic("t")).partitions[0].log_start
    assert bank.rows(f"SELECT id FROM {{ns}}.t VERSION AS OF '{start}'") == []
    for now in ("TIMESTAMP AS OF current_timestamp()", f"VERSION AS OF '{start.plus(1)}'"):
        assert bank.rows(f"SELECT id FROM {{ns}}.t {now}") == [(4,)]


def test_one_position_is_no_version_of_several_partitions(bank: Statements) -> None:
    bank.log.create_topic(bank.topic("t"), partitions=2, schema=pa.schema([("id", pa.int64())]))
    assert "is one position, and" in bank.refused("SELECT * FROM {ns}.t VERSION AS OF '1:0'")
    partitions = bank.log.stats(bank.topic("t")).partitions
    ends = json.dumps({bank.topic("t"): {str(k): str(partition.log_end) for k, partition in enumerate(partitions)}})
    append(bank, 1, 2, 3)
    assert bank.rows(f"SELECT * FROM {{ns}}.t VERSION AS OF '{ends}'") == []
