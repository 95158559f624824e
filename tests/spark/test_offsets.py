"""Where a batch query starts and ends: keywords, positions by partition, publish times."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import txn_source
from tests.selection import for_each
from txn_source.metadata.service.server import Server
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store.opening import open_database
from txn_source.model.position import Position
from txn_source.storage.root import LogRoot


@pytest.fixture
def positions(log: txn_source.Log) -> list[list[Position]]:
    """Positions by partition of the topic ``orders``: messages 00 to 05 in partition 0, 10 to 15 in partition 1.

    Each is an entry of its own, and each partition has three ledgers of two of them, and an empty one.
    """
    log.create_topic("orders", partitions=2, ledger_max_entries=2)
    found: list[list[Position]] = [[], []]
    with log.producer("orders") as producer:
        for number in range(6):
            for partition in range(2):
                producer.send(f"{partition}{number}", partition=partition)
                found[partition].append(producer.flush()[0].position)
    assert len({position.ledger_id for partition in found for position in partition}) == 6
    return found


ALL = [f"{partition}{number}" for partition in range(2) for number in range(6)]


@pytest.mark.parametrize("keywords", [(), ("earliest", "latest"), (" Earliest", "LATEST ")])
def test_keywords_mean_the_whole_topic(positions, read, values, keywords) -> None:
    """Read with the keywords and without them: a batch query's defaults are the same."""
    options = dict(zip(("startingOffsets", "endingOffsets"), keywords, strict=False))
    assert values(read(topic="orders", **options)) == ALL


def test_start_is_inclusive_and_end_exclusive(positions, read, values) -> None:
    """Read from each partition's second message to its fifth, by JSON with short and full names."""
    starts = {"orders": {"0": str(positions[0][1]), "1": str(positions[1][1])}}
    ends = {"persistent://public/default/orders": {"0": str(positions[0][4]), "1": str(positions[1][4])}}
    frame = read(topic="orders", startingOffsets=json.dumps(starts), endingOffsets=json.dumps(ends))
    assert values(frame) == ["01", "02", "03", "11", "12", "13"]


def test_partition_that_is_not_named_is_read_whole(positions, read, values) -> None:
    """Name one partition only in either option, and one by a keyword in the JSON."""
    starts = {"orders": {"1": str(positions[1][4])}}
    ends = {"orders": {"0": str(positions[0][1]), "1": "latest"}}
    assert values(read(topic="orders", startingOffsets=json.dumps(starts))) == [*ALL[:6], "14", "15"]
    assert values(read(topic="orders", endingOffsets=json.dumps(ends))) == ["00", *ALL[6:]]
    both = {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}
    assert values(read(topic="orders", **both)) == ["00", "14", "15"]


def test_bare_position_belongs_to_the_only_partition(positions, read, values, refusal) -> None:
    """Give a position without JSON: fine for a read of one partition, ambiguous for two."""
    bare = str(positions[1][3])
    assert values(read(topic="orders-partition-1", startingOffsets=bare)) == ["13", "14", "15"]
    told = refusal("INVALID_ARGUMENT", lambda: read(topic="orders", startingOffsets=bare).collect())
    assert bare in told
    assert "2 partitions" in told


def test_empty_range_gives_no_rows(positions, read, values) -> None:
    """Start where the range ends, behind its end, and at the end of the log."""
    second, third = (json.dumps({"orders": {"0": str(positions[0][i]), "1": str(positions[1][i])}}) for i in (1, 2))
    assert values(read(topic="orders", startingOffsets=second, endingOffsets=second)) == []
    assert values(read(topic="orders", startingOffsets=third, endingOffsets=second)) == []
    latest = json.dumps({"orders": {"0": "latest", "1": "latest"}})
    assert values(read(topic="orders", startingOffsets=latest)) == []


def test_positions_above_the_last_stable_one_are_read_up_to_it(log, positions, read, values) -> None:
    """End, and then start, above what an open transaction holds back: nothing beyond the bound, and no error."""
    with log.producer("orders") as producer:
        transaction = log.begin_transaction()
        producer.send("open", partition=0, txn=transaction)
        held = producer.flush()[0].position
        producer.send("behind", partition=0)
        behind = producer.flush()[0].position
    ends = json.dumps({"orders": {"0": str(Position(behind.ledger_id, behind.entry_id + 1))}})
    assert values(read(topic="orders-partition-0", endingOffsets=ends)) == ALL[:6]
    starts = json.dumps({"orders": {"0": str(behind)}})
    assert values(read(topic="orders-partition-0", startingOffsets=starts)) == []
    level = {"isolationLevel": "read_uncommitted"}
    assert values(read(topic="orders-partition-0", startingOffsets=starts, **level)) == ["behind"]
    starts = json.dumps({"orders": {"0": str(held)}})
    assert values(read(topic="orders-partition-0", startingOffsets=starts, **level)) == ["behind", "open"]


