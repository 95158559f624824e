"""``txnlog produce``: lines become messages, plain or in transactions of so many."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from txn_source.cli import completion
from txn_source.cli.connection import on_log
from txn_source.cli.output import Json, note, print_json
from txn_source.cli.progress import Progress
from txn_source.model.errors import SchemaMismatchError, TransactionEndedError, TxnLogError
from txn_source.model.transaction import TransactionState
from txn_source.model.units import format_count, parse_duration

if TYPE_CHECKING:
    from txn_source.client.log import Log
    from txn_source.client.writing.producer import Producer

_FLUSH_LINES = 10_000
Message = tuple[bytes | None, Any]
"""A key and a value, as ``Producer.send`` takes them."""


@dataclass(slots=True)
class Sent:
    """How far sending is: what was read, and what is stored for sure (and committed, with transactions)."""

    line: int = 0
    size_bytes: int = 0
    messages: int = 0
    transactions: int = 0

    def __str__(self) -> str:
        text = format_count(self.messages, "message")
        return f"{text} in {format_count(self.transactions, 'transaction')}" if self.transactions else text


@on_log()
def produce(
    log: Log,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="A topic that exists.", show_default=False, autocompletion=completion.topics
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Where the lines are; - or nothing: standard input.", show_default=False),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="A line is key, this text, value; without it there are no keys.", show_default=False
        ),
    ] = None,
    txn_size: Annotated[
        int | None, typer.Option(min=1, help="Commit a transaction every so many lines.", show_default=False)
    ] = None,
    txn_timeout: Annotated[
        str, typer.Option(metavar="AGE", help="A transaction still open after this is aborted by the service.")
    ] = "60s",
    transactional_id: Annotated[
        str | None,
        typer.Option(
            help="Take over from the older producer with this id and abort what it left open.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Send lines as messages to a topic.

    The line is the value in a raw topic; in a typed topic it is a JSON object with the topic's columns. If this fails
    or is stopped, the transaction at hand is aborted, and those before it stay.
    """
    if key_separator == "":
        raise typer.BadParameter(
            "It is empty. Give a text that stands between key and value.", param_hint="'--key-separator'"
        )
    timeout_s = parse_duration(txn_timeout)
    parse = _parser(log, topic, key_separator)
    done, started = Sent(), time.monotonic()
    try:
        with _open(file) as stream, log.producer(topic, transactional_id) as producer, _shown(stream) as shown:
            messages = _messages(stream, parse, done, shown)
            if txn_size is None:
                _send_plain(producer, messages, done)
            else:
                _send_transactions(log, producer, messages, done, txn_size, timeout_s)
    except BaseException as error:
        if done.messages or isinstance(error, KeyboardInterrupt):
            note(f"Stored before this: {done}.")
        if isinstance(error, SchemaMismatchError):
            raise SchemaMismatchError(f"Line {done.line:,}: {error.fact}", error.remedy) from None
        raise
    seconds = time.monotonic() - started
    rate = round(done.messages / max(seconds, 1e-6))
    if as_json:
        counts = {"messages": done.messages, "transactions": done.transactions}
        print_json({**counts, "seconds": round(seconds, 3), "messages_per_second": rate})
    else:
        print(f"{done} in {seconds:.1f} s, {rate:,} messages/s.")


def _send_plain(producer: Producer, messages: Iterator[Message], done: Sent) -> None:
    sent = 0
    try:
        for key, value in messages:
            producer.send(value, key)
            sent += 1
            if sent == _FLUSH_LINES:
                producer.flush()
                done.messages, sent = done.messages + sent, 0
    except (SchemaMismatchError, KeyboardInterrupt):  # the lines before are good
        producer.flush()
        done.messages += sent
        raise
    producer.flush()
    done.messages += sent


def _send_transactions(
    log: Log, producer: Producer, messages: Iterator[Message], done: Sent, size: int, timeout_s: float
) -> None:
    """Send messages as they come; a transaction begins with its first line, so none is open without any.

    No ``with`` here: Ctrl-C stops a pipeline's source as well, so it often comes with the input's end and would strike
    inside ``__exit__``, leaving the transaction open until its timeout.
    """
    for first in messages:
        sent = 0
        txn = log.begin_transaction(timeout_s)
        try:
            for key, value in chain([first], islice(messages, size - 1)):
                producer.send(value, key, txn=txn)
                sent += 1
            txn.commit()
        except BaseException:
            with suppress(TxnLogError):  # it has ended, or ends at its timeout; what went wrong first is what counts
                try:
                    txn.abort()
                except TransactionEndedError:
                    if log.transaction(txn.id).state is TransactionState.COMMITTED:  # interrupted just after it
                        done.messages += sent
                        done.transactions += 1
                    raise
            raise
        producer.flush()  # only to forget the message ids
        done.messages += sent
        done.transactions += 1


def _messages(stream: IO[bytes], parse: Callable[[bytes], Message], done: Sent, shown: Progress) -> Iterator[Message]:
    for line in stream:
        done.line += 1
        done.size_bytes += len(line)
        yield parse(line.removesuffix(b"\n").removesuffix(b"\r"))
        shown.update(done.size_bytes, done.line)


def _parser(log: Log, topic: str, key_separator: str | None) -> Callable[[bytes], Message]:
    from txn_source.cli.payload import parse_message
    from txn_source.storage.schema import RAW_SCHEMA

    schema = log.schema(topic)
    separator = None if key_separator is None else key_separator.encode()

    def parse(line: bytes) -> Message:
        key = None
        if separator is not None:
            key, found, line = line.partition(separator)
            if not found:
                raise SchemaMismatchError(
                    f"{key[:60]!r} has no key: {key_separator!r} is not in it.", "Check --key-separator."
                )
        return key, line if schema is RAW_SCHEMA else parse_message(line, schema)

    return parse


@contextmanager
def _open(file: Path | None) -> Iterator[IO[bytes]]:
    if file is None or str(file) == "-":
        yield typer.get_binary_stream("stdin")
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"{str(file)!r} can't be read: {error.strerror}.", param_hint="'FILE'") from None
    with stream:
        yield stream


def _shown(stream: IO[bytes]) -> Progress:
    """Return what shows the progress, unless the lines are being typed there."""
    if stream.isatty() or not sys.stderr.isatty():
        return Progress("lines", wanted=False)
    return Progress("lines", os.fstat(stream.fileno()).st_size or None)
