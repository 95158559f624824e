"""What is known of units decides whether a filter may be true there: worked cases, and what can't be parsed."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tests.selection import for_each
from txn_source import InvalidArgumentError
from txn_source.reading.filters import Bounds, Coded, Column, Filters, ordered

NAN = float("nan")


def of(op: str, *values: Any, type: str = "long", column: str = "x") -> dict[str, Any]:
    """Return a filter of one column; ``in`` takes all values."""
    said: dict[str, Any] = {"op": op, "column": [column]}
    literals = [{"type": type, "value": value} for value in values]
    if op == "in":
        return said | {"values": literals}
    return said | ({"value": literals[0]} if literals else {})


def keeps(given: dict[str, Any], known: Column | None) -> bool:
    """Tell whether a unit may have rows for which a filter is true."""
    return bool(Filters.parse(json.dumps([given])).keep(lambda path: known if path == ("x",) else None))


def whole(low: Any, high: Any, *, null: bool = False) -> Bounds:
    return Bounds("integer", low, high, may_be_null=null)


def reals(low: float, high: float = NAN) -> Bounds:
    """What Parquet's statistics tell: NaN is never in them."""
    return Bounds("double", ordered(low), ordered(high))


def text(low: bytes, high: bytes) -> Bounds:
    return Bounds("string", low, high)


NULLS = Bounds("void", None, None, may_be_null=True, may_have_values=False)
CASES: list[tuple[dict[str, Any], Column | None, bool]] = [
    (of("=", 5), whole(1, 4), False),
    (of("=", 4), whole(1, 4), True),
    (of("<", 1), whole(1, 4), False),
    (of("<=", 1), whole(1, 4), True),
    (of(">", 4), whole(1, 4), False),
    (of(">=", 4), whole(1, 4), True),
    (of("in", 0, 5), whole(1, 4), False),
    (of("in", 0, 3), whole(1, 4), True),
    (of("in"), whole(1, 4), False),
    (of("in", *range(2000, 4000)), whole(1, 4), False),
    (of("in", *range(-1000, 1000)), whole(1, 4), True),
    (of("=", None), whole(1, 4), False),
    (of("<=>", None), whole(1, 4), False),
    (of("<=>", None), whole(1, 4, null=True), True),
    (of("<=>", 4), NULLS, False),
    (of("isnull"), whole(1, 4), False),
    (of("isnotnull"), NULLS, False),
    (of("=", 4), NULLS, False),
    # What isn't known, and what isn't comparable, is kept.
    (of("=", 5), None, True),
    (of("=", "5", type="string"), whole(1, 4), True),
    (of("=", 5, type="double"), whole(1, 4), True),
    (of("=", 5, type="interval day to second"), whole(1, 4), True),
    # Not is the other way round, and nulls are neither.
    ({"op": "not", "of": [of("=", 4)]}, whole(4, 4), False),
    ({"op": "not", "of": [of("=", 4)]}, whole(3, 4), True),
    ({"op": "not", "of": [of("=", 4)]}, whole(4, 4, null=True), False),
    ({"op": "not", "of": [of("<=>", 4)]}, whole(4, 4, null=True), True),
    ({"op": "not", "of": [of("in", 4, None)]}, whole(1, 9), False),
    ({"op": "not", "of": [of("in")]}, NULLS, True),
    ({"op": "not", "of": [of("=", 4)]}, None, True),
    ({"op": "not", "of": [of("<", 10)]}, whole(1, 4), False),
    ({"op": "and", "of": [of(">", 3), of("<", 2)]}, whole(1, 4), True),  # of one row it can't be true; that isn't seen
    ({"op": "and", "of": [of(">", 9), of("=", 1, column="y")]}, whole(1, 4), False),
    ({"op": "or", "of": [of(">", 9), of("=", 1, column="y")]}, whole(1, 4), True),
    ({"op": "or", "of": [of(">", 9), of("<", 1)]}, whole(1, 4), False),
    # NaN is above all numbers, and equal to itself.
    (of(">", 100, type="double"), reals(1, 2), False),
    (of(">", 100, type="double"), reals(1), True),
    (of("=", "NaN", type="double"), reals(1), True),
    (of("=", "NaN", type="double"), reals(1, 2), False),
    (of("<", 1, type="double"), reals(1), False),
    (of("<", "NaN", type="double"), reals(NAN, NAN), False),
    (of(">=", "Infinity", type="double"), reals(NAN, NAN), True),
    (of("=", -0.0, type="double"), reals(0.0, 0.0), True),
    ({"op": "not", "of": [of("=", 0.0, type="double")]}, reals(-0.0, 0.0), False),
    (of("=", 0.1, type="float"), Bounds("float", *[ordered(float(np.float32(0.1)))] * 2), True),
    # Text by its bytes.
    (of("<", "\uffff", type="string"), text("\U0001f600".encode(), b"\xf5"), False),
    (of("startswith", "b", type="string"), text(b"aa", b"az"), False),
    (of("startswith", "b", type="string"), text(b"aa", b"c"), True),
    (of("startswith", "ab", type="string"), text(b"a", b"ab"), True),
    (of("startswith", "", type="string"), text(b"a", b"b"), True),
    ({"op": "not", "of": [of("startswith", "a", type="string")]}, text(b"a", b"az"), False),
    ({"op": "not", "of": [of("startswith", "a", type="string")]}, text(b"a", b"b"), True),
    (of("=", "AP8=", type="binary"), Bounds("binary", b"\x00\xff", b"\x00\xff"), True),
    (of("=", "1.50", type="decimal(10,2)"), Bounds("decimal", Decimal("1.5"), Decimal("1.5")), True),
    (of("=", "9223372036854775807"), whole((1 << 63) - 1, (1 << 63) - 1), True),
    (of("=", True, type="boolean"), Bounds("boolean", 0, 0), False),
]


