"""``txnlog consume``: printing a topic's messages, and following it."""

from __future__ import annotations

import enum
import json
import select
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txn_source.cli.connection import on_log
from txn_source.cli.offset_text import offsets_of
from txn_source.cli.output import to_json, write
from txn_source.cli.subscriptions import Kind
from txn_source.model.isolation import IsolationLevel
from txn_source.model.read_priority import ReadPriority

if TYPE_CHECKING:
    import pyarrow as pa

    from txn_source.cli.tail import Tail
    from txn_source.client.log import Log

    Render = Callable[[pa.RecordBatch], bytes]

_POLL_INTERVAL_S = 0.2
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


@on_log()
def consume(
    log: Log,
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="orders, or orders-partition-3 for one partition.", show_default=False),
    ],
    isolation_level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="read_committed or read_uncommitted.",
            show_default="read_committed, or the subscription's",
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="OFFSET",
            help="First position to print: earliest, latest, 12:40 (if one partition is read), JSON such as"
            ' {"orders": {"0": "12:40"}}, or a publish time (ISO 8601, or milliseconds since the epoch). With'
            " --subscription only a new one takes it.",
            show_default="earliest",
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(metavar="OFFSET", help="Where to stop, exclusive, written likewise.", show_default="latest"),
    ] = None,
    max_messages: Annotated[int | None, typer.Option(min=1, help="Stop after so many.", show_default=False)] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what arrives, until Ctrl-C.")] = False,
    data_read_priority: Annotated[
        str | None,
        typer.Option(
            "--data-read-priority",
            "-drp",
            metavar="VALUE",
            show_default="the topic's",
            help="Which copy of a ledger is read first: tiered-first or bookkeeper-first.",
        ),
    ] = None,
    subscription: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            show_default=False,
            help="Go on where this subscription stands, and acknowledge what was printed. It is created if it isn't"
            " there. It has no --end, and reads at the topic's own --data-read-priority.",
        ),
    ] = None,
    subscription_type: Annotated[
        Kind | None,
        typer.Option(help="The subscription's type.", show_default="its own, or exclusive for a new one"),
    ] = None,
    format: Annotated[
        Format, typer.Option(help="text: the value, or a typed topic's columns as JSON; json: all that is known.")
    ] = Format.TEXT,
    key_separator: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Print a raw topic's keys too, and this before the value.", show_default=False
        ),
    ] = None,
) -> None:
    """Print a topic's messages, a line each, partition after partition.

    With --subscription they are acknowledged after they were written, so what is printed before a crash may come
    once more. Without --follow it ends where nothing is left, or all that is left is with other consumers.

    What is no UTF-8 is shown escaped in text, and as {"base64": "..."} in JSON.
    """
    if follow and end is not None:
        raise typer.BadParameter("It says where to stop, and --follow goes on. Give one of them.", param_hint="'--end'")
    level = None if isolation_level is None else IsolationLevel.parse(isolation_level)
    priority = None if data_read_priority is None else ReadPriority.parse(data_read_priority)
    left = sys.maxsize if max_messages is None else max_messages
    try:
        if subscription is not None:
            _refuse("--end", end, "A subscription has none. Use --max-messages.")
            _refuse("--data-read-priority", priority, "A subscription reads at the topic's own.")
            from txn_source.cli.receive import consumer_of, print_messages

            columns, render = _format(log, topic, format, key_separator)
            kind = None if subscription_type is None else subscription_type.value
            with consumer_of(log, topic, subscription, kind, level, start) as consumer:
                print_messages(log, consumer, columns, render, left, partial(_pause, 0) if follow else None)
            return
        _refuse("--subscription-type", subscription_type, "It is for --subscription.")
        from txn_source.cli.tail import Tail
        from txn_source.model.position import EARLIEST, LATEST

        columns, render = _format(log, topic, format, key_separator)
        begin, stop = offsets_of(start, EARLIEST), offsets_of(end, LATEST)
        tail = Tail(log, topic, level or IsolationLevel.READ_COMMITTED, begin, stop, columns, priority)
        _print_tail(tail, render, left, follow=follow)
    except KeyboardInterrupt:
        if not follow:
            raise


def _refuse(option: str, value: object, why: str) -> None:
    if value is not None:
        raise typer.BadParameter(why, param_hint=f"'{option}'")


def _print_tail(tail: Tail, render: Render, left: int, *, follow: bool) -> None:
    while True:
        for batch in tail.read():
            write(render(batch.slice(0, left)))
            left -= batch.num_rows
            if left <= 0:
                return
        if not follow:
            return
        sys.stdout.flush()
        _pause(_POLL_INTERVAL_S)


def _pause(seconds: float) -> None:
    """Wait a moment; raise BrokenPipeError if nobody reads our output any more, which writing nothing wouldn't show."""
    try:
        descriptor = sys.stdout.fileno()
    except OSError:
        time.sleep(seconds)
        return
    watch = select.poll()
    watch.register(descriptor, 0)  # only errors, which are always reported
    if watch.poll(seconds * 1000):
        raise BrokenPipeError


def _format(log: Log, topic: str, format: Format, key_separator: str | None) -> tuple[list[str], Render]:
    """Return the columns that are to be read, and what makes lines of a batch of them."""
    from txn_source.client.reading.source import resolve
    from txn_source.storage.schema import RAW_SCHEMA

    payload = resolve(log.metadata, [topic]).payload
    raw = payload is RAW_SCHEMA
    if key_separator is not None and (format is Format.JSON or not raw):
        raise typer.BadParameter("Only a raw topic's text has keys to separate.", param_hint="'--key-separator'")
    if format is Format.JSON:
        return [*payload.names, *_MESSAGE_ID, *_METADATA.values()], lambda batch: _full_json(batch, payload.names, raw)
    if not raw:
        return list(payload.names), _json_values
    if key_separator is None:
        return ["value"], _text_values
    separator = key_separator.encode()
    return ["key", "value"], lambda batch: _text_pairs(batch, separator)


def _text_values(batch: pa.RecordBatch) -> bytes:
    return _readable([value or b"" for value in batch.column(0).to_pylist()])


def _text_pairs(batch: pa.RecordBatch, separator: bytes) -> bytes:
    keys, values = (column.to_pylist() for column in batch.columns)
    return _readable([(k or b"") + separator + (v or b"") for k, v in zip(keys, values, strict=True)])


def _readable(lines: list[bytes]) -> bytes:
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
            message["value"] = {name: row[name] for name in payload}
        lines.append(_json_line(message))
    return b"".join(lines)


def _json_line(value: Any) -> bytes:
    return json.dumps(to_json(value), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
