"""Places: all the ways to say where a read starts or ends, and where a subscription is to stand."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.selection import for_each
from txn_source.client.places import Sought, SubscriptionPlace, parse_side, side_at
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.moments import moment_us
from txn_source.model.position import EARLIEST, LATEST, MessageId, Position
from txn_source.model.topic_name import TopicName
from txn_source.reading.places import Side

ORDERS, OTHER = TopicName.parse("orders"), TopicName.parse("acme/shop/other")
NAIVE = datetime(2026, 1, 31, 12, tzinfo=UTC).replace(tzinfo=None)


@for_each(
    ("value", "offsets"),
    [
        (None, Side(EARLIEST)),
        ("earliest", Side(EARLIEST)),
        ("latest", Side(LATEST)),
        (" Latest ", Side(LATEST)),
        ("12:40", Side(EARLIEST, bare=Position(12, 40))),
        (" 12:40 ", Side(EARLIEST, bare=Position(12, 40))),
        (Position(12, 40), Side(EARLIEST, bare=Position(12, 40))),
        (Side(LATEST, bare=Position(1, 2)), Side(LATEST, bare=Position(1, 2))),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), Side(EARLIEST, time_us=1769860800000000)),
        ({}, Side(EARLIEST)),
        ("{}", Side(EARLIEST)),
    ],
)
def test_value_means_offsets(value: Any, offsets: Side) -> None:
    """Parse each form that isn't a mapping, with earliest as the default."""
    assert parse_side(value, EARLIEST) == offsets


MAPPING = {
    "orders": {0: "12:40", "3": Position(1, 2), 1: "earliest", "02": "LATEST"},
    "persistent://acme/shop/other": {"0": "5:0"},
}
PARSED = {
    (ORDERS, 0): Position(12, 40),
    (ORDERS, 3): Position(1, 2),
    (ORDERS, 1): "earliest",
    (ORDERS, 2): "latest",
    (OTHER, 0): Position(5, 0),
}


def test_mapping_names_partitions() -> None:
    """Parse a mapping with names and indexes in all their forms; what it doesn't name is at the default."""
    assert parse_side(MAPPING, LATEST) == Side(LATEST, PARSED)


def test_json_means_what_the_mapping_does() -> None:
    """Parse the same as JSON, as Spark's options carry it, with spaces around."""
    assert parse_side(f" {json.dumps(MAPPING, default=str)}\n", LATEST) == Side(LATEST, PARSED)


HINT = 'Use earliest, latest, a position such as "12:40", or JSON such as {"orders": {"0": "12:40"}}.'
BAD: dict[str, tuple[Any, str, str]] = {
    "number": (5, "5 is no place in a topic.", HINT),
    "day": (date(2026, 1, 31), "datetime.date(2026, 1, 31) is no place in a topic.", HINT),
    "list": (["12:40"], "['12:40'] is no place in a topic.", HINT),
    "empty text": ("", "'' is not a position.", HINT),
    "word": ("newest", "'newest' is not a position.", HINT),
    "time without zone": (NAIVE, "The time 2026-01-31 12:00:00 has no time zone.", "Use one with a time zone."),
    "half a JSON": ('{"orders"', "'{\"orders\"' is not JSON (", HINT),
    "no partitions": ('{"orders": "12:40"}', "The partitions of topic 'orders' are '12:40', which names none.", HINT),
    "list of partitions": (
        {"orders": ["12:40"]},
        "The partitions of topic 'orders' are ['12:40'], which names none.",
        HINT,
    ),
    "topic": ({"or ders": {0: "1:2"}}, "'or ders' is not a topic name.", "Use letters"),
    "partition below 0": ({"orders": {-1: "1:2"}}, "-1 is not a partition of topic 'orders'.", HINT),
    "text below 0": ({"orders": {"-1": "1:2"}}, "'-1' is not a partition of topic 'orders'.", HINT),
    "partition's name": ({"orders": {"a": "1:2"}}, "'a' is not a partition of topic 'orders'.", HINT),
    "power of a number": ({"orders": {"²": "1:2"}}, "'²' is not a partition of topic 'orders'.", HINT),
    "endless number": ({"orders": {"1" * 5000: "1:2"}}, "'1111", HINT),
    "truth": ({"orders": {True: "1:2"}}, "True is not a partition of topic 'orders'.", HINT),
    "number as position": ('{"orders": {"0": 5}}', "5 is not a position.", "Write it as"),
    "no position": ('{"orders": {"0": null}}', "None is not a position.", "Write it as"),
    "JSON topic twice": (
        '{"orders": {}, "orders": {"0": "1:2"}}',
        "One of ['orders', 'orders'] is named twice.",
        HINT,
    ),
    "JSON partition twice": ('{"orders": {"0": "1:1", "0": "1:2"}}', "One of ['0', '0'] is named twice.", HINT),
    "partition in two spellings": (
        {"orders": {0: "1:1", "00": "1:2"}},
        "Partition 0 of topic 'orders' is named twice.",
        HINT,
    ),
    "topic in two spellings": (
        {"orders": {"0": "1:1"}, "public/default/orders": {"0": "1:2"}},
        "Partition 0 of topic 'public/default/orders' is named twice.",
        HINT,
    ),
}


