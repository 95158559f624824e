"""Values that were written with one version of an Avro schema, as those of another one, by Avro's rules."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa

from txn_source.foreign.pulsar.avro_types import AvroField, AvroType
from txn_source.foreign.pulsar.columns import taken
from txn_source.model.errors import SchemaMismatchError

_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_REMEDY = "Give the versions of one schema that were checked to be compatible, or read the topic as bytes."


def resolved(array: pa.Array, writer: AvroType, reader: AvroType) -> pa.Array:
    """Return values in the reader's type: fields by name or alias, defaults for what is missing, wider numbers.

    Raises:
        SchemaMismatchError: the versions don't go together.
    """
    if writer == reader:
        return array
    if writer.kind == "optional":
        return resolved(array, writer.items or writer, reader)
    if reader.kind == "optional":
        return resolved(array, writer, reader.items or reader)
    if writer.kind == "null":
        return pa.nulls(len(array), reader.arrow)
    if writer.kind == reader.kind == "record":
        return _record(array, writer, reader)
    if writer.kind == reader.kind and writer.kind in ("array", "map"):
        return _items(array, writer, reader)
    if writer.arrow == reader.arrow and (writer.kind == reader.kind or writer.kind in _WIDER):
        return array
    if reader.kind in _WIDER.get(writer.kind, ()) and not reader.logical:
        try:
            return array.cast(reader.arrow)
        except pa.ArrowInvalid:
            return array.cast(reader.arrow, safe=False)
    raise SchemaMismatchError(f"What was written as {writer.kind} can't be read as {reader.kind}.", _REMEDY)


def _record(array: pa.Array, writer: AvroType, reader: AvroType) -> pa.Array:
    known = {field.name: at for at, field in enumerate(writer.fields)}
    parts = []
    for field in reader.fields:
        at = next((known[name] for name in (field.name, *field.aliases) if name in known), None)
        if at is not None:
            parts.append(resolved(array.field(at), writer.fields[at].of, field.of))
        else:
            parts.append(_default(field, len(array)))
    validity = taken(array, np.arange(len(array))).buffers()[0] if array.null_count else None
    return pa.Array.from_buffers(reader.arrow, len(array), [validity], children=parts)


def _items(array: pa.Array, writer: AvroType, reader: AvroType) -> pa.Array:
    assert writer.items is not None
    assert reader.items is not None
    if array.offset:
        array = taken(array, np.arange(len(array)))
    buffers = [array.buffers()[0] if array.null_count else None, array.buffers()[1]]
    if reader.kind == "array":
        child = resolved(array.values, writer.items, reader.items)
    else:
        entry = [reader.arrow.key_field, reader.arrow.item_field]
        child = pa.StructArray.from_arrays(
            [array.keys, resolved(array.items, writer.items, reader.items)], fields=entry
        )
    return pa.Array.from_buffers(reader.arrow, len(array), buffers, children=[child])


def _default(field: AvroField, count: int) -> pa.Array:
    """Return a field's default so many times.

    Raises:
        SchemaMismatchError: it has none.
    """
    if not field.has_default:
        raise SchemaMismatchError(
            f"Field {field.name!r} was not written by an older version, and the newest one has no default for it.",
            _REMEDY,
        )
    if field.default is None:
        return pa.nulls(count, field.of.arrow)
    return taken(_constant(field.of, field.default), np.zeros(count, np.int64))


def _constant(of: AvroType, value: Any) -> pa.Array:
    """Return an array with one value, given as JSON."""
    of = of.items if of.kind == "optional" and of.items else of
    if of.arrow == pa.binary():
        data = str(value).encode("latin-1", "replace")
        offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
        return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])
    from pyarrow import json as arrow_json

    text = json.dumps({"v": value}).encode()
    kind = of.json
    try:
        schema = pa.schema([("v", kind)])
        options = arrow_json.ParseOptions(explicit_schema=schema)
        found = arrow_json.read_json(io.BytesIO(text), parse_options=options).column("v").chunk(0)
        return found if found.type == of.arrow else found.view(of.arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise SchemaMismatchError(f"The default {value!r} of a field is no {of.kind}.", _REMEDY) from None
