"""Filters that a read may skip by: what a query asks for, and whether any row of a unit can make it true.

A unit is an entry, a ledger, or a row group, of whose columns bounds are known. Each filter is judged twice, "may it be
true for a row" and "may it be false": then ``not`` is a swap, and nulls, which are neither, need no rule of their own.
What isn't known may be both. So a unit that is skipped has no row that the query wants; whoever asked evaluates the
filter again on what was read.

Values are compared as Spark compares them: text and binary by their bytes, NaN equal to itself and above all other
numbers, -0.0 equal to 0.0. A literal of another type than the column is never compared.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol

import numpy as np

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.visibility import BoolArray, IntArray

Truth = Any
"""A truth for all units, or an array with one for each."""
_INTEGERS = ("byte", "short", "integer", "long")
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_COMPARISONS = ("=", "<=>", "<", "<=", ">", ">=", "startswith")
_OPERATORS = (*_COMPARISONS, "in", "isnull", "isnotnull", "and", "or", "not")
_DEEPEST = 100
MANY_LITERALS = 1000
"""More values of an ``in`` are taken for what lies between the least and the greatest one."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of a column in units: numbers or arrays with one for each, or bytes for all of them.

    Values lie in ``[low, high]``, both inclusive; None: nothing is known of them. ``kind`` is ``kind_of`` their type.
    """

    kind: str
    low: Any
    high: Any
    may_be_null: Truth = False
    may_have_values: Truth = True

    @classmethod
    def constant(cls, kind: str, value: Any) -> Bounds:
        """Return the bounds of a column that has one value in each unit; None is null."""
        return cls(kind, value, value, value is None, value is not None)


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of few different values: for each unit the number of the one that it has."""

    values: Sequence[Bounds]
    codes: Any


Column = Bounds | Coded
Columns = Callable[[tuple[str, ...]], Column | None]
"""Tells what is known of a column by its path; None: nothing."""


class Seen(Protocol):
    """Tells which entries the reader wants to see."""

    def __call__(
        self, columns: Mapping[str, IntArray], producers: Mapping[int, str], payload: Columns | None = None, /
    ) -> BoolArray:
        """Return a flag for each, from a page's columns and producers, and what is known of all their messages."""


@dataclass(frozen=True, slots=True)
class _Literal:
    kind: str
    value: Any
    """As the bounds of such columns are; None is null."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter: an operator over literals and a column, or over others."""

    op: str
    column: tuple[str, ...] = ()
    literals: tuple[_Literal, ...] = ()
    of: tuple[Filter, ...] = ()

    def judge(self, columns: Columns) -> tuple[Truth, Truth]:
        """Return whether it may be true, and whether it may be false, for a row of each unit."""
        if self.op in ("and", "or", "not"):
            judged = [part.judge(columns) for part in self.of]
            trues, falses = [true for true, _ in judged], [false for _, false in judged]
            if self.op == "not":
                return falses[0], trues[0]
            if self.op == "and":
                return _all(trues), _any(falses)
            return _any(trues), _all(falses)
        found = columns(self.column)
        if isinstance(found, Coded):
            judged = [self._judge(bounds) for bounds in found.values]
            true, false = (np.array([bool(pair[i]) for pair in judged], np.bool_) for i in (0, 1))
            return true[found.codes], false[found.codes]
        return (True, True) if found is None else self._judge(found)

    def _judge(self, of: Bounds) -> tuple[Truth, Truth]:
        some, null = of.may_have_values, of.may_be_null
        if self.op == "in" and not self.literals:
            return False, True  # also of null
        if self.op == "isnull" or (self.op == "<=>" and self.literals[0].value is None):
            return null, some
        if self.op == "isnotnull":
            return some, null
        if any(literal.value is None for literal in self.literals) and self.op != "in":
            return False, False  # null, whatever the row has
        other = any(literal.kind != of.kind for literal in self.literals if literal.value is not None)
        if other or of.low is None or of.high is None:
            return some, _any([some, null]) if self.op == "<=>" else some
        if self.op == "in":
            return self._in(of)
        true, false = _compared(self.op, of, self.literals[0].value)
        true, false = _all([some, true]), _all([some, false])
        return (true, _any([false, null])) if self.op == "<=>" else (true, false)

    def _in(self, of: Bounds) -> tuple[Truth, Truth]:
        values = [literal.value for literal in self.literals if literal.value is not None]
        if len(values) > MANY_LITERALS:
            true, equal = _all([of.low <= max(values), of.high >= min(values)]), False
        else:
            true = _any([_compared("=", of, value)[0] for value in values])
            equal = _any([_not(_compared("=", of, value)[1]) for value in values])
        never_false = len(values) < len(self.literals)  # a null among them: what isn't equal to any is null
        return _all([of.may_have_values, true]), False if never_false else _all([of.may_have_values, _not(equal)])


