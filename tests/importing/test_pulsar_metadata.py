"""What an import keeps of Pulsar's metadata when it is asked to, and typed topics of typed ones."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import txn_source
from tests.foreign.pulsar.offload_writer import (
    Frame,
    Sent,
    batch,
    chunks,
    content,
    marker,
    number,
    single,
    write_ledger,
)
from txn_source import IsolationLevel
from txn_source.cli.app import app
from txn_source.importing import import_topics
from txn_source.model.errors import InvalidArgumentError, MessageUnreadableError, SchemaMismatchError

_RECORD = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"]}],
}


def write_source(folder: Path) -> str:
    """Write messages of each kind, with all metadata and with none."""
    frame = Frame("maker", schema_version=b"\0" * 7 + b"\2", broker=(1_700_000_000_500, 41))
    frame = replace(frame, extra=content(5, b"west") + number(19, 1_800_000_000_000))
    own = Sent(b"b", properties={"__producer_name": "mine", "x": "y"}, ordering_key=b"\xff", sequence=8)
    entries = [
        batch([Sent(b"a", sequence=7), own], frame),
        *chunks(Sent(b"chunked", sequence=9), 2),
        batch([Sent(b"t")], Frame(txn=(0, 1))),
        marker((0, 1), commit=False),
    ]
    folder.mkdir()
    write_ledger(folder, 3, entries)
    return f"pulsar:{folder}"


def properties(log: txn_source.Log) -> list[dict[str, str]]:
    level = IsolationLevel.READ_UNCOMMITTED
    rows = log.scan("orders", isolation_level=level, columns=["__properties"]).read_all().to_pylist()
    return [dict(row["__properties"] or ()) for row in rows]


def test_all_metadata_is_kept(tmp_path: Path) -> None:
    """Each message has its metadata as properties; a property of its own stays as it is."""
    with txn_source.connect(tmp_path / "log") as log:
        import_topics(write_source(tmp_path / "source"), "orders", log, metadata="all")
        first, second, third, last = properties(log)
    entry = {
        "__publish_time": "1700000000000",
        "__producer_name": "maker",
        "__schema_version;base64": base64.b64encode(b"\0" * 7 + b"\2").decode(),
        "__replicated_from": "west",
        "__deliver_at": "1800000000000",
        "__broker_publish_time": "1700000000500",
    }
    assert first == entry | {"__message_id": "3:0:-1:0", "__sequence_id": "7", "__index": "40"}
    own = {"__producer_name": "mine", "x": "y", "__ordering_key;base64": "/w=="}
    assert second == entry | {"__message_id": "3:0:-1:1", "__sequence_id": "8", "__index": "41"} | own
    plain = {"__publish_time": "1700000000000", "__producer_name": "p"}
    assert third == plain | {"__message_id": "3:2:-1", "__sequence_id": "9"}
    assert last == plain | {"__message_id": "3:3:-1:0", "__sequence_id": "0"}


def test_metadata_that_is_named_is_kept(tmp_path: Path) -> None:
    """Name some; by default there is none, and what isn't there, or Kafka's, is refused."""
    source = write_source(tmp_path / "source")
    with txn_source.connect(tmp_path / "log") as log:
        import_topics(source, "orders", log, names=["none"])
        import_topics(source, "orders", log, metadata=["__ordering_key"])
        assert properties(log) == [
            {},
            {"__producer_name": "mine", "x": "y", "__ordering_key;base64": "/w=="},
            {},
            {},
        ]
        rows = log.scan("none", columns=["__properties"]).read_all().column(0).to_pylist()
        assert [dict(row or ()) for row in rows] == [{}, {"__producer_name": "mine", "x": "y"}, {}]
        for wrong in (["value"], ["__index", "__index"], ["all", "__index"]):
            with pytest.raises(InvalidArgumentError, match=r"[Mm]etadata"):
                import_topics(source, "orders", log, metadata=wrong)


def avro(ident: int, note: str | None) -> bytes:
    text = b"" if note is None else bytes([2 * len(note)]) + note.encode()
    return bytes([2 * ident, 0 if note is None else 2]) + text


def schema_option() -> dict[str, str]:
    return {"schema": json.dumps({"type": "AVRO", "schema": json.dumps(_RECORD)})}


def test_typed_import(tmp_path: Path) -> None:
    """Values have the schema's types in the target, at both levels, and a later run goes on."""
    source = tmp_path / "source"
    source.mkdir()
    write_ledger(
        source,
        3,
        [single(Sent(avro(1, "a"), b"k")), single(Sent(None)), single(Sent(avro(2, None)), Frame(txn=(0, 1)))],
    )
    write_ledger(source, 5, [marker((0, 1), commit=False), batch([Sent(avro(3, "c"))])])
    options = schema_option()
    with txn_source.connect(tmp_path / "log") as log:
        import_topics(f"pulsar:{source}", "orders", log, options=options, typed=True)
        write_ledger(source, 8, [single(Sent(avro(4, "d")))])
        import_topics(f"pulsar:{source}", "orders", log, options=options, typed=True)
        with txn_source.connect(f"pulsar:{source}", options=options) as theirs:
            for level in IsolationLevel:
                ours, wanted = (
                    of.scan("orders", isolation_level=level, columns=["key", "value"]).read_all()
                    for of in (log, theirs)
                )
                assert ours.to_pylist() == wanted.to_pylist()
                assert ours.schema.field("value").type == pa.struct({"id": pa.int32(), "note": pa.string()})
        for change in ({"options": options}, {"options": {"schema": "INT32"}, "typed": True}, {"typed": True}):
            arguments: dict[str, Any] = {"options": None, "typed": False} | change
            with pytest.raises((SchemaMismatchError, InvalidArgumentError)):
                import_topics(f"pulsar:{source}", "orders", log, **arguments)


def test_value_that_is_not_of_the_schema(tmp_path: Path) -> None:
    """It stops the import, or becomes a null if that is asked for; then the import goes on where it was."""
    source = tmp_path / "source"
    source.mkdir()
    write_ledger(source, 3, [single(Sent(b"\0\0\0\1")), single(Sent(b"no"))])
    with txn_source.connect(tmp_path / "log") as log:
        with pytest.raises(MessageUnreadableError, match="message at 3:1"):
            import_topics(f"pulsar:{source}", "orders", log, options={"schema": "INT32"}, typed=True)
        options = {"schema": "INT32", "badValues": "null"}
        import_topics(f"pulsar:{source}", "orders", log, options=options, typed=True)
        assert log.scan("orders", columns=["value"]).read_all().column(0).to_pylist() == [1, None]


def test_command_keeps_metadata_and_types(tmp_path: Path) -> None:
    """`txnlog import --keep ... --typed` does the same."""
    source = tmp_path / "source"
    source.mkdir()
    write_ledger(source, 3, [single(Sent(b"\0\0\0\1", ordering_key=b"o"))])
    root = tmp_path / "log"
    words = ["import", f"pulsar:{source}", "orders", "--to", str(root), "--keep", "__ordering_key"]
    found = CliRunner().invoke(app, [*words, "--option", "schema=INT32", "--typed"])
    assert found.exit_code == 0, found.output
    with txn_source.connect(root) as log:
        assert properties(log) == [{"__ordering_key;base64": "bw=="}]
        assert log.scan("orders", columns=["value"]).read_all().column(0).to_pylist() == [1]
