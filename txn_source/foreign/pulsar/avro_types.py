"""Avro's schemas, which Pulsar uses for JSON, too, as types of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txn_source.model.errors import SchemaMismatchError, shown

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_UTC, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): _UTC,
    ("long", "timestamp-micros"): _UTC,
    ("long", "local-timestamp-millis"): _LOCAL,
    ("long", "local-timestamp-micros"): _LOCAL,
}
_MAX_DIGITS = 38
_REMEDY = "Read the topic without the option 'schema', as bytes."


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record; ``default`` counts if ``has_default``."""

    name: str
    aliases: tuple[str, ...]
    of: AvroType
    has_default: bool
    default: Any


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type: ``kind`` is Avro's name of it, or ``optional`` for a union of null and one other.

    ``items`` is what an array, a map or an optional has, ``null_at`` the number of null in an optional's union,
    ``symbols`` those of an enum, ``size`` that of a fixed, ``logical`` the logical type where it has a meaning here.
    """

    kind: str
    arrow: pa.DataType
    items: AvroType | None = None
    null_at: int = 0
    fields: tuple[AvroField, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    logical: str | None = None

    @property
    def json(self) -> pa.DataType:
        """The column's type where values are JSON: bytes are texts there, and moments plain numbers, as in Jackson."""
        if self.kind in ("array", "map", "optional"):
            assert self.items is not None
            of = self.items.json
            return of if self.kind == "optional" else pa.list_(of) if self.kind == "array" else pa.map_(pa.string(), of)
        if self.kind == "record":
            return pa.struct([pa.field(field.name, field.of.json) for field in self.fields])
        if self.logical == "decimal":
            return self.arrow
        return pa.string() if self.kind in ("bytes", "fixed") else _PLAIN.get(self.kind, self.arrow)


def parse_avro(schema: Any) -> AvroType:
    """Return a schema's type.

    Args:
        schema: what its JSON says.

    Raises:
        SchemaMismatchError: it is none, or has what no column can be: a union of several types, or a record in itself.
    """
    return _Parser().parse(schema, "")


class _Parser:
    """Parses one schema; a name stands for the type that was given it before."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}
        self._open: set[str] = set()

    def parse(self, schema: Any, space: str) -> AvroType:
        if isinstance(schema, list):
            return self._union(schema, space)
        if isinstance(schema, str):
            return self._by_name(schema, space)
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise _refused(f"{shown(str(schema))} is no Avro type")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.parse(kind, space)
        if kind in ("record", "error", "enum", "fixed"):
            return self._name(kind, schema, space)
        if kind == "array":
            items = self.parse(schema.get("items"), space)
            return AvroType("array", pa.list_(items.arrow), items)
        if kind == "map":
            items = self.parse(schema.get("values"), space)
            return AvroType("map", pa.map_(pa.string(), items.arrow), items)
        plain = self._by_name(kind, space)
        return _logical(plain, schema) if kind in _PLAIN else plain

    def _by_name(self, name: str, space: str) -> AvroType:
        if name in _PLAIN:
            return AvroType(name, _PLAIN[name])
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._open or name in self._open:
            raise _refused(f"type {shown(name)} is part of itself")
        found = self._named.get(full, self._named.get(name))
        if found is None:
            raise _refused(f"{shown(name)} is no Avro type")
        return found

    def _union(self, schema: list[Any], space: str) -> AvroType:
        others = [branch for branch in schema if branch != "null"]
        if len(others) != 1 or len(schema) > 2:
            raise _refused(f"a union of {shown(', '.join(map(str, schema)) or 'nothing')} is no type of a column")
        of = self.parse(others[0], space)
        return of if len(schema) == 1 else AvroType("optional", of.arrow, of, null_at=schema.index("null"))

    def _name(self, kind: str, schema: Mapping[str, Any], space: str) -> AvroType:
        name = str(schema.get("name", ""))
        space = str(schema.get("namespace", space)) if "." not in name else name.rpartition(".")[0]
        full = name if "." in name or not space else f"{space}.{name}"
        self._open.add(full)
        if kind == "enum":
            of = AvroType("enum", pa.string(), symbols=tuple(map(str, schema.get("symbols", ()))))
        elif kind == "fixed":
            size = int(schema.get("size", 0))
            of = _logical(AvroType("fixed", pa.binary(), size=size), schema)
        else:
            of = self._record(schema, space)
        self._open.discard(full)
        self._named[full] = of
        return of

    def _record(self, schema: Mapping[str, Any], space: str) -> AvroType:
        fields = []
        for field in schema.get("fields", ()):
            if not isinstance(field, Mapping) or "name" not in field or "type" not in field:
                raise _refused(f"{shown(str(field))} is no field")
            of = self.parse(field["type"], space)
            aliases = tuple(map(str, field.get("aliases", ())))
            fields.append(AvroField(str(field["name"]), aliases, of, "default" in field, field.get("default")))
        return AvroType("record", pa.struct([pa.field(f.name, f.of.arrow) for f in fields]), fields=tuple(fields))


def _logical(plain: AvroType, schema: Mapping[str, Any]) -> AvroType:
    """Return a type with the logical type that its schema gives it; one that means nothing here is passed over."""
    logical = schema.get("logicalType")
    if logical == "decimal" and plain.kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 < precision <= _MAX_DIGITS:
            return plain
        return AvroType(plain.kind, pa.decimal128(precision, scale), size=plain.size, logical="decimal")
    arrow = _LOGICAL.get((plain.kind, str(logical)))
    return plain if arrow is None else AvroType(plain.kind, arrow, logical=str(logical))


def _refused(what: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"The schema can't be used for columns: {what}.", _REMEDY)
