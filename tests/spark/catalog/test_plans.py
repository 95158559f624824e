"""What a plan says of a scan, and what it is planned by: limits, sizes, and a range that is pinned when it runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

Bank = Any
ScanText = Callable[[Any], str]


def test_a_plan_says_what_it_will_read(bank: Bank, numbers: str, scan_text: ScanText) -> None:
    text = scan_text(bank.sql(f"SELECT id FROM {{{numbers}}} WHERE name LIKE 'n1%' AND id > 5"))
    stats = bank.log.stats(numbers)
    bounds = ", ".join(f"{p.partition}: [{p.log_start}, {p.log_end})" for p in stats.partitions)
    assert text == (
        f"txnlog {numbers}, read_committed, so far {bounds}; 2 ledgers: 2 hot, 0 tiered;"
        " tasks: about 1; columns: id, name;"
        " skips by: name IS NOT NULL AND id IS NOT NULL AND name LIKE 'n1%' ESCAPE '\\' AND id > 5"
    )


def test_a_plan_that_has_run_says_what_it_has_read(bank: Bank, numbers: str, scan_text: ScanText) -> None:
    frame = bank.sql(f"SELECT id FROM {{{numbers}}} WITH (minPartitions = 2)")
    assert "so far" in scan_text(frame)
    bank.send(numbers, pa.table({"id": [100], "name": ["x"]}))
    assert len(frame.collect()) == 101
    bank.send(numbers, pa.table({"id": [101], "name": ["x"]}))
    text = scan_text(frame)
    assert "so far" not in text
    assert re.search(r"0: \[\d+:0, \d+:2\), 1: \[\d+:0, \d+:1\); 2 ledgers", text)
    assert "; tasks: 2;" in text
    assert len(frame.collect()) == 101


def test_a_plan_shows_why_it_can_not_run(bank: Bank, numbers: str, scan_text: ScanText) -> None:
    frame = bank.sql(f"SELECT id FROM {{{numbers}}} WITH (endingOffsets = '9999:9')")
    assert "[TXNLOG_INVALID_ARGUMENT] 9999:9 doesn't say" in scan_text(frame)
    with pytest.raises(PySparkException, match=r"\[TXNLOG_INVALID_ARGUMENT\] 9999:9 doesn"):
        frame.collect()


def test_tiered_copies_are_told(bank: Bank, numbers: str, scan_text: ScanText) -> None:
    bank.log.roll_ledger(numbers)
    bank.log.offload(numbers)
    bank.log.delete_hot(numbers)
    bank.send(numbers, pa.table({"id": [100], "name": ["x"]}))
    assert "; 3 ledgers: 1 hot, 2 tiered;" in scan_text(bank.table(numbers))
    assert bank.rows(f"SELECT count(*), sum(id) FROM {{{numbers}}}") == [(101, 5050)]


def test_a_limit_is_handed_over_where_nothing_stands_between(bank: Bank, numbers: str, scan_text: ScanText) -> None:
    assert scan_text(bank.sql(f"SELECT id FROM {{{numbers}}} LIMIT 3")).endswith("; limit: 3")
    assert "limit" not in scan_text(bank.sql(f"SELECT id FROM {{{numbers}}} WHERE id > 3 LIMIT 3"))
    assert "limit" not in scan_text(bank.sql(f"SELECT id FROM {{{numbers}}} ORDER BY id LIMIT 3"))
    assert "limit" not in scan_text(bank.sql(f"SELECT sum(id) FROM {{{numbers}}} LIMIT 3"))
    assert "limit" not in scan_text(bank.sql(f"SELECT id FROM {{{numbers}}} TABLESAMPLE (50 PERCENT) LIMIT 3"))


def test_a_limit_gives_as_many_rows(bank: Bank, numbers: str) -> None:
    expected = {
        "SELECT id FROM {} LIMIT 70": 70,
        "SELECT id FROM {} LIMIT 70 OFFSET 60": 40,
        "SELECT id FROM (SELECT id FROM {} LIMIT 80) WHERE id >= 0": 80,
    }
    counts = ", ".join(f"(SELECT count(DISTINCT id) FROM ({query}))" for query in expected)
    assert bank.rows(f"SELECT {counts}".replace("{}", f"{{{numbers}}}")) == [tuple(expected.values())]


def test_a_small_topic_is_broadcast_and_a_large_one_is_not(bank: Bank, numbers: str) -> None:
    large = bank.topic(pa.schema([("id", pa.int64()), ("text", pa.string())]))
    bank.send(large, pa.table({"id": list(range(1000)), "text": ["x" * 1000] * 1000}))
    threshold = "spark.sql.autoBroadcastJoinThreshold"
    bank.spark.conf.set(threshold, "500k")
    try:

        def plan(query: str) -> str:
            return bank.sql(query)._jdf.queryExecution().executedPlan().toString()  # type: ignore[no-any-return]

        joined = plan(f"SELECT * FROM {{{large}}} JOIN {{{numbers}}} USING (id)")
        assert "BroadcastHashJoin" in joined
        assert "BuildRight" in joined
        assert "SortMergeJoin" in plan(f"SELECT * FROM {{{large}}} a JOIN {{{large}}} b USING (id)")
        assert "BroadcastHashJoin" in plan(f"SELECT a.text FROM {{{large}}} a JOIN {{{large}}} b USING (id)")
        assert "BroadcastHashJoin" in plan(
            f"SELECT * FROM {{{large}}} a JOIN (SELECT * FROM {{{large}}} LIMIT 9) b USING (id)"
        )
    finally:
        bank.spark.conf.unset(threshold)


def test_equal_scans_of_a_query_are_read_once(bank: Bank, numbers: str) -> None:
    frame = bank.sql(
        f"SELECT (SELECT max(id) FROM {{{numbers}}} WHERE id < 9) + (SELECT max(id) FROM {{{numbers}}} WHERE id < 9) m"
    )
    assert frame.collect()[0].m == 16
    assert "ReusedSubquery" in frame._jdf.queryExecution().executedPlan().toString()


def test_a_cached_table_is_found_again(bank: Bank, numbers: str) -> None:
    cached = bank.table(numbers).cache()
    try:
        assert cached.count() == 100
        bank.send(numbers, pa.table({"id": [100], "name": ["x"]}))
        assert bank.table(numbers).count() == 100
        assert bank.rows(f"SELECT max(id) FROM {{{numbers}}}") == [(99,)]
        assert bank.rows(f"SELECT max(id) FROM {{{numbers}}} WITH (isolationLevel = 'read_uncommitted')") == [(100,)]
    finally:
        cached.unpersist()
    assert bank.table(numbers).count() == 101
