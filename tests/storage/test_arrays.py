"""Arrow's arrays from numpy's and from texts, and back: the same as pyarrow's own, which import pandas."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from txn_source.storage.arrays import array_of, binary_of, numbers_in, numbers_or, texts_of, truths_in

TYPES = ["int8", "int16", "int32", "int64", "float32", "float64"]


@given(st.lists(st.lists(st.integers(-100, 100), max_size=5), max_size=4), st.sampled_from(TYPES), st.data())
def test_numbers_are_those_of_the_column(chunks: list[list[int]], name: str, data: st.DataObject) -> None:
    """Read columns of any chunks, sliced anywhere, also empty ones."""
    kind = getattr(pa, name)()
    column = pa.chunked_array([pa.array(chunk, kind) for chunk in chunks], kind)
    start = data.draw(st.integers(0, len(column)))
    for part in (column.slice(start), column.slice(start).combine_chunks()):
        found = numbers_in(part)
        assert (found.dtype, found.tolist()) == (np.dtype(name), part.to_pylist())


@pytest.mark.parametrize("column", [pa.array([1, None]), pa.array(["a"]), pa.array([True])])
def test_column_that_is_no_numbers_alone_is_refused(column: pa.Array) -> None:
    """Give a null, texts, and truths, whose bytes are no numbers."""
    with pytest.raises(ValueError, match="none of numbers alone"):
        numbers_in(column)


@given(st.lists(st.integers(-100, 100)), st.sampled_from([*TYPES, "bool"]))
def test_array_has_the_values(values: list[int], name: str) -> None:
    """Make arrays of numbers and truths; of every other value, too, which lie apart in memory."""
    for given_values in (np.array(values, name), np.array(values, name)[::2]):
        found = array_of(given_values)
        found.validate(full=True)
        assert found.equals(pa.array(given_values))


@given(st.lists(st.none() | st.text(max_size=4)))
def test_texts_and_nulls_are_kept(values: list[Any]) -> None:
    """Make arrays of any texts, some of them null."""
    found = texts_of(values)
    found.validate(full=True)
    assert found.equals(pa.array(values, pa.string()))


@given(st.lists(st.none() | st.binary(max_size=4)))
def test_bytes_and_nulls_are_kept(values: list[Any]) -> None:
    """Make arrays of any bytes, some of them null, or all, or none."""
    for given_values in (values, [value for value in values if value is not None], [None] * len(values)):
        found = binary_of(given_values)
        found.validate(full=True)
        assert found.equals(pa.array(given_values, pa.binary()))


@given(st.lists(st.none() | st.integers(-100, 100)), st.sampled_from(TYPES[:4]), st.data())
def test_nulls_become_a_number(values: list[int | None], name: str, data: st.DataObject) -> None:
    """Read columns with nulls, sliced anywhere, and those of nulls alone."""
    column = pa.array(values, getattr(pa, name)())
    start = data.draw(st.integers(0, len(values)))
    found = numbers_or(column.slice(start), 7)
    assert (found.dtype, found.tolist()) == (np.dtype(name), [7 if v is None else v for v in values[start:]])


@given(st.lists(st.booleans()), st.data())
def test_truths_are_those_of_the_column(values: list[bool], data: st.DataObject) -> None:
    """Read columns sliced anywhere, also empty ones; and refuse nulls."""
    column = pa.array(values, pa.bool_())
    start = data.draw(st.integers(0, len(values)))
    assert truths_in(column.slice(start)).tolist() == values[start:]
    with pytest.raises(ValueError, match="none of truths alone"):
        truths_in(pa.array([*values, None], pa.bool_()))