@dataclass(frozen=True, slots=True)
class Filters:
    """What a query asks for: filters that all have to be true for a row."""

    conjuncts: tuple[Filter, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.conjuncts)

    @classmethod
    def parse(cls, text: str) -> Filters:
        """Return the filters that JSON says: a list of objects with ``op``.

        Comparisons (``=``, ``<=>``, ``<``, ``<=``, ``>``, ``>=``, ``startswith``) have ``column``, a list of names,
        and ``value``; ``in`` has ``values``; ``isnull`` and ``isnotnull`` have just the column; ``and``, ``or`` and
        ``not`` have ``of``, a list of filters. A literal is ``{"type": ..., "value": ...}`` with Spark's name of the
        type: dates are days, times microseconds, decimals and integers above 2^53 text, binary is Base64.
        """
        try:
            given = json.loads(text)
            if not isinstance(given, list):
                raise ValueError("it is no list")
            return cls(tuple(_parsed(each, 0) for each in given))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidArgumentError(
                f"{text!r:.200} is no list of filters: {error!s:.100}.", "Leave it out; the catalog fills it in."
            ) from None

    @property
    def columns(self) -> set[tuple[str, ...]]:
        """The columns that they ask about, by their paths."""
        asked: set[tuple[str, ...]] = set()

        def note(path: tuple[str, ...]) -> None:
            asked.add(path)

        self.keep(note)
        return asked

    def keep(self, columns: Columns) -> Truth:
        """Return which units may have rows for which all filters are true: one truth, or one for each."""
        return _all([conjunct.judge(columns)[0] for conjunct in self.conjuncts])


def kind_of(type_name: str) -> str:
    """Return what a type's values are compared as: those of one kind can be compared with each other."""
    if type_name in _INTEGERS:
        return "integer"
    decimal = _DECIMAL.fullmatch(type_name)
    return "decimal" if decimal else type_name


def ordered(value: float) -> tuple[bool, float]:
    """Return what a float is compared by: NaN is equal to itself, and the greatest."""
    return (True, 0.0) if value != value else (False, value)


def _compared(op: str, of: Bounds, value: Any) -> tuple[Truth, Truth]:
    """Return whether a comparison may be true, and false, of a value that lies in the bounds."""
    low, high = of.low, of.high
    match op:
        case "<":
            return low < value, high >= value
        case "<=":
            return low <= value, high > value
        case ">":
            return high > value, low <= value
        case ">=":
            return high >= value, low < value
        case "startswith":
            both = low.startswith(value) and high.startswith(value)
            return low[: len(value)] <= value <= high, not both
    return _all([low <= value, high >= value]), _not(_all([low == value, high == value]))


def _all(truths: Sequence[Truth]) -> Truth:
    result: Truth = True
    for truth in truths:
        result = np.logical_and(result, truth)
    return result


def _any(truths: Sequence[Truth]) -> Truth:
    result: Truth = False
    for truth in truths:
        result = np.logical_or(result, truth)
    return result


def _not(truth: Truth) -> Truth:
    return np.logical_not(truth)


def _parsed(given: Any, depth: int) -> Filter:
    op = given["op"]
    if op not in _OPERATORS or depth > _DEEPEST:
        raise ValueError(f"there is no operator {op!r}" if depth <= _DEEPEST else "it is too deep")
    if op in ("and", "or", "not"):
        of = tuple(_parsed(each, depth + 1) for each in given["of"])
        if not of or (op == "not" and len(of) != 1):
            raise ValueError(f"{op!r} has {len(of)} filters")
        return Filter(op, of=of)
    names = given["column"]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{names!r:.50} is no column")
    if op in ("isnull", "isnotnull"):
        return Filter(op, tuple(names))
    literals = given["values"] if op == "in" else [given["value"]]
    if not isinstance(literals, list):
        raise ValueError(f"{literals!r:.50} is no list of values")
    return Filter(op, tuple(names), tuple(map(_literal, literals)))


def _literal(given: Any) -> _Literal:
    name, value = given["type"], given["value"]
    if not isinstance(name, str):
        raise ValueError(f"{name!r:.50} is no type")
    kind = kind_of(name)
    return _Literal(kind, None if value is None else _value(kind, value))


def _value(kind: str, value: Any) -> Any:
    try:
        match kind:
            case "integer" | "date" | "timestamp" | "timestamp_ntz":
                if isinstance(value, bool | float):
                    raise ValueError
                return int(value)
            case "float":
                return ordered(float(np.array(value, np.float64).astype(np.float32)))
            case "double":
                return ordered(float(value))
            case "decimal":
                return Decimal(str(value))
            case "string":
                return value.encode()
            case "binary":
                return base64.b64decode(value, validate=True)
            case "boolean":
                if not isinstance(value, bool):
                    raise ValueError
                return int(value)
    except (ValueError, TypeError, AttributeError, InvalidOperation, binascii.Error):
        raise ValueError(f"{value!r:.50} is no {kind}") from None
    return value  # of a type that no column is compared by
