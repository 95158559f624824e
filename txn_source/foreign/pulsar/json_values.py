"""Values that are JSON, as columns: many at once by Arrow's parser, and one by one where that doesn't know them."""

from __future__ import annotations

import decimal
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_source.foreign.pulsar.avro_types import AvroType
from txn_source.model.visibility import BoolArray

_INT_LIMITS = {"int": 1 << 31, "long": 1 << 63}
_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def decode_json(of: AvroType, values: pa.Array) -> tuple[pa.Array, BoolArray]:
    """Return values of a type, and which of them aren't its JSON; these are null.

    Args:
        of: the type; fields that it doesn't have are passed over, and what a value lacks is null.
        values: the values' bytes, without nulls.
    """
    found = _at_once(of, values)
    return _one_by_one(of, values) if found is None else (found, np.zeros(len(values), np.bool_))


def _at_once(of: AvroType, values: pa.Array) -> pa.Array | None:
    """Return all values; None if any isn't JSON of the type, or Arrow has no parser for it.

    Each value is put into an object of its own with its number, so that one with a line too many is found.
    """
    from pyarrow import json as arrow_json

    if not len(values):
        return pa.nulls(0, of.json)
    try:
        texts = values.cast(pa.string())
        count = pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.arange(len(values)))])
        rows = pc.binary_join_element_wise('{"i":', count.cast(pa.string()), ',"v":', texts, "}\n", "")
        schema = pa.schema([("i", pa.int64()), ("v", of.json)])
        offsets = np.frombuffer(rows.buffers()[1], np.int32, len(rows) + 1)
        data = rows.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        table = arrow_json.read_json(
            pa.BufferReader(data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=data.size + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
        numbered = table.column("i").combine_chunks()
        found = table.column("v").combine_chunks()
        found.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError, UnicodeDecodeError):
        return None
    return found if len(found) == len(values) and numbered.equals(count) else None


def _one_by_one(of: AvroType, values: pa.Array) -> tuple[pa.Array, BoolArray]:
    bad = np.zeros(len(values), np.bool_)
    rows: list[Any] = []
    for at, text in enumerate(values.to_pylist()):
        try:
            rows.append(_as(of, json.loads(text, parse_float=decimal.Decimal)))
        except (ValueError, TypeError, ArithmeticError, RecursionError):
            rows.append(None)
            bad[at] = True
    return pa.array(rows, of.json), bad


def _as(of: AvroType, value: Any) -> Any:
    """Return a value of JSON as one of a type.

    Raises:
        ValueError, TypeError: it is none.
    """
    if value is None:
        return None
    if of.kind == "optional":
        assert of.items is not None
        return _as(of.items, value)
    if of.kind == "record":
        return {field.name: _as(field.of, _expect(value, dict).get(field.name)) for field in of.fields}
    if of.items is not None:
        items = of.items
        if of.kind == "array":
            return [_as(items, item) for item in _expect(value, list)]
        return [(_text(key), _as(items, item)) for key, item in _expect(value, dict).items()]
    if of.logical == "decimal":
        return decimal.Decimal(_expect(value, decimal.Decimal, int, str)).quantize(
            decimal.Decimal(1).scaleb(-of.arrow.scale), context=decimal.Context(prec=of.arrow.precision)
        )
    if of.kind in _INT_LIMITS:
        number, limit = _expect(value, int), _INT_LIMITS[of.kind]
        if isinstance(number, bool) or not -limit <= number < limit:
            raise ValueError
        return number
    if of.kind in ("float", "double"):
        if isinstance(value, str):
            return _FLOATS[value] if value in _FLOATS else _expect(value, float)
        return float(
            _expect(value, float, int, decimal.Decimal) if not isinstance(value, bool) else _expect(value, str)
        )
    return _expect(value, bool) if of.kind == "boolean" else _text(value)


def _expect(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds):
        raise TypeError
    return value


def _text(value: Any) -> str:
    text: str = _expect(value, str)
    text.encode()
    return text