@for_each(("value", "fact", "remedy"), BAD.values())
def test_value_that_means_no_offsets_is_refused(value: Any, fact: str, remedy: str) -> None:
    """Parse malformed offsets: the error names what is wrong in them and shows how to write them."""
    with pytest.raises(InvalidArgumentError) as caught:
        parse_side(value, EARLIEST)
    assert caught.value.fact.startswith(fact)
    assert caught.value.remedy.startswith(remedy)


def test_long_value_is_cut_in_the_error() -> None:
    """Refuse JSON of a megabyte: the message stays readable."""
    with pytest.raises(InvalidArgumentError) as caught:
        parse_side('{"orders": "' + "x" * 1_000_000 + '"}', EARLIEST)
    assert len(str(caught.value)) < 400


# Message ids


@pytest.mark.parametrize("first", [MessageId(12, 40), "12:40:0", " 12:40:0 "], ids=str)
def test_first_message_of_an_entry_means_its_position(first: MessageId | str) -> None:
    """Give a message id with index 0, as a value and as text; in a mapping only a value, for a text is a position."""
    assert parse_side(first, LATEST) == Side(LATEST, bare=Position(12, 40))
    if isinstance(first, MessageId):
        assert parse_side({"orders": {0: first}}, LATEST) == Side(LATEST, {(ORDERS, 0): Position(12, 40)})
    else:
        with pytest.raises(InvalidArgumentError, match="is not a position"):
            parse_side({"orders": {0: first}}, LATEST)


@pytest.mark.parametrize("value", [MessageId(12, 40, 3), "12:40:3", {"orders": {"0": MessageId(12, 40, 3)}}], ids=str)
def test_message_inside_an_entry_is_no_offset(value: Any) -> None:
    """Give one to a read, which can't start there: the error says what would do."""
    with pytest.raises(InvalidArgumentError, match=r"12:40:3 lies inside its entry.* Use 12:40 .* or 12:41 "):
        parse_side(value, EARLIEST)


# Subscriptions


@for_each(
    ("value", "place"),
    [
        (" Earliest ", SubscriptionPlace("earliest")),
        ("12:40:3", SubscriptionPlace(bare=MessageId(12, 40, 3))),
        (MessageId(12, 40, 3), SubscriptionPlace(bare=MessageId(12, 40, 3))),
        ("12:40", SubscriptionPlace(bare=Position(12, 40))),
        ("2026-01-31T12:00:00Z", SubscriptionPlace(publish_time_us=1769860800000000)),
        ("1769860800000", SubscriptionPlace(publish_time_us=1769860800000000)),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), SubscriptionPlace(publish_time_us=1769860800000000)),
        ({"orders": {}}, SubscriptionPlace()),
        (
            '{"public/default/orders": {"0": "12:40:3", "01": " LATEST ", "2": "1:2"}}',
            SubscriptionPlace(points={0: MessageId(12, 40, 3), 1: "latest", 2: Position(1, 2)}),
        ),
    ],
)
def test_value_means_a_place_of_a_subscription(value: Any, place: SubscriptionPlace) -> None:
    """Parse each form, of a subscription of one topic."""
    assert SubscriptionPlace.parse(value, ORDERS) == place


NO_PLACES: dict[str, tuple[Any, str]] = {
    "number": (5, "5 is no place in a topic."),
    "nothing": (None, "None is no place in a topic."),
    "word": ("yesterday", "'yesterday' is no place in a topic."),
    "four numbers": ("1:2:3:4", "'1:2:3:4' is no place in a topic."),
    "half a JSON": ('{"orders"', "'{\"orders\"' is not JSON ("),
    "no topic": ({}, "{} doesn't name topic 'orders' alone."),
    "other topic": ('{"other": {"0": "1:0"}}', '\'{"other": {"0": "1:0"}}\' doesn\'t name topic \'orders\' alone.'),
    "two topics": ({"orders": {0: "1:0"}, OTHER.short: {0: "1:0"}}, "{'orders': {0: '1:0'}"),
    "no partitions": ({"orders": "12:40"}, "The partitions of topic 'orders' are '12:40', which names none."),
    "partition below 0": ({"orders": {-1: "1:2"}}, "-1 is not a partition of topic 'orders'."),
    "word as place": ({"orders": {0: "soon"}}, "'soon' is no place in a partition."),
    "time as place": ({"orders": {0: "2026-01-31"}}, "'2026-01-31' is no place in a partition."),
    "JSON topic twice": ('{"orders": {}, "orders": {}}', "One of ['orders', 'orders'] is named twice."),
    "JSON partition twice": ('{"orders": {"0": "1:1", "0": "1:2"}}', "One of ['0', '0'] is named twice."),
    "partition in two spellings": (
        {"orders": {0: "1:1", "00": "1:2"}},
        "Partition 0 of topic 'orders' is named twice.",
    ),
    "topic in two spellings": (
        {"orders": {"0": "1:1"}, "public/default/orders": {"0": "1:2"}},
        "Partition 0 of topic 'public/default/orders' is named twice.",
    ),
    "cut": (
        {"level": "read_committed", "positions": {"orders": {"0": "1:1"}}},
        "The partitions of topic 'level' are 'read_committed'",
    ),
}


