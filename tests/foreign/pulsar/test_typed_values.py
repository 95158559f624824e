"""Keys and values as columns with types, by the topic's schema: what was written comes back, and nothing else does."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import txn_source
from tests.foreign.pulsar.offload_writer import LZ4, Frame, Sent, batch, number, single, varint, write_ledger
from tests.foreign.pulsar.sample_cases import partitions, rows_of, unpack, whole
from tests.foreign.pulsar.test_messages import _batched, read
from tests.selection import examples, for_each
from txn_source.foreign.pulsar.schema_option import parse_schema
from txn_source.importing.import_topics import import_topics
from txn_source.model.errors import MessageUnreadableError, SchemaMismatchError

_UTC = datetime.UTC


def avro(of: Any, value: Any) -> bytes:
    """Return a value in Avro's encoding."""
    kind = of["type"] if isinstance(of, dict) else of
    if isinstance(of, list):
        at = of.index("null") if value is None else next(at for at, branch in enumerate(of) if branch != "null")
        return long(at) + (b"" if value is None else avro(of[at], value))
    if isinstance(kind, (dict, list)):
        return avro(kind, value)
    if kind in ("int", "long"):
        return long(value)
    if kind in ("string", "bytes"):
        data = value.encode() if kind == "string" else value
        return long(len(data)) + bytes(data)
    if kind == "record":
        return b"".join(avro(field["type"], value[field["name"]]) for field in of["fields"])
    if kind == "array":
        return blocks([avro(of["items"], item) for item in value])
    if kind == "map":
        return blocks([avro("string", key) + avro(of["values"], item) for key, item in value.items()])
    if kind == "enum":
        return long(of["symbols"].index(value))
    if kind == "fixed":
        return bytes(value)
    if kind == "null":
        return b""
    return struct.pack({"float": "<f", "double": "<d", "boolean": "?"}[kind], value)


def long(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def blocks(items: list[bytes]) -> bytes:
    """Return items in blocks of three, every other one with its size."""
    out = b""
    for at in range(0, len(items), 3):
        part = items[at : at + 3]
        body = b"".join(part)
        out += long(-len(part)) + long(len(body)) + body if at % 2 else long(len(part)) + body
    return out + b"\0"


def info(kind: str, schema: Any, version: int | None = None, **properties: str) -> dict[str, Any]:
    found = {"name": "s", "type": kind, "schema": schema, "properties": properties}
    return found if version is None else {"version": version, "schemaInfo": found}


def values(folder: Path, schema: Any, *data: bytes | None, **options: Any) -> list[Any]:
    """Write values as single messages and as a batch, and return the column that a schema makes of them."""
    messages = [Sent(item) for item in data]
    entries = [single(message) for message in messages] + [batch(messages, Frame(codec=LZ4))]
    rows = [row["value"] for row in read(folder, entries, ("value",), schema=schema, **options)]
    assert [repr(row) for row in rows[: len(data)]] == [repr(row) for row in rows[len(data) :]]
    return rows[: len(data)]


_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    "bytes": st.binary(max_size=6),
    "boolean": st.booleans(),
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
}


@st.composite
def _types(draw: st.DrawFn, depth: int = 0, bytes_too: bool = True) -> tuple[Any, st.SearchStrategy[Any]]:
    """Draw a type, and what draws values of it."""
    kinds = [kind for kind in _PLAIN if bytes_too or kind != "bytes"] + ["enum"] * (depth > 0)
    kind = draw(st.sampled_from(kinds + ["record", "array", "map", "optional"] * (depth < 3)))
    name = f"n{draw(st.integers(0, 1 << 60))}"
    if kind in _PLAIN:
        return kind, _PLAIN[kind]
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "BB", ""]}, st.sampled_from(["A", "BB", ""])
    if kind == "record":
        parts = draw(st.lists(_types(depth + 1, bytes_too), min_size=1, max_size=3))
        fields = [{"name": f"f{at}", "type": of} for at, (of, _) in enumerate(parts)]
        record = {"type": "record", "name": name, "fields": fields}
        return record, st.fixed_dictionaries({f"f{at}": item for at, (_, item) in enumerate(parts)})
    of, item = draw(_types(depth + 1, bytes_too).filter(lambda found: not isinstance(found[0], list)))
    if kind == "optional":
        return draw(st.permutations(["null", of])), st.none() | item
    if kind == "array":
        return {"type": "array", "items": of}, st.lists(item, max_size=8)
    return {"type": "map", "values": of}, st.dictionaries(_PLAIN["string"], item, max_size=5)