@for_each(("given", "known", "kept"), CASES)
def test_a_unit_is_kept_if_a_row_of_it_may_be_wanted(given: dict[str, Any], known: Column | None, kept: bool) -> None:
    assert keeps(given, known) is kept


def test_many_units_are_judged_at_once() -> None:
    """Judge arrays of bounds and of codes together."""
    numbers = Bounds("integer", np.array([1, 5, 9]), np.array([4, 8, 12]))
    names = Coded([Bounds.constant("string", b"a"), Bounds.constant("string", None)], np.array([0, 1, 0]))
    columns: dict[tuple[str, ...], Column] = {("x",): numbers, ("name",): names}
    for given, kept in [
        ([of(">", 4)], [False, True, True]),
        ([of("isnull", column="name")], [False, True, False]),
        ([of("=", "a", type="string", column="name"), of("<", 5)], [True, False, False]),
        ([{"op": "not", "of": [of("=", "a", type="string", column="name")]}], [False, False, False]),
        ([{"op": "or", "of": [of("isnull", column="name"), of("=", 10)]}], [False, True, True]),
    ]:
        assert Filters.parse(json.dumps(given)).keep(columns.get).tolist() == kept
    assert Filters.parse("[]").keep(columns.get) is True


@for_each(
    "said",
    [
        "x", "{}", "[1]", '[{"op": "like"}]', '[{"op": "="}]', '[{"op": "=", "column": "x"}]',
        '[{"op": "=", "column": [], "value": {"type": "long", "value": 1}}]',
        '[{"op": "=", "column": ["x"], "value": {"type": "long", "value": "one"}}]',
        '[{"op": "=", "column": ["x"], "value": {"type": "long", "value": 1.5}}]',
        '[{"op": "=", "column": ["x"], "value": {"type": "boolean", "value": 1}}]',
        '[{"op": "=", "column": ["x"], "value": {"type": "binary", "value": "*"}}]',
        '[{"op": "=", "column": ["x"], "value": {"type": "decimal(3,1)", "value": "x"}}]',
        '[{"op": "in", "column": ["x"], "values": 1}]', '[{"op": "not", "of": []}]', '[{"op": "and", "of": []}]',
        "[" + '{"op": "not", "of": [' * 200 + "]}" * 200 + "]", "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_filter_is_refused(said: str) -> None:
    with pytest.raises(InvalidArgumentError, match="no list of filters"):
        Filters.parse(said)
