"""The option ``schema``: what Pulsar's tools print of a topic's schema, in any of its forms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from txn_source.foreign.pulsar.avro_types import AvroType, parse_avro
from txn_source.foreign.pulsar.listing import partition_of
from txn_source.foreign.pulsar.primitive_values import TYPES
from txn_source.foreign.pulsar.value_schema import ANY_VERSION, AVRO, BYTES, JSON, KEY_VALUE, PartSchema, TopicSchema
from txn_source.model.errors import SchemaMismatchError, shown

_AS_BYTES = ("NONE", "BYTES", "PROTOBUF", "PROTOBUF_NATIVE", "AUTO_CONSUME")
_REMEDY = "Give what `pulsar-admin schemas get --all-version` prints, or a primitive type's name, such as STRING."


def parse_schema(given: str | Mapping[str, Any] | Sequence[Any], topic: str) -> TopicSchema | None:
    """Return a topic's schema; None if its values are bytes.

    Args:
        given: a primitive type's name; a schema's information as JSON; a list of it, for each version; or one of these
            for each topic by its name.
        topic: the full name of the topic, or of a partition of it.

    Raises:
        SchemaMismatchError: it is none of these, or a schema that can't be used for columns.
    """
    versions = _versions(_of_topic(_parsed(given), topic))
    if versions is None:
        return None
    kinds = {kind for _, kind, _, _ in versions}
    if len(kinds) > 1:
        raise SchemaMismatchError(
            f"The versions of the schema of {topic} are {', '.join(sorted(kinds))}.", "Give versions of one type."
        )
    [kind] = kinds
    if kind == KEY_VALUE:
        return _pair(topic, versions)
    part = _part([(version, kind, schema) for version, _, schema, _ in versions], topic)
    return None if part.kind == BYTES else TopicSchema(part)


def _parsed(given: Any) -> Any:
    """Return JSON's values of text; a name as it is."""
    if isinstance(given, bytes):
        given = given.decode(errors="replace")
    if not isinstance(given, str) or not given.strip().startswith(("{", "[", '"')):
        return given
    try:
        return json.loads(given)
    except ValueError:
        raise SchemaMismatchError(f"{shown(given)} is no JSON.", _REMEDY) from None


def _of_topic(given: Any, topic: str) -> Any:
    """Return what is given of a topic; None if only others are named."""
    if isinstance(given, Mapping) and not given.keys() & {"type", "schemaInfo", "schema"}:
        if not given or not all(isinstance(name, str) and "://" in name for name in given):
            raise SchemaMismatchError(f"{shown(str(given))} is no schema.", _REMEDY)
        return _parsed(given.get(topic, given.get(partition_of(topic).topic)))
    return given


_Version = tuple[int, str, Any, Mapping[str, str]]
"""Version, type, schema, properties."""


def _versions(given: Any) -> list[_Version] | None:
    if given is None:
        return None
    if isinstance(given, Sequence) and not isinstance(given, str):
        if not given:
            raise SchemaMismatchError("The list of the schema's versions is empty.", _REMEDY)
        return [_info(info, at) for at, info in enumerate(given)]
    return [_info(given, ANY_VERSION)]


def _info(given: Any, version: int) -> _Version:
    """Return a version's information; its number is the one that it says, else the one given."""
    given = _parsed(given)
    if isinstance(given, str):
        given = {"type": given}
    if isinstance(given, Mapping) and "schemaInfo" in given:
        version, given = given.get("version", version), given["schemaInfo"]
    if not isinstance(given, Mapping) or not isinstance(given.get("type"), str) or not isinstance(version, int):
        raise SchemaMismatchError(f"{shown(str(given))} is no schema.", _REMEDY)
    kind = given["type"].upper().replace("-", "_")
    properties = given.get("properties") or {}
    if not isinstance(properties, Mapping):
        raise SchemaMismatchError(f"{shown(str(properties))} are no properties of a schema.", _REMEDY)
    version = given.get("version", version)
    if not isinstance(version, int):
        raise SchemaMismatchError(f"{shown(str(version))} is no version of a schema.", _REMEDY)
    return version, kind, given.get("schema"), properties


def _part(versions: list[tuple[int, str, Any]], topic: str) -> PartSchema:
    kind = versions[-1][1]
    if kind in _AS_BYTES:
        return PartSchema(BYTES)
    if kind in TYPES:
        return PartSchema(kind)
    if kind not in (AVRO, JSON):
        known = ", ".join((*TYPES, *_AS_BYTES, AVRO, JSON, KEY_VALUE))
        raise SchemaMismatchError(f"{topic} can't have a schema of type {shown(kind)}.", f"Use one of {known}.")
    return PartSchema(kind, tuple((version, _avro(schema, topic)) for version, _, schema in versions))


def _avro(schema: Any, topic: str) -> AvroType:
    if isinstance(schema, Sequence) and not isinstance(schema, str) and all(isinstance(b, int) for b in schema):
        schema = _bytes(schema)
    found = _parsed(schema)
    if not found:
        raise SchemaMismatchError(f"The schema of {topic} has no definition.", _REMEDY)
    return parse_avro(found)


def _bytes(items: Sequence[int]) -> str:
    """Return the text in the bytes of a schema, which tools print as a list of numbers, perhaps signed."""
    return bytes(item & 0xFF for item in items).decode(errors="replace")


def _pair(topic: str, versions: list[_Version]) -> TopicSchema:
    parts: dict[str, list[tuple[int, str, Any]]] = {"key": [], "value": []}
    encodings = set()
    for version, _, schema, properties in versions:
        encodings.add(str(properties.get("kv.encoding.type", "INLINE")).upper())
        for part, found in zip(("key", "value"), _halves(schema), strict=True):
            kind = str(properties.get(f"{part}.schema.type", BYTES)).upper()
            if isinstance(found, Mapping) and isinstance(found.get("schema"), (str, Mapping)) and "type" in found:
                kind, found = str(found["type"]).upper(), found["schema"]
            parts[part].append((version, kind, found))
    if len(encodings) > 1 or not encodings <= {"INLINE", "SEPARATED"}:
        raise SchemaMismatchError(
            f"Pairs of {topic} are encoded as {', '.join(sorted(encodings))}.", "Use INLINE or SEPARATED."
        )
    return TopicSchema(_part(parts["value"], topic), _part(parts["key"], topic), inline=encodings == {"INLINE"})


def _halves(schema: Any) -> tuple[Any, Any]:
    """Return the schemas of key and value: fields of an object, or bytes with lengths."""
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        data = bytes(item & 0xFF for item in schema)
        halves = []
        for _ in range(2):
            size = int.from_bytes(data[:4], "big", signed=True)
            halves.append(data[4 : 4 + max(size, 0)].decode(errors="replace"))
            data = data[4 + max(size, 0) :]
        return halves[0], halves[1]
    parsed = _parsed(schema)
    if not isinstance(parsed, Mapping):
        return None, None
    return parsed.get("key"), parsed.get("value")
