"""Whether a column that a producer gives can be read back: sound memory, text that is text, nulls and times.

What a batch says of itself is checked before anything is taken: offsets outside of their buffer would show readers
memory that isn't theirs, and text that isn't UTF-8, or a null where the type has none, would end every reader that
comes to it.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as types

from txn_source.model.errors import SchemaMismatchError
from txn_source.storage.arrays import numbers_in

FIRST_MICROS, LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond, both inclusive, of the years 1 to 9999: what Python's datetime can show."""
_MICROS_PER_UNIT = {"s": 1_000_000, "ms": 1_000}
_COMPARED = 16
"""Up to so many names of a row each is compared with each, which is faster than sorting them."""
_MAX_MICROS = (1 << 63) - 1
_OFFSET = re.compile(r"[+-]([01]\d|2[0-3]):[0-5]\d")


def check_memory(column: pa.Array, name: str) -> None:
    """Refuse a column whose buffers don't hold what its type says: offsets, lengths, UTF-8, decimals' precision.

    Costs a look at each offset, and at each byte of text.

    Raises:
        SchemaMismatchError: names the column, the first such row, and what is wrong.
    """
    try:
        column.validate(full=True)
    except (pa.ArrowException, ValueError, IndexError) as error:
        row = _first(column, _is_damaged)
        raise SchemaMismatchError(
            f"Column {name!r} can't be read back: row {row} is damaged ({_one_line(error)}).",
            "Build the batch anew: its buffers don't hold what its type says.",
        ) from None


def check_values(column: pa.Array, field: pa.Field) -> None:
    """Refuse nulls where the type has none, at any depth, and times that can't be counted in microseconds.

    Raises:
        SchemaMismatchError: names the column, the first such row, and what is wrong.
    """
    if not field.nullable and column.null_count:
        raise SchemaMismatchError(
            f"Column {field.name!r} doesn't fit: expected no nulls, came {column.null_count}.",
            "Fill them in, or drop these rows.",
        )
    if not needs_look(field.type):
        return
    wrong = _wrong(column, field.type)
    if wrong is not None:
        row = _first(column, lambda part: _wrong(part, field.type) is not None)
        raise SchemaMismatchError(
            f"Column {field.name!r} doesn't fit: expected {field.type}, row {row} {wrong}.",
            "Mend the value, or leave the row out.",
        )


def check_event_times(column: pa.Array) -> None:
    """Refuse event times outside of the years 1 to 9999.

    Raises:
        SchemaMismatchError: names the first such row.
    """
    if _outside(column, FIRST_MICROS, LAST_MICROS):
        row = _first(column, lambda part: _outside(part, FIRST_MICROS, LAST_MICROS))
        raise SchemaMismatchError(
            f"Column '__event_time' doesn't fit: row {row} is outside of the years 1 to 9999.",
            "Mend the value, or leave it null.",
        )


def check_properties(column: pa.Array) -> None:
    """Refuse properties without a text, and those that have one name twice: a message's properties are a dict.

    Raises:
        SchemaMismatchError: names the first such row.
    """
    if _no_dict(column):
        row = _first(column, _no_dict)
        raise SchemaMismatchError(
            f"Column '__properties' doesn't fit: row {row} has a name twice, or one of no text.",
            "Give each name once, with a text.",
        )


def needs_look(t: pa.DataType) -> bool:
    """Return whether ``check_values`` looks at the values of a type, beside nulls at the top."""
    if types.is_nested(t):
        return any(not field.nullable or needs_look(field.type) for field in _fields(t))
    return (types.is_timestamp(t) or types.is_duration(t)) and t.unit in _MICROS_PER_UNIT


def unknown_zone(t: pa.DataType) -> str | None:
    """Return a time zone in a type that nobody could show a time in, None if there is none."""
    if types.is_nested(t):
        return next((zone for field in _fields(t) if (zone := unknown_zone(field.type)) is not None), None)
    if not types.is_timestamp(t) or t.tz in (None, "UTC") or _OFFSET.fullmatch(t.tz):
        return None
    try:
        zoneinfo.ZoneInfo(t.tz)
    except (KeyError, ValueError, OSError):  # not found, a path, a folder
        return str(t.tz)
    return None


def _wrong(column: pa.Array, t: pa.DataType) -> str | None:
    """Return what is wrong with a column of a type that needs a look, or None."""
    if not types.is_nested(t):
        most = _MAX_MICROS // _MICROS_PER_UNIT[t.unit]
        return "is too far away to be counted in microseconds" if _outside(column, -most, most) else None
    for field, part in _parts(column):
        if not field.nullable and part.null_count:
            return f"has a null in {field.name!r}, which has none"
        if needs_look(field.type) and (found := _wrong(part, field.type)) is not None:
            return found
    return None


def _parts(column: pa.Array) -> Iterator[tuple[pa.Field, pa.Array]]:
    """Yield what a nested column is made of, without what lies under its nulls, where anything may lie."""
    t = column.type
    valid = column.drop_null() if column.null_count else column
    if types.is_struct(t):
        parts = [valid.field(at) for at in range(t.num_fields)]
    elif types.is_map(t):
        offsets = valid.offsets
        start, end = offsets[0].as_py(), offsets[-1].as_py()
        parts = [part.slice(start, end - start) for part in (valid.keys, valid.items)]
    else:
        parts = [valid.flatten()]
    yield from zip(_fields(t), parts, strict=True)


def _fields(t: pa.DataType) -> list[pa.Field]:
    if types.is_map(t):
        return [t.key_field.with_nullable(True), t.item_field]  # Arrow itself lets no key be null
    return [t.field(at) for at in range(t.num_fields)]


def _no_dict(column: pa.Array) -> bool:
    names, texts = (part for _, part in _parts(column))
    if texts.null_count:
        return True
    valid = column.drop_null() if column.null_count else column
    return repeats_a_name(names, np.diff(numbers_in(valid.offsets)))


def repeats_a_name(names: pa.Array, counts: npt.NDArray[Any]) -> bool:
    """Return whether a row has a name twice; ``counts`` says how many of the names each row has, row by row."""
    most = int(counts.max(initial=0))
    if most < 2:
        return False
    rows = np.repeat(np.arange(len(counts)), counts)
    coded = names.dictionary_encode()
    codes = numbers_in(coded.indices)
    if most > _COMPARED:
        pairs = rows * (len(coded.dictionary) + 1) + codes
        return len(np.unique(pairs)) < len(pairs)
    return any(bool(((codes[by:] == codes[:-by]) & (rows[by:] == rows[:-by])).any()) for by in range(1, most))


def _outside(times: pa.Array, first: int, last: int) -> bool:
    if times.null_count == len(times):
        return False
    import pyarrow.compute as pc  # takes long to load, and who only reads asks for none of this

    ends = pc.min_max(times.view(pa.int64()))
    return bool(ends["min"].as_py() < first or ends["max"].as_py() > last)


def _is_damaged(part: pa.Array) -> bool:
    try:
        part.validate(full=True)
    except (pa.ArrowException, ValueError, IndexError):
        return True
    return False


def _first(column: pa.Array, is_wrong: Callable[[pa.Array], bool]) -> int:
    """Return the first row that is wrong in a column of which some are."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        if is_wrong(column.slice(low, middle - low)):
            high = middle
        else:
            low = middle
    return low


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
