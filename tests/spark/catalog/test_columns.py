"""Only the columns that are asked for are read; none at all where the number of rows is all that matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

Bank = Any
ScanText = Callable[[Any], str]


def test_a_scan_reads_the_columns_that_are_asked_for(bank: Bank, numbers: str, scan_text: ScanText) -> None:
    frame = bank.sql(f"SELECT name FROM {{{numbers}}} WHERE __partition = 1 AND id < 52")
    assert "; columns: id, name, __partition;" in scan_text(frame)
    assert sorted(row.name for row in frame.collect()) == ["n0", "n1"]
    assert "; columns: name" in scan_text(bank.sql(f"SELECT upper(NAME) FROM {{{numbers}}}"))


@pytest.mark.long
def test_parts_of_structs_are_found_by_their_names(bank: Bank) -> None:
    inner = pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))])
    topic = bank.topic(pa.schema([("id", pa.int64()), ("s", inner), ("l", pa.list_(inner))]))
    rows = [{"id": i, "s": {"x": i, "y": {"z": f"z{i}"}}, "l": [{"x": i, "y": {"z": "l"}}]} for i in range(4)]
    bank.send(topic, pa.Table.from_pylist([*rows, {"id": 4, "s": None, "l": None}], bank.log.schema(topic)))
    assert bank.rows(f"SELECT s.y.z FROM {{{topic}}} WHERE s.x > 2") == [("z3",)]
    assert bank.rows(f"SELECT S.X, l.x FROM {{{topic}}} WHERE id IN (0, 4)") == [(0, [0]), (None, None)]
    assert bank.rows(f"SELECT l[0].y.z, __batch_index FROM {{{topic}}} WHERE s.y.z = 'z1'") == [("l", 1)]


def test_metadata_columns_are_there_for_whoever_names_them(bank: Bank, numbers: str) -> None:
    [row] = bank.sql(
        f"SELECT *, __topic, __partition, __batch_index, __txn_id FROM {{{numbers}}} WHERE id = 50"
    ).collect()
    assert tuple(row) == (50, "n0", numbers, 1, 0, None)
    assert bank.table(numbers).columns == ["id", "name"]
    assert bank.rows(
        f"SELECT a.__partition, b.id FROM {{{numbers}}} a JOIN {{{numbers}}} b ON a.id = b.id WHERE b.id = 7"
    ) == [(0, 7)]


def test_the_number_of_rows_is_known_without_the_messages(bank: Bank, numbers: str, scan_text: ScanText) -> None:
    with bank.log.begin_transaction() as txn:
        bank.send(numbers, pa.table({"id": [100], "name": ["late"]}), txn=txn)
    aborted = bank.log.begin_transaction()
    bank.send(numbers, pa.table({"id": [101, 102], "name": ["a", "b"]}), txn=aborted)
    aborted.abort()
    for path in bank.segments(numbers):
        path.unlink()
    assert bank.rows(f"SELECT count(*), count(1) * 2 FROM {{{numbers}}}") == [(101, 202)]
    assert bank.table(numbers).count() == 101
    assert bank.rows(f"SELECT count(*) FROM {{{numbers}}} WITH (isolationLevel = 'read_uncommitted')") == [(103,)]
    assert bank.rows(f"SELECT count(*) FROM (SELECT * FROM {{{numbers}}} LIMIT 7)") == [(7,)]
    assert bank.rows(f"SELECT count(*) FROM {{{numbers}}} a CROSS JOIN {{{numbers}}} b") == [(101 * 101,)]
    assert bank.rows(f"SELECT 1 FROM {{{numbers}}} LIMIT 2") == [(1,), (1,)]
    assert bank.rows(f"SELECT count(*) FROM {{{numbers}}} WHERE rand() < 2") == [(101,)]
    assert bank.rows(f"SELECT count(*) FROM {{{numbers}}} HAVING count(*) > 101") == []
    assert "; counted by the metadata" in scan_text(bank.sql(f"SELECT count(*) FROM {{{numbers}}}"))
    with pytest.raises(PySparkException, match="SEGMENT_UNREADABLE"):
        bank.rows(f"SELECT count(id) FROM {{{numbers}}}")


@pytest.mark.long
def test_counts_of_something_else_are_counted_by_spark(bank: Bank, numbers: str) -> None:
    assert bank.rows(f"SELECT count(*), max(id) FROM {{{numbers}}}") == [(100, 99)]
    assert bank.rows(f"SELECT name, count(*) FROM {{{numbers}}} WHERE id < 2 GROUP BY name") == [("n0", 1), ("n1", 1)]
    assert bank.rows(f"SELECT count(*) FILTER (WHERE id < 3), count(*) FROM {{{numbers}}}") == [(3, 100)]
    assert bank.rows(f"SELECT count(NULL) FROM {{{numbers}}}") == [(0,)]


def test_a_topic_without_messages_counts_none(bank: Bank) -> None:
    topic = bank.topic(pa.schema([("id", pa.int64())]), 3)
    assert bank.rows(f"SELECT count(*) FROM {{{topic}}}") == [(0,)]
    assert bank.rows(f"SELECT 1 FROM {{{topic}}}") == []
    assert bank.rows(f"SELECT * FROM {{{topic}}}") == []
