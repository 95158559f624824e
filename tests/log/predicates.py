"""Random filters as the catalog hands them over, and what they mean for a row: Spark's own logic, once more."""

from __future__ import annotations

import base64
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INFINITE = ("-Infinity", "Infinity")
_COMPARISONS = ("=", "<=>", "<", "<=", ">", ">=", "in")


@dataclass(frozen=True)
class Kind:
    """A column: its path, the type of its literals, and a value that one may be."""

    path: tuple[str, ...]
    type: str
    value: Callable[[random.Random], Any]


def value_in(row: Row, path: Sequence[str]) -> Any:
    """Return a row's value."""
    found: Any = row
    for name in path:
        found = None if found is None else found[name]
    return found


def is_true(given: dict[str, Any], row: Row, types: dict[tuple[str, ...], str]) -> bool | None:
    """Return what a filter is for a row: true, false, or null."""
    op = given["op"]
    if op in ("and", "or"):
        parts = [is_true(each, row, types) for each in given["of"]]
        decisive = op == "or"
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    if op == "not":
        [part] = [is_true(each, row, types) for each in given["of"]]
        return None if part is None else not part
    path = tuple(given["column"])
    value = _comparable(value_in(row, path), types[path])
    if op in ("isnull", "isnotnull"):
        return (value is None) == (op == "isnull")
    if op == "in":
        equal = [None if None in (value, v) else value == v for v in map(_literal, given["values"])]
        return True if True in equal else None if None in equal else False
    other = _literal(given["value"])
    if op == "<=>":
        return bool(value == other)
    if value is None or other is None:
        return None
    if op == "startswith":
        return bool(value.startswith(other))
    compared: dict[str, Any] = {
        "=": value == other, "<": value < other, "<=": value <= other, ">": value > other, ">=": value >= other,
    }  # fmt: skip
    return bool(compared[op])


def random_filter(source: random.Random, kinds: Sequence[Kind], depth: int = 0) -> dict[str, Any]:
    """Return a filter of random columns and values."""
    if depth < 3 and source.random() < 0.35:
        op = source.choice(["and", "or", "not"])
        count = 1 if op == "not" else source.randint(1, 3)
        return {"op": op, "of": [random_filter(source, kinds, depth + 1) for _ in range(count)]}
    kind = source.choice(kinds)
    found: dict[str, Any] = {"op": source.choice(_COMPARISONS), "column": list(kind.path)}
    if source.random() < 0.1:
        return found | {"op": source.choice(["isnull", "isnotnull"])}
    if kind.type in ("string", "binary") and source.random() < 0.3:
        found["op"] = "startswith"
    if found["op"] == "in":
        return found | {"values": [_of(source, kind) for _ in range(source.randint(0, 4))]}
    return found | {"value": _of(source, kind)}


def literal(type_name: str, value: Any) -> dict[str, Any]:
    """Return a value as the catalog writes it."""
    match value:
        case float():
            said: Any = value if math.isfinite(value) else "NaN" if value != value else _INFINITE[value > 0]
        case bytes():
            said = base64.b64encode(value).decode()
        case Decimal():
            said = str(value)
        case datetime():
            said = ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
        case date():
            said = value.toordinal() - _EPOCH.toordinal()
        case bool() | str() | None:
            said = value
        case int():
            said = value if abs(value) < 1 << 53 else str(value)
        case _:
            raise AssertionError(value)
    return {"type": type_name, "value": said}


def _of(source: random.Random, kind: Kind) -> dict[str, Any]:
    return literal(kind.type, None if source.random() < 0.05 else kind.value(source))


def _comparable(value: Any, type_name: str) -> Any:
    return _literal(literal(type_name, value))


def _literal(given: dict[str, Any]) -> Any:
    value = given["value"]
    if value is None:
        return None
    match given["type"].partition("(")[0]:
        case "float" | "double":
            number = float(value)
            return (number != number, 0.0 if number != number else number)
        case "decimal":
            return Decimal(value)
        case "binary":
            return base64.b64decode(value)
        case "string":
            return value.encode()
        case "boolean":
            return value
    return int(value)