def _shown(value: Any) -> Any:
    """Return a value as Arrow gives it back: maps are pairs."""
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else value


def _expected(of: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(of, list):
        return _expected(next(branch for branch in of if branch != "null"), value)
    kind = of["type"] if isinstance(of, dict) else of
    if kind == "record":
        return {field["name"]: _expected(field["type"], value[field["name"]]) for field in of["fields"]}
    if kind == "array":
        return [_expected(of["items"], item) for item in value]
    return [(key, _expected(of["values"], item)) for key, item in value.items()] if kind == "map" else value


@settings(suppress_health_check=list(HealthCheck), max_examples=examples(12), deadline=None)
@given(st.data())
def test_avro_values_come_back(tmp_path: Path, data: st.DataObject) -> None:
    """Draw a schema and values: they come back, nulls among them, and half of one never does."""
    of, items = data.draw(_types())
    sent = data.draw(st.lists(items, min_size=1, max_size=6))
    coded = [avro(of, item) for item in sent]
    found = values(tmp_path, info("AVRO", of), *coded, None)
    assert found == [*(_expected(of, item) for item in sent), None]
    cut = coded[0][: data.draw(st.integers(0, max(len(coded[0]) - 1, 0)))]
    if coded[0]:
        with pytest.raises(MessageUnreadableError, match="The value of the message at 7:0 in"):
            values(tmp_path, info("AVRO", of), cut)
    assert values(tmp_path, info("AVRO", of), coded[0] + b"\0", *coded, bad_values="null") == [None, *found[:-1]]


@settings(suppress_health_check=list(HealthCheck), max_examples=examples(20), deadline=None)
@given(st.binary(max_size=40), st.data())
def test_avro_of_any_bytes(tmp_path: Path, noise: bytes, data: st.DataObject) -> None:
    """Decode noise: it is refused, or a value; never an error that isn't ours, and never endless."""
    of, _ = data.draw(_types())
    assert len(values(tmp_path, info("AVRO", of), noise, b"", noise * 3, bad_values="null")) == 3


@settings(suppress_health_check=list(HealthCheck), max_examples=examples(10), deadline=None)
@given(st.data())
def test_json_values_come_back(tmp_path: Path, data: st.DataObject) -> None:
    """Draw a schema and values as JSON, in any layout: they come back; what isn't JSON is refused."""
    of, items = data.draw(_types(bytes_too=False))
    sent = data.draw(st.lists(items, min_size=1, max_size=5))
    coded = [json.dumps(item, indent=at % 2 or None).encode() for at, item in enumerate(sent)]
    coded += [b" " + coded[0] + b"\n"]
    wanted = [_expected(of, item) for item in [*sent, sent[0]]]
    assert values(tmp_path, info("JSON", of), *coded, None) == [*wanted, None]
    for bad in (b"", b"{", coded[0] + b"}", coded[0] + b"," + coded[0], b"\xff", b"]"):
        assert values(tmp_path, info("JSON", of), bad, *coded, bad_values="null") == [None, *wanted]


_ROW = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "a", "type": ["null", "long"]}, {"name": "x", "type": "double"}],
}


@for_each(
    ("text", "wanted"),
    [
        ('{"a": 1, "x": 2}', {"a": 1, "x": 2.0}),
        ('{"x": 2.5, "more": {"y": []}}', {"a": None, "x": 2.5}),
        ('{"x": "NaN"}', math.nan),
        ('{"a": null}', {"a": None, "x": None}),
        ("null", None),
        ('{"a": 1.5}', "bad"),
        ('{"a": true}', "bad"),
        ('{"a": "1"}', "bad"),
        ('{"a": 9223372036854775808}', "bad"),
        ('{"x": true}', "bad"),
        ("[1]", "bad"),
        ("7", "bad"),
        ('{"a": 1}\n{"a": 2}', "bad"),
        ('{"a": 1}}\n{"i": 1, "v": {"a": 2}', "bad"),
    ],
)
def test_json_that_is_odd(tmp_path: Path, text: str, wanted: Any) -> None:
    """Read JSON as Pulsar's clients write it and JSON that is something else, among good values."""
    good = b'{"a": 5, "x": 1}'
    schema = info("JSON", json.dumps(_ROW))
    found = values(tmp_path, schema, good, text.encode(), good, bad_values="null")
    assert [found[0], found[2]] == [{"a": 5, "x": 1.0}] * 2
    if wanted == "bad":
        assert found[1] is None
        with pytest.raises(MessageUnreadableError, match="message at 7:1 in"):
            values(tmp_path, schema, good, text.encode(), good)
    elif wanted is math.nan:
        assert math.isnan(found[1]["x"])
    else:
        assert found[1] == wanted


