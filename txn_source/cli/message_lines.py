"""Messages as lines: text, or JSON with all that is known of them."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from txn_source.cli.output import to_json

if TYPE_CHECKING:
    import pyarrow as pa

    from txn_source.client.log import Log

    Render = Callable[[pa.RecordBatch], bytes]

_METADATA = {
    "topic": "__topic",
    "partition": "__partition",
    "publish_time": "__publish_time",
    "event_time": "__event_time",
    "properties": "__properties",
    "producer_name": "__producer_name",
    "sequence_id": "__sequence_id",
    "txn_id": "__txn_id",
    "txn_status": "__txn_status",
}
_MESSAGE_ID = ("__ledger_id", "__entry_id", "__batch_index")


class Format(enum.Enum):
    """How a message is printed."""

    TEXT = "text"
    JSON = "json"


def lines_of(log: Log, topic: str, format: Format, key_separator: str | None) -> tuple[list[str], Render]:
    """Return the columns that are to be read, and what makes lines of a batch of them."""
    from txn_source.client.reading.source import resolve
    from txn_source.reading.request import Selection
    from txn_source.storage.schema import KEY, RAW_SCHEMA

    payload = resolve(log.metadata, Selection.of(topic)).payload
    raw = payload is RAW_SCHEMA
    if key_separator is not None and (format is Format.JSON or not raw):
        raise typer.BadParameter("Only a raw topic's text has keys to separate.", param_hint="'--key-separator'")
    if format is Format.JSON:
        names = [*payload.names, *_MESSAGE_ID, *_METADATA.values(), *([] if raw else [KEY.name])]
        return names, lambda batch: _full_json(batch, payload.names, raw)
    if not raw:
        return list(payload.names), _json_values
    if key_separator is None:
        return ["value"], _text_values
    separator = key_separator.encode()
    return ["key", "value"], lambda batch: _text_pairs(batch, separator)


def _text_values(batch: pa.RecordBatch) -> bytes:
    return readable([value or b"" for value in batch.column(0).to_pylist()])


def _text_pairs(batch: pa.RecordBatch, separator: bytes) -> bytes:
    keys, values = (column.to_pylist() for column in batch.columns)
    return readable([(k or b"") + separator + (v or b"") for k, v in zip(keys, values, strict=True)])


def readable(lines: list[bytes]) -> bytes:
    """Return lines as UTF-8, with what is none of it escaped as \\xff."""
    joined = b"".join(line + b"\n" for line in lines)
    try:
        joined.decode()
    except UnicodeDecodeError:
        joined = b"".join(line.decode("utf-8", "backslashreplace").encode() + b"\n" for line in lines)
    return joined


def _json_values(batch: pa.RecordBatch) -> bytes:
    from txn_source.cli.payload import rows_of

    return b"".join(_json_line(row) for row in rows_of(batch))


def _full_json(batch: pa.RecordBatch, payload: list[str], raw: bool) -> bytes:
    """Return an object for each message; a typed topic's columns are its ``value``."""
    from txn_source.cli.payload import rows_of

    lines = []
    for row in rows_of(batch):
        message: dict[str, Any] = {"message_id": ":".join(str(row[name]) for name in _MESSAGE_ID)}
        message.update((key, row[name]) for key, name in _METADATA.items() if name in row)
        if raw:
            message.update(key=row["key"], value=row["value"])
        else:
            message.update(key=row["__key"], value={name: row[name] for name in payload})
        lines.append(_json_line(message))
    return b"".join(lines)


def _json_line(value: Any) -> bytes:
    return json.dumps(to_json(value), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
