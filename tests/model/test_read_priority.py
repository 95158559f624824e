"""Read priorities: their texts."""

from __future__ import annotations

import pytest

from tests.selection import for_each
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.read_priority import ReadPriority


@for_each(
    ("text", "priority"),
    [
        ("tiered-first", ReadPriority.TIERED_FIRST),
        ("tiered-storage-first", ReadPriority.TIERED_FIRST),
        ("Tiered-Storage-First", ReadPriority.TIERED_FIRST),
        ("bookkeeper-first", ReadPriority.BOOKKEEPER_FIRST),
        (" BOOKKEEPER-FIRST ", ReadPriority.BOOKKEEPER_FIRST),
        (ReadPriority.BOOKKEEPER_FIRST, ReadPriority.BOOKKEEPER_FIRST),
    ],
)
def test_priority_is_read_in_both_spellings(text: ReadPriority | str, priority: ReadPriority) -> None:
    """Parse the two values, Pulsar's spelling of the first, and the value itself."""
    assert ReadPriority.parse(text) is priority


def test_pulsars_spelling_is_not_written() -> None:
    """Write both values: there is one text for each."""
    assert [str(priority) for priority in ReadPriority] == ["tiered-first", "bookkeeper-first"]


@for_each("value", ["", " ", "tiered", "bookkeeper", "tiered_first", "first", None, 0])
def test_anything_else_is_refused_with_the_values(value: object) -> None:
    """Parse what is no priority, the empty text among it, for unset is not a value (Pulsar #24151)."""
    with pytest.raises(InvalidArgumentError) as caught:
        ReadPriority.parse(value)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"[TXNLOG_INVALID_ARGUMENT] {value!r} is not a read priority."
        " Use tiered-first (also spelled tiered-storage-first) or bookkeeper-first."
    )