def test_schema_sample(tmp_path: Path) -> None:
    """Read what Pulsar's own clients wrote with two versions of a schema, and as pairs: as they gave it."""
    case = unpack("schema", tmp_path)
    told = case.json("managed-ledger.json")
    sent = {(e["id"]["ledger"], e["id"]["entry"], e["id"]["batch_index"]): e for e in case.lines("expected.jsonl.gz")}
    log = case.log(schema={topic: info["schemas"] for topic, info in told.items()})
    as_json = case.log(schema={t: i["schemas"] for t, i in told.items() if t.endswith("json")})
    count = 0
    for partition, other in zip(partitions(log), partitions(as_json), strict=True):
        kind = partition.topic.rpartition("-")[2]
        columns = ("key", "value", "__ledger_id", "__entry_id", "__batch_index", "__schema_version")
        for row in rows_of(partition, whole(partition), columns=columns):
            wanted = sent[row["__ledger_id"], row["__entry_id"], row["__batch_index"]]
            data = base64.b64decode(wanted["value"])
            count += 1
            if kind == "string":
                assert row["value"] == data.decode()
            elif kind == "avro":
                assert row["value"] == _by_hand(data, row["__schema_version"] == b"\0" * 7 + b"\1")
            else:
                text = json.loads(data)
                names = (
                    ("added", "amount", "name", "opt", "tags") if kind == "json" else ("amount", "name", "opt", "tags")
                )
                assert row["value"] == {name: text.get(name) for name in names}
            if kind == "kv":
                assert row["key"] == base64.b64decode(wanted["key"]).decode()
        assert other.schema is None or kind == "json"
    assert count == len(sent)


def _by_hand(data: bytes, newer: bool) -> dict[str, Any]:
    """Decode the sample's record."""
    at = 0

    def take() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (value >> 1) ^ -(value & 1)

    def text() -> str:
        nonlocal at
        size = take()
        at += size
        return data[at - size : at].decode()

    row: dict[str, Any] = {"added": text() if newer and take() else None}
    row |= {"amount": take(), "name": text() if take() else None, "opt": take() if take() else None, "tags": None}
    if take():
        row["tags"] = []
        while count := take():
            row["tags"] += [text() for _ in range(count)]
    return row


def test_versions_are_read_as_the_newest(tmp_path: Path) -> None:
    """Write with three versions: fields come by name or alias, with defaults, and numbers become wider."""
    old = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "string"}, {"name": "a", "type": "int"}]}
    new = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": ["null", "double"]},
            {"name": "c", "aliases": ["b"], "type": "string"},
            {"name": "d", "type": {"type": "array", "items": "long"}, "default": [1, 2]},
            {"name": "e", "type": ["null", "int"], "default": None},
        ],
    }
    schema = [info("AVRO", json.dumps(old), 0), info("AVRO", old, 1), info("AVRO", new, 4)]
    last = {"a": None, "c": "y", "d": [7], "e": 3}
    entries = [
        single(Sent(avro(old, {"a": 5, "b": "x"})), Frame(schema_version=bytes(8))),
        batch([Sent(avro(new, last)), Sent(None)], Frame(schema_version=bytes(7) + b"\4")),
        single(Sent(avro(new, last))),
    ]
    rows = [row["value"] for row in read(tmp_path, entries, ("value",), schema=schema)]
    assert rows == [{"a": 5.0, "c": "x", "d": [1, 2], "e": None}, last, None, last]
    with pytest.raises(SchemaMismatchError, match=r"version 4 of the schema, and only 0, 1 is given"):
        read(tmp_path, entries, ("value",), schema=schema[:2])
    assert len(read(tmp_path, entries, ("__entry_id",), schema=schema[:2])) == 4
    worse = new | {"fields": [{"name": "z", "type": "int"}]}
    with pytest.raises(SchemaMismatchError, match="Field 'z' was not written by an older version"):
        read(tmp_path, entries, ("value",), schema=[schema[0], info("AVRO", worse, 4)])
    worse = new | {"fields": [{"name": "a", "type": "boolean"}]}
    with pytest.raises(SchemaMismatchError, match="was written as int can't be read as boolean"):
        read(tmp_path, entries, ("value",), schema=[schema[0], info("AVRO", worse, 4)])


_MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 45, 123000, _UTC)
_MS = 1709209845123


@for_each(
    ("kind", "data", "wanted"),
    [
        ("string", "é".encode(), "é"),
        ("STRING", b"\xff", "\ufffd"),
        ("BYTES", b"\xff", b"\xff"),
        ("PROTOBUF", b"\xff", b"\xff"),
        ("BOOLEAN", b"\1", True),
        ("BOOLEAN", b"\0", False),
        ("INT8", b"\xfe", -2),
        ("int16", b"\x80\x01", -32767),
        ("INT32", b"\xff\xff\xff\xfe", -2),
        ("INT64", (1 << 62).to_bytes(8, "big"), 1 << 62),
        ("FLOAT", struct.pack(">f", 1.5), 1.5),
        ("DOUBLE", struct.pack(">d", -2.25), -2.25),
        ("DATE", struct.pack(">q", _MS), _MOMENT),
        ("TIMESTAMP", struct.pack(">q", _MS), _MOMENT),
        ("TIME", struct.pack(">q", 1500), 1_500_000_000),
        ("INSTANT", struct.pack(">qi", _MS // 1000, 123_000_999), _MOMENT),
        ("LOCAL_DATE", struct.pack(">q", 19782), datetime.date(2024, 2, 29)),
        ("LOCAL_TIME", struct.pack(">q", 5), 5),
        ("LOCAL_DATE_TIME", struct.pack(">qq", 19782, 45_045_123_000_000), _MOMENT.replace(tzinfo=None)),
    ],
)
def test_primitive_values(tmp_path: Path, kind: str, data: bytes, wanted: Any) -> None:
    """Read each primitive schema; a value of another width is none."""
    for schema in (kind, info(kind.upper(), ""), {"persistent://public/default/orders": kind}):
        assert values(tmp_path, schema, data, None, data) == [wanted, None, wanted]
    if kind.upper() not in ("STRING", "BYTES", "PROTOBUF"):
        assert values(tmp_path, kind, data + b"\0", data, b"", bad_values="null") == [None, wanted, None]
        with pytest.raises(MessageUnreadableError, match="7:1 in"):
            values(tmp_path, kind, data, data[:-1])


@for_each("kind", ["DATE", "TIME", "INSTANT", "LOCAL_DATE", "LOCAL_DATE_TIME"])
def test_moments_beyond_what_columns_hold(tmp_path: Path, kind: str) -> None:
    """A moment that fits no column is no other moment."""
    tail = b"\0" * {"INSTANT": 4, "LOCAL_DATE_TIME": 8}.get(kind, 0)
    for value in ((1 << 63) - 1, -(1 << 63)):
        assert values(tmp_path, kind, struct.pack(">q", value) + tail, bad_values="null") == [None]


def test_logical_types(tmp_path: Path) -> None:
    """Read dates, moments and decimals of Avro; a logical type that isn't known is passed over."""
    fields = [
        ("d", {"type": "int", "logicalType": "date"}, 19782, datetime.date(2024, 2, 29)),
        ("m", {"type": "long", "logicalType": "timestamp-millis"}, _MS, _MOMENT),
        ("l", {"type": "long", "logicalType": "local-timestamp-micros"}, _MS * 1000, _MOMENT.replace(tzinfo=None)),
        ("t", {"type": "int", "logicalType": "time-millis"}, 5, 5),
        ("n", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, b"\xfe\x0c", "-5.00"),
        (
            "f",
            {"type": "fixed", "name": "F", "size": 3, "logicalType": "decimal", "precision": 4, "scale": 1},
            b"\0\0\x7b",
            "12.3",
        ),
        ("u", {"type": "string", "logicalType": "uuid"}, "u", "u"),
        ("g", {"type": "fixed", "name": "G", "size": 2}, b"ab", b"ab"),
    ]
    of = {"type": "record", "name": "R", "fields": [{"name": name, "type": type_} for name, type_, _, _ in fields]}
    data = avro(of, {name: sent for name, _, sent, _ in fields})
    [found] = values(tmp_path, info("AVRO", of), data)
    wanted = {name: decimal.Decimal(w) if name in "nf" else w for name, _, _, w in fields}
    assert found == wanted
    text = json.dumps({"d": 3, "m": 4, "n": 5.25, "g": "YWI=", "u": "x"}).encode()
    [found] = values(tmp_path, info("JSON", of), text)
    assert (found["d"], found["m"], found["n"], found["g"]) == (3, 4, decimal.Decimal("5.25"), "YWI=")


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_pairs(tmp_path: Path, encoding: str) -> None:
    """Read pairs whose parts lie together, and with the key as the message's; nulls and cut ones among them."""
    halves = {"key": "", "value": _ROW}
    properties = {"kv.encoding.type": encoding, "key.schema.type": "INT32", "value.schema.type": "AVRO"}
    schemas: list[Any] = [info("KEY_VALUE", halves, **properties)]
    packed = b"\0\0\0\0" + struct.pack(">i", len(json.dumps(_ROW))) + json.dumps(_ROW).encode()
    schemas.append([info("KEY_VALUE", list(packed), **properties)])
    key, value = struct.pack(">i", 7), avro(_ROW, {"a": 3, "x": 0.5})
    whole_pair = struct.pack(">i", 4) + key + struct.pack(">i", len(value)) + value
    for schema in schemas:
        if encoding == "INLINE":
            none = struct.pack(">ii", -1, -1)
            row = {"key": 7, "value": {"a": 3, "x": 0.5}}
            assert values(tmp_path, schema, whole_pair, none, None) == [row, {"key": None, "value": None}, None]
            for bad in (whole_pair[:-1], whole_pair + b"\0", b"", b"\0", struct.pack(">i", -2) + whole_pair[4:]):
                assert values(tmp_path, schema, bad, whole_pair, bad_values="null") == [None, row]
            continue
        entries = [
            single(Sent(value, key, key_is_base64=True)),
            batch([Sent(value, key, key_is_base64=True), Sent(None)]),
        ]
        row = {"key": 7, "value": {"a": 3, "x": 0.5}}
        assert read(tmp_path, entries, ("key", "value"), schema=schema) == [row, row, {"key": None, "value": None}]


def test_compacted_out_messages_need_no_value(tmp_path: Path) -> None:
    """A message that compaction took out of its batch has no payload; it isn't decoded."""
    good = Sent(struct.pack(">i", 5)).in_batch()
    gone = number(3, 0) + number(4, 1)
    entry = _batched(good + struct.pack(">I", len(gone)) + gone + good, 3)
    assert read(tmp_path, [entry], ("value", "__batch_index"), schema="INT32") == [
        {"value": 5, "__batch_index": 0},
        {"value": 5, "__batch_index": 2},
    ]


_RECURSIVE = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}


@for_each(
    ("schema", "message"),
    [
        ("AVRO", "has no definition"),
        ("JSONISH", "type 'JSONISH'"),
        ("{", "is no JSON"),
        ([], "is empty"),
        ({}, "is no schema"),
        ({"a": "STRING"}, "is no schema"),
        ([3], "is no schema"),
        (info("AVRO", "{}"), "has no definition"),
        (info("AVRO", {"type": "secret"}), "'secret' is no Avro type"),
        (info("AVRO", ["null", "int", "string"]), "union"),
        (info("AVRO", ["null"]), "union"),
        (info("AVRO", _RECURSIVE), "type 'R' is part of itself"),
        (info("AVRO", {"type": "record", "name": "R", "fields": [{"name": "x"}]}), "is no field"),
        ([info("AVRO", "int"), info("JSON", "int")], "are AVRO, JSON"),
        (info("KEY_VALUE", {}, **{"kv.encoding.type": "ODD"}), "encoded as ODD"),
    ],
)
def test_schemas_that_are_refused(tmp_path: Path, schema: Any, message: str) -> None:
    """Give what is no schema, or one that no column can have."""
    with pytest.raises(SchemaMismatchError, match=message):
        parse_schema(schema, "persistent://t/n/a")
    if not isinstance(schema, str):
        with pytest.raises(SchemaMismatchError, match=message):
            parse_schema(json.dumps(schema), "persistent://t/n/a")


def test_imports_keep_bytes(tmp_path: Path) -> None:
    """Import a topic whose schema is given: its values are the bytes that they were."""
    source = tmp_path / "offloaded"
    source.mkdir()
    write_ledger(source, 3, [single(Sent(b"\0\0\0\7"))])
    with txn_source.connect(tmp_path / "log") as log:
        import_topics(f"pulsar:{source}", "orders", log, options={"schema": "INT32"})
        assert log.scan("orders", columns=["value"]).read_all().column("value").to_pylist() == [b"\0\0\0\7"]
