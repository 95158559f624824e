"""What the messages of a delivery acknowledge: worked cases, then any messages, ranges and batches against a rule."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given

from txn_source.client.consuming.batch_ranges import BatchRanges, wanted_messages
from txn_source.model.message_ranges import MessageRange, index_of, message_key, position_of
from txn_source.model.position import MessageId, Position


def key(text: str) -> int:
    at = MessageId.parse(text)
    return message_key(at.position, at.batch_index)


def batch(places: Sequence[int]) -> pa.RecordBatch:
    at = [position_of(place) for place in places]
    return pa.record_batch(
        {
            "__ledger_id": pa.array([p.ledger_id for p in at], pa.int64()),
            "__entry_id": pa.array([p.entry_id for p in at], pa.int64()),
            "__batch_index": pa.array([index_of(place) for place in places], pa.int32()),
        }
    )


def wanted(*ranges: tuple[str, str]) -> list[MessageRange]:
    return [MessageRange(key(start), key(end)) for start, end in ranges]


def shown(found: Sequence[tuple[pa.RecordBatch, BatchRanges] | MessageRange]) -> list[str]:
    """Return each message as ``place in range``, and each range without one."""
    lines = []
    for item in found:
        if isinstance(item, MessageRange):
            lines.append(f"- in {item}")
            continue
        rows, ranges = item
        for row, (ledger_id, entry_id, index) in enumerate(zip(*(c.to_pylist() for c in rows.columns), strict=True)):
            lines.append(f"{ledger_id}:{entry_id}:{index} in {MessageRange(ranges.start(row), ranges.end(row))}")
    return lines


READ = ["12:0:0", "12:0:1", "12:0:2", "12:2:0", "12:2:1"]
WANTED = wanted(("12:0:1", "12:2:1"), ("12:2:1", "12:3:0"))


def test_worked_example_holds() -> None:
    """Read the example of the module in one batch: a marker belongs to the message before it."""
    assert shown(list(wanted_messages(WANTED, [batch([key(place) for place in READ])]))) == [
        "12:0:1 in [12:0:1, 12:0:2)",
        "12:0:2 in [12:0:2, 12:2:0)",
        "12:2:0 in [12:2:0, 12:2:1)",
        "12:2:1 in [12:2:1, 12:3:0)",
    ]


def test_ranges_of_neighbours_are_joined() -> None:
    """Acknowledge rows in any order, some twice: those that touch are one range, with how many messages it has."""
    [(_, ranges)] = [
        f for f in wanted_messages(WANTED, [batch(list(map(key, READ)))]) if not isinstance(f, MessageRange)
    ]
    assert list(ranges.joined()) == [MessageRange(key("12:0:1"), key("12:3:0"), 4)]
    assert list(ranges.joined([3, 0, 1, 1])) == [
        MessageRange(key("12:0:1"), key("12:2:0"), 2),
        MessageRange(key("12:2:1"), key("12:3:0"), 1),
    ]
    assert list(ranges.joined([])) == []
    assert list(ranges.part(1, 3).joined()) == [MessageRange(key("12:0:2"), key("12:2:1"), 2)]


places = st.builds(lambda entry, index: message_key(Position(1, entry), index), st.integers(0, 6), st.integers(0, 3))


@given(
    messages=st.sets(places),
    bounds=st.sets(places),
    cuts=st.sets(st.integers(0, 28)),
    first=st.booleans(),
)
def test_wanted_ranges_are_covered_without_holes(
    messages: set[int], bounds: set[int], cuts: set[int], first: bool
) -> None:
    """Want every second stretch between any places, of any messages in any batches.

    Each wanted message is given out once, in a range of its own that has it; the ranges are disjoint, lie in one wanted
    range each, and together are all that is wanted.
    """
    read, edges = sorted(messages), sorted(bounds)
    ranges = [MessageRange(a, b) for a, b in list(pairwise(edges))[first::2]]
    at = sorted({0, *(cut for cut in cuts if cut < len(read)), len(read)})
    found = list(wanted_messages(ranges, [batch(read[a:b]) for a, b in pairwise(at)]))
    given_out, covered = [], []
    for item in found:
        if isinstance(item, MessageRange):
            covered.append((item.start, item.end))
            continue
        rows, of = item
        own = [message_key(Position(*p), i) for *p, i in zip(*(c.to_pylist() for c in rows.columns), strict=True)]
        given_out += own
        for row, place in enumerate(own):
            assert of.start(row) <= place < of.end(row)
            covered.append((of.start(row), of.end(row)))
    assert given_out == [place for place in read if any(r.start <= place < r.end for r in ranges)]
    covered.sort()
    joined: list[list[int]] = []
    for start, end in covered:
        assert start < end
        assert any(r.start <= start and end <= r.end for r in ranges)
        if joined and joined[-1][1] == start:
            joined[-1][1] = end
        else:
            assert not joined or joined[-1][1] < start
            joined.append([start, end])
    expected: list[list[int]] = []
    for item in ranges:
        if expected and expected[-1][1] == item.start:
            expected[-1][1] = item.end
        else:
            expected.append([item.start, item.end])
    assert joined == expected