MALFORMED = {
    "broken JSON": ('{"orders": {"0": "1:0"}', "not JSON"),
    "a JSON list": ('["orders"]', "not a position"),
    "a word": ("first", "not a position"),
    "partitions as a number": ('{"orders": 5}', "'orders'"),
    "a position as a number": ('{"orders": {"0": 5}}', "5 is not a position"),
    "a position of three": ('{"orders": {"0": "1:0:0"}}', "'1:0:0'"),
    "a partition in words": ('{"orders": {"first": "1:0"}}', "'first'"),
    "a partition below 0": ('{"orders": {"-1": "1:0"}}', "'-1'"),
    "a partition twice": ('{"orders": {"0": "1:0", "0": "1:1"}}', "twice"),
    "a malformed topic": ('{"a/b": {"0": "1:0"}}', "'a/b'"),
    "an id too big": ('{"orders": {"0": "99999999999:0"}}', "99999999999"),
    "another topic": ('{"refunds": {"0": "1:0"}}', "refunds-partition-0"),
    "another partition": ('{"orders": {"2": "1:0"}}', "orders-partition-2"),
}


@for_each(("offsets", "said"), MALFORMED.values())
def test_offsets_that_mean_nothing_are_refused(positions, plan, offsets, said) -> None:
    """Plan with one mistake in either option; the error quotes it."""
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(txn_source.InvalidArgumentError, match=re.escape(said)):
            plan(topic="orders", **{option: offsets})


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_position_where_nobody_can_stand_is_refused(positions, plan, option) -> None:
    """Plan with positions behind the end of the log, behind the end of a closed ledger, and in the other partition."""
    closed, other = positions[0][0], positions[1][2]
    assert closed.ledger_id < other.ledger_id < positions[0][5].ledger_id
    for wrong in (Position(10_000, 0), Position(closed.ledger_id, 3), other):
        with pytest.raises(txn_source.OutOfRangeError, match=f"{wrong} .*orders-partition-0"):
            plan(topic="orders", **{option: json.dumps({"orders": {"0": str(wrong)}})})


@pytest.mark.parametrize(
    ("option", "keyword", "instead"),
    [("startingOffsets", "latest", "earliest"), ("endingOffsets", "earliest", "latest")],
)
def test_keyword_that_would_read_nothing_is_refused(positions, read, refusal, option, keyword, instead) -> None:
    """Start at the latest or end at the earliest position: in a batch query that is a mistake."""
    told = refusal("INVALID_ARGUMENT", lambda: read(topic="orders", **{option: keyword}).collect())
    assert option in told
    assert keyword in told
    assert instead in told


START = datetime(2026, 3, 29, 0, 59, 59, 998_500, tzinfo=UTC)
"""When the first message is published; one a millisecond follows it, past a change of Europe's clocks."""


@pytest.fixture
def published(log: txn_source.Log, root: Path) -> Iterator[None]:
    """The topic ``timed`` with messages 0 to 9, published a millisecond apart by a service whose clock a test moves."""
    now = int(START.timestamp() * 1_000_000)
    service = MetadataService(open_database(LogRoot.at(root).database_url), str(root), clock=lambda: now)
    with Server(service, "127.0.0.1", 0) as server, txn_source.connect(endpoint=server.address) as remote:
        remote.create_topic("timed", partitions=2)
        with remote.producer("timed") as producer:
            for number in range(10):
                producer.send(str(number), partition=number % 2)
                producer.flush()
                now += 1000
        yield


def millis(number: int) -> str:
    """Return the time in milliseconds just after which the message of that number was published."""
    return str(int((START + timedelta(milliseconds=number)).timestamp() * 1000))


EXACTLY_THE_FOURTH = START + timedelta(milliseconds=4)


def test_timestamp_stands_for_the_first_message_then_or_after(published, read, values) -> None:
    """Start, and end, at the fourth message's publish time, in a session whose zone is not UTC."""
    fourth = EXACTLY_THE_FOURTH.isoformat()
    assert values(read(topic="timed", startingTimestamp=fourth)) == ["4", "5", "6", "7", "8", "9"]
    assert values(read(topic="timed", endingTimestamp=fourth)) == ["0", "1", "2", "3"]


