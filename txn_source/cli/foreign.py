"""What the reading commands do where ``--root`` names a log that others wrote, ``kafka:...`` or ``pulsar:...``."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import typer

from txn_source.cli.following import print_batches
from txn_source.cli.message_lines import Format, readable
from txn_source.cli.output import console, note, print_json, table, to_json
from txn_source.cli.units import format_size
from txn_source.model.errors import TxnLogError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.units import format_count

if TYPE_CHECKING:
    import pyarrow as pa

    from txn_source.client.log import Log
    from txn_source.foreign.read_only_log import ForeignTopicStats, ReadOnlyLog
    from txn_source.reading.places import Side

_DATE = re.compile(r"\d{4}-.*")


def list_topics(log: Log, namespace: str | None, as_json: bool) -> None:
    """List the topics with their partitions, about how many messages they have, and their stored bytes."""
    found = []
    unreadable: dict[str, str] = {}
    for name in log.topics(namespace):
        try:
            found.append(log.stats(name))
        except TxnLogError as error:
            unreadable[name] = str(error)
    if as_json:
        rows: list[dict[str, Any]] = [
            {"topic": of.topic, "partitions": len(of.partitions), "positions": _of(of).positions, "bytes": of.bytes}
            for of in found
        ]
        print_json(rows + [{"topic": name, "error": why} for name, why in unreadable.items()])
    elif found or unreadable:
        numbers = ("Partitions", "Messages at most", "Size")
        listing = table("", "Topic", *numbers, right=numbers)
        for of in found:
            listing.add_row(of.topic, f"{len(of.partitions):,}", f"{_of(of).positions:,}", format_size(of.bytes))
        for name in unreadable:
            listing.add_row(name, *["unreadable"] * len(numbers))
        console().print(listing)
    else:
        print("There are no topics." if namespace is None else f"There are no topics in {namespace}.")
    for why in unreadable.values():
        note(why)
    if unreadable:
        raise typer.Exit(1)


def stats(log: Log, name: str, as_json: bool) -> None:
    """Show a topic's bounds, and its open transactions with what they hold back."""
    found = _of(log.stats(name))
    if as_json:
        print_json(to_json(found) | {"ongoing_transactions": to_json(found.ongoing_transactions)})
        return
    print(f"{found.topic}: {format_count(len(found.partitions), 'partition')}, {format_size(found.bytes)}\n")
    numbers = ("Log start", "Last stable", "High watermark", "Log end", "Size")
    listing = table("Partitions", "Partition", *numbers, "Topic id", right=numbers)
    for p in found.partitions:
        bounds = (p.log_start, p.last_stable, p.high_watermark, p.log_end)
        listing.add_row(str(p.partition), *map(str, bounds), format_size(p.bytes), p.topic_id or "")
    console().print(listing)
    if found.ongoing_transactions:
        print()
        _print_transactions("Open transactions, which hold back what lies behind them", found.ongoing_transactions)


def list_transactions(
    log: Log, state: enum.Enum, topic: str | None, limit: int, first: enum.Enum | None, as_json: bool
) -> None:
    """List transactions as they are on each partition."""
    wanted = None if state.value == "all" else state.value
    oldest = first.value == "oldest" if first is not None else wanted == "open"
    every = cast("ReadOnlyLog", log).transactions(wanted, topic, oldest_first=oldest)
    found = every[:limit]
    if as_json:
        print_json(found)
    elif found:
        _print_transactions("", found)
    else:
        print("There are no transactions." if wanted is None else f"There are no {wanted} transactions.")
    if len(every) > limit:
        note(f"{limit:,} are listed, there are {len(every) - limit:,} more; --limit takes another number.")


def consume(
    log: Log,
    topic: str,
    isolation_level: str | None,
    start: str | None,
    end: str | None,
    max_messages: int | None,
    follow: bool,
    format: Format,
    key_separator: str | None,
    **given: Any,
) -> None:
    """Print a topic's messages, partition after partition; with ``follow`` go on with what comes."""
    for name, value in given.items():
        if value is not None:
            raise typer.BadParameter("It is for logs of txnlog's own.", param_hint=f"'--{name.replace('_', '-')}'")
    foreign = cast("ReadOnlyLog", log)
    rules, schema = foreign.target.rules, foreign.schema(topic)
    text = format is Format.TEXT
    columns: list[str] | None
    if text and "value" in schema.names:
        columns = ["value"] if key_separator is None else ["key", "value"]
    else:
        columns = None if text else foreign.every_column(topic)
    level = IsolationLevel.parse(isolation_level or "read_committed")
    follower = foreign.follow(
        topic, level, columns, _side(rules.parse_side, start, EARLIEST), _side(rules.parse_side, end, LATEST)
    )

    def render(batch: pa.RecordBatch) -> bytes:
        if columns is not None and text:
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            between = (key_separator or "").encode()
            return readable([between.join(part or b"" for part in row) for row in rows])
        maps = [field.name for field in batch.schema if str(field.type).startswith("map<")]  # pairs, for Arrow
        plain = (row | {name: dict(row[name] or ()) for name in maps} for row in batch.to_pylist())
        lines = (json.dumps(to_json(row), ensure_ascii=False) for row in plain)
        return b"".join(line.encode("utf-8", "backslashreplace") + b"\n" for line in lines)

    print_batches(follower.read, render, max_messages, follow=follow)


def _side(parse: Callable[[Any, str], Side], text: str | None, default: str) -> Side:
    if text is not None and _DATE.fullmatch(text.strip()):
        from txn_source.model.moments import time_us
        from txn_source.reading.places import Side

        return Side(default, time_us=time_us(text))
    return parse(text, default)


def _print_transactions(title: str, found: Any) -> None:
    right = ("First", "Last", "Marker", "Held back", "Held back size")
    listing = table(title, "Topic", "Partition", "Producer or id", "State", *right, right=right)
    for txn in found:
        places = ["" if at is None else str(at) for at in (txn.first, txn.last, txn.marker)]
        named = f"{txn.producer_id}, {txn.producer_epoch}"
        held = ("", "") if txn.held_back is None else (f"{txn.held_back:,}", format_size(txn.held_back_bytes))
        listing.add_row(txn.topic, str(txn.partition), named, str(txn.state), *places, *held)
    console().print(listing)


def _of(found: Any) -> ForeignTopicStats:
    return cast("ForeignTopicStats", found)