@for_each(("value", "fact"), NO_PLACES.values())
def test_value_that_means_no_place_is_refused(value: Any, fact: str) -> None:
    """Parse what is no place of a subscription: the error names what is wrong, and how to write one."""
    with pytest.raises(InvalidArgumentError) as caught:
        SubscriptionPlace.parse(value, ORDERS)
    assert caught.value.fact.startswith(fact)
    assert caught.value.remedy.startswith("Use earliest, latest, a message id")


def test_what_a_seek_returns_is_read_by_partition() -> None:
    """Use it as the mapping that it is."""
    places = {0: MessageId(12, 40), 2: MessageId(3, 4, 5)}
    sought = Sought(7, places, frozenset({2}))
    assert sought == places
    assert sought == Sought(8, dict(places))
    assert (sought[2], list(sought), len(sought), 1 in sought) == (MessageId(3, 4, 5), [0, 2], 2, False)


# Times


@for_each(
    ("text", "micros"),
    [
        ("0", 0),
        ("1769860800000", 1769860800000000),
        ("2026-01-31T12:00:00Z", 1769860800000000),
        (" 2026-01-31 12:00:00+00 ", 1769860800000000),
        ("2026-01-31T13:00:00+01:00", 1769860800000000),
        ("2026-01-31T12:00:00.000001Z", 1769860800000001),
    ],
)
def test_text_means_a_time(text: str, micros: int) -> None:
    """Parse milliseconds since the epoch and ISO 8601."""
    assert side_at(text, LATEST) == Side(LATEST, time_us=micros)


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", " 2026-01-31 12:00:00 ", "2026-01-31"])
def test_time_without_a_zone_is_refused(text: str) -> None:
    """Parse what means another moment on each machine: refused, with both ways to write it."""
    with pytest.raises(InvalidArgumentError, match=r"has no zone.*2026-01-31T\d\d:00:00Z if UTC is meant.*\+02:00"):
        side_at(text, LATEST)


@for_each("text", ["-1", "1", "100", "2026", "20260131", "1750000000"])
def test_number_that_was_meant_otherwise_is_no_time(text: str) -> None:
    """Parse places of other tools, years and seconds: refused, with the ways to write them."""
    with pytest.raises(InvalidArgumentError, match=r"three zeros more.*2026-01-31T12:00:00Z.*earliest or 12:40"):
        side_at(text, LATEST)


@pytest.mark.parametrize("text", ["20:00", "07:30", "12:40:03"])
def test_time_of_day_is_no_position(text: str) -> None:
    """Parse times of day: refused, and not read as a ledger's entry."""
    with pytest.raises(InvalidArgumentError):
        parse_side(text, LATEST)


BAD_TIMES = [
    "",
    "-",
    "--5",
    "+-5",
    "1.5",
    "²",
    "yesterday",
    "2026-13-01",
    "12:40",
    "20260131" * 2,
    "9" * 40,
    "1" * 5000,
]


@for_each("text", BAD_TIMES)
def test_text_that_means_no_time_is_refused(text: str) -> None:
    """Parse malformed times: the error shows the text and both forms."""
    with pytest.raises(InvalidArgumentError) as caught:
        side_at(text, LATEST)
    assert caught.value.fact == f"{text!r} is not a time."
    assert caught.value.remedy.startswith("Use milliseconds since the epoch or ISO 8601, such as 2026-01-31T12:00:00Z.")


@given(st.datetimes(timezones=st.just(UTC) | st.just(timezone(timedelta(hours=-3, minutes=-30)))))
def test_time_is_exact_to_the_microsecond(when: datetime) -> None:
    """Give any moment as a value and as text: the same whole number of microseconds."""
    exact = (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert parse_side(when, EARLIEST).time_us == exact
    assert side_at(when.isoformat(), EARLIEST).time_us == exact


@for_each("value", [Position(1, 2), 5, "latest", {}])
def test_value_that_is_no_moment_is_refused(value: Any) -> None:
    """Ask for the log as it was at what is no time, but may be a place."""
    with pytest.raises(InvalidArgumentError, match="is not a time"):
        moment_us(value)
