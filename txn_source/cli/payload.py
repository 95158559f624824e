"""Values of typed columns in JSON: what ``consume`` prints of them, ``produce`` takes.

Times are ISO 8601 (UTC where a zone is wanted and none is given), durations seconds, decimals numbers or text, binary
text or ``{"base64": "..."}``, maps objects.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from txn_source.model.errors import SchemaMismatchError


def parse_message(line: bytes, schema: pa.Schema) -> dict[str, Any]:
    """Return the columns of a message from one line of JSON.

    Raises:
        SchemaMismatchError: the line is not a JSON object, or a value can't be its column's.
    """
    try:
        message = json.loads(line, parse_float=Decimal)
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError
        raise _not_an_object(line, schema, str(error)) from None
    if not isinstance(message, dict):
        raise _not_an_object(line, schema, f"it is a {type(message).__name__}")
    for field in schema:
        given = message.get(field.name)
        if given is None:
            continue
        try:
            message[field.name] = _from_json(given, field.type)
        except (ValueError, TypeError, KeyError, pa.ArrowException, InvalidOperation):
            came = json.dumps(given, default=float)
            raise SchemaMismatchError(
                f"Column {field.name!r} doesn't fit: expected {field.type}, came {came:.80}.",
                "Convert it before you send it.",
            ) from None
    return message


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return a batch's rows as values that have a JSON form, with maps as dicts."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if types.is_timestamp(field.type) and field.type.unit == "ns":
            values = column.cast(pa.string()).to_pylist()  # Python's datetime ends at microseconds
        else:
            values = column.to_pylist()
        if types.is_nested(field.type):
            values = [_plain(value, field.type) for value in values]
        columns.append(values)
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _not_an_object(line: bytes, schema: pa.Schema, why: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"{line[:60]!r} is not a JSON object ({why}), and the topic has typed columns.",
        f"Write one object in each line, with the columns {', '.join(schema.names)}.",
    )


def _from_json(value: Any, kind: pa.DataType) -> Any:
    """Return what Arrow takes for a JSON value; raise if the value can't be of that type, lest it be bent to fit."""
    if value is None:
        return None
    if types.is_list(kind) or types.is_large_list(kind):
        return [_from_json(item, kind.value_type) for item in _expect(value, list)]
    if types.is_struct(kind):
        fields = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
        return {name: _from_json(item, fields[name]) for name, item in _expect(value, dict).items()}
    if types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else _expect(value, list)
        return [(_map_key(key, kind.key_type), _from_json(item, kind.item_type)) for key, item in pairs]
    for is_kind, convert in _CONVERSIONS:
        if is_kind(kind):
            return convert(value, kind)
    return value


def _map_key(key: Any, kind: pa.DataType) -> Any:
    if isinstance(key, str) and (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        key = json.loads(key)  # an object's keys are always text
    return _from_json(key, kind)


def _expect(value: Any, *python: type) -> Any:
    if not isinstance(value, python) or (isinstance(value, bool) and bool not in python):
        raise TypeError
    return value


def _binary(value: Any, _: pa.DataType) -> bytes:
    if isinstance(value, dict):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise ValueError from error
    return bytes(_expect(value, str).encode())


def _moment(value: Any, kind: pa.DataType) -> int:
    if isinstance(value, int):
        return int(_expect(value, int))
    text = pa.scalar(_expect(value, str))
    try:
        return int(text.cast(kind).value)
    except pa.ArrowInvalid:
        if not types.is_timestamp(kind) or kind.tz is None:
            raise
        return int(pa.scalar(value + "Z").cast(kind).value)


_CONVERSIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]], ...] = (
    (types.is_boolean, lambda value, _: _expect(value, bool)),
    (types.is_integer, lambda value, _: _expect(value, int)),
    (types.is_floating, lambda value, _: float(_expect(value, int, float, Decimal))),
    (types.is_decimal, lambda value, _: Decimal(_expect(value, int, float, Decimal, str))),
    (types.is_string, lambda value, _: _expect(value, str)),
    (types.is_large_string, lambda value, _: _expect(value, str)),
    (types.is_binary, _binary),
    (types.is_large_binary, _binary),
    (types.is_date, _moment),
    (types.is_timestamp, _moment),
    (types.is_duration, lambda value, _: timedelta(seconds=float(_expect(value, int, float, Decimal)))),
)


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if types.is_map(kind):
        return {key: _plain(item, kind.item_type) for key, item in value}
    if types.is_list(kind) or types.is_large_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if types.is_struct(kind):
        return {name: _plain(item, kind.field(name).type) for name, item in value.items()}
    return value