@for_each(
    "same",
    [
        millis(4),
        f" {millis(4)} ",
        EXACTLY_THE_FOURTH.isoformat(),
        EXACTLY_THE_FOURTH.isoformat().replace("+00:00", "Z"),
        EXACTLY_THE_FOURTH.astimezone(timezone(timedelta(hours=5, minutes=30))).isoformat(sep=" "),
    ],
)
def test_timestamp_has_several_forms(published, plan, same) -> None:
    """Plan with each form of one time."""
    fourth = EXACTLY_THE_FOURTH.isoformat()
    assert plan(topic="timed", startingTimestamp=same) == plan(topic="timed", startingTimestamp=fourth)
    assert plan(topic="timed", startingTimestamp=same) != plan(topic="timed", startingTimestamp=millis(3))
    assert plan(topic="timed", endingTimestamp=same) == plan(topic="timed", endingTimestamp=fourth)


def test_time_without_a_zone_is_refused(published, plan) -> None:
    """Plan with a time that each driver could mean otherwise."""
    for option in ("startingTimestamp", "endingTimestamp", "asOfTimestamp"):
        with pytest.raises(txn_source.InvalidArgumentError, match=f"{option}.*has no zone.*Z if UTC is meant"):
            plan(topic="timed", **{option: EXACTLY_THE_FOURTH.replace(tzinfo=None).isoformat()})


def test_timestamps_bound_a_range(published, read, values) -> None:
    """Read between two times, and between a time and a position."""
    assert values(read(topic="timed", startingTimestamp=millis(2), endingTimestamp=millis(5))) == ["2", "3", "4"]
    mixed = {"startingTimestamp": millis(8), "endingOffsets": '{"timed": {"0": "latest", "1": "latest"}}'}
    assert values(read(topic="timed", **mixed)) == ["8", "9"]


def test_timestamp_after_the_last_message_reads_nothing_or_all(published, read, values) -> None:
    """Start and end where no message was published then or after, and before the first."""
    assert values(read(topic="timed", startingTimestamp=millis(10))) == []
    assert len(values(read(topic="timed", endingTimestamp=millis(10)))) == 10
    assert len(values(read(topic="timed", startingTimestamp="0"))) == 10
    assert values(read(topic="timed", endingTimestamp="1970-01-01T00:00:00Z")) == []


NO_TIMES = ("", "yesterday", "2026-02-30", "1.5", "9" * 20, "-" + "9" * 20, "١٢٣", "²")


@pytest.mark.parametrize("option", ["startingTimestamp", "endingTimestamp"])
@pytest.mark.parametrize("text", NO_TIMES)
def test_time_that_is_none_is_refused(published, plan, option, text) -> None:
    """Plan with words, a day that doesn't exist, a fraction, numbers beyond any calendar, digits of other scripts."""
    with pytest.raises(txn_source.InvalidArgumentError) as caught:
        plan(topic="timed", **{option: text})
    told = str(caught.value)
    assert option in told
    assert repr(text) in told
    assert "ISO 8601" in told


def test_time_and_offsets_for_one_side_are_refused(published, read, refusal) -> None:
    """Read up to a time and to offsets."""
    told = refusal("INVALID_ARGUMENT", lambda: read(topic="timed", endingTimestamp="0", endingOffsets="latest"))
    assert "'endingOffsets'" in told
    assert "'endingTimestamp'" in told


def test_timestamp_of_a_message_above_the_bound_has_no_answer_yet(log, root: Path, read, values) -> None:
    """Ask for times at and behind an open transaction's message: nothing to start from, all to end at.

    The service's clock stands where this machine's is: what reads goes by that one, and must not find it ahead.
    """
    began_ms = int(datetime.now(UTC).timestamp() * 1000)
    now = began_ms * 1000
    service = MetadataService(open_database(LogRoot.at(root).database_url), str(root), clock=lambda: now)
    with Server(service, "127.0.0.1", 0) as server, txn_source.connect(endpoint=server.address) as remote:
        remote.create_topic("timed")
        with remote.producer("timed") as producer:
            producer.send("0")
            producer.flush()
            now += 1000
            producer.send("open", txn=log.begin_transaction(timeout=600))
            producer.flush()
            now += 1000
            producer.send("2")
    assert values(read(topic="timed", startingTimestamp=str(began_ms + 1))) == []
    assert values(read(topic="timed", endingTimestamp=str(began_ms + 2))) == ["0"]
    level = {"isolationLevel": "read_uncommitted"}
    assert values(read(topic="timed", startingTimestamp=str(began_ms + 1), **level)) == ["2", "open"]
    assert values(read(topic="timed", endingTimestamp=str(began_ms + 2), **level)) == ["0", "open"]
