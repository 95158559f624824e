"""What commands print: tables for people, JSON for programs, and errors as one line."""

from __future__ import annotations

import base64
import dataclasses
import enum
import errno
import functools
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from txn_source.model.door import passes, translated
from txn_source.model.errors import InternalError, InvalidArgumentError, TxnLogError

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

P = ParamSpec("P")
_UNFOLDED_WIDTH = 10_000
_USAGE: type = typer.BadParameter.__mro__[2]  # ClickException, which is click's or typer's own
TRACEBACK_VARIABLE = "TXNLOG_TRACEBACK"
"""Set, an error that nobody foresaw is shown with its traceback."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]


def to_json(value: Any) -> Any:
    """Return a value in JSON's types: dataclasses as objects with their fields' names, positions and ids as text.

    Times are ISO 8601, durations seconds, decimals text (exact), and bytes text if they are UTF-8, otherwise an object
    ``{"base64": "..."}``.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case enum.Enum():
            return value.value
        case date():  # datetimes too
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return str(value)
        case Mapping():
            return {str(key): to_json(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        if type(value).__str__ is not object.__str__:  # positions and ids have a text form of their own
            return str(value)
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Iterable):
        return [to_json(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output, indented."""
    print(json.dumps(to_json(value), indent=2, ensure_ascii=False))


def write(data: bytes) -> None:
    """Write bytes to standard output, all of them or raise.

    Unbuffered (``PYTHONUNBUFFERED``) it may take a part only, when its reader goes away or the disk is full.
    """
    left = memoryview(data)
    while left:
        left = left[sys.stdout.buffer.write(left) :]


def console(*, stderr: bool = False) -> Console:
    """Return a console for text from anywhere: markup in it means nothing, and a broken pipe is raised, not an exit.

    Into a file or pipe, nothing is wrapped or cut to a width.
    """
    from rich.console import Console

    class PlainConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    made = PlainConsole(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = _UNFOLDED_WIDTH
    return made


def table(title: str, *columns: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table; columns named in ``right`` are aligned to the right. No cell is ever cut off.

    One that is too wide for the terminal has its headings in several lines; where that isn't enough, each row is a
    block of lines, a line for each column.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    class FittingTable(Table):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
            unlimited = options.update(width=_UNFOLDED_WIDTH)
            for fold in (False, True):
                if fold:
                    for column, name in zip(self.columns, columns, strict=True):
                        cells = (len(line) for cell in column.cells for line in str(cell).split("\n"))
                        width = max(*cells, *map(len, name.split()), 1)
                        column.header = Text("\n".join(textwrap.wrap(name, width)))
                if self.__rich_measure__(console, unlimited).maximum <= options.max_width or not self.row_count:
                    yield from super().__rich_console__(console, options)
                    return
            yield from self._blocks()

        def _blocks(self) -> Iterator[Text]:
            if title:
                yield Text(title + "\n", style="bold")
            width = max(map(len, columns))
            for at, row in enumerate(zip(*(column.cells for column in self.columns), strict=True)):
                if at:
                    yield Text("")
                for name, cell in zip(columns, row, strict=True):
                    yield Text(f"{name:<{width}}  {cell}".rstrip(), overflow="fold")

    heading = Text(title, style="bold") if title else None
    made = FittingTable(
        title=heading, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for name in columns:
        made.add_column(Text(name), justify="right" if name in right else "left", overflow="fold")
    return made


def note(text: str) -> None:
    """Print a remark for people on standard error, so that it never mixes with the output."""
    print(text, file=sys.stderr)


@contextmanager
def repeatable() -> Iterator[None]:
    """Work of which each step stays and that may be done again: says so if Ctrl-C ends it."""
    try:
        yield
    except KeyboardInterrupt:
        note("Interrupted. What was done stays; run the command again for the rest.")
        raise


def reports_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Make a command end as the command line promises.

    What the log refuses is one line on standard error and exit status 1; a value that nobody can use is status 2,
    like any wrong usage. A reader that closed the pipe (``| head``) is no error; a full disk under the output is one.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            print(end="", flush=True)  # a broken pipe shows here, or else when Python exits
        except TxnLogError as error:
            print(" ".join(str(error).split()), file=sys.stderr)
            raise typer.Exit(2 if isinstance(error, InvalidArgumentError) else 1) from None
        except BrokenPipeError:
            _discard_output()
            raise typer.Exit(0) from None
        except Exception as error:
            if isinstance(error, typer.Exit | typer.Abort | _USAGE) or passes(error):
                raise  # how a command ends
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                _discard_output()
                print(f"The output can't be written: {error.strerror}.", file=sys.stderr)
                raise typer.Exit(1) from None
            if os.environ.get(TRACEBACK_VARIABLE):
                raise
            raise _told(error) from None

    return run


def _told(error: Exception) -> typer.Exit:
    """Print an error that isn't the log's, in one line as the others, and return how the command ends."""
    ours = translated(error, "The command")
    hint = f" It shows more if {TRACEBACK_VARIABLE}=1 is set." if isinstance(ours, InternalError) else ""
    print(" ".join(str(ours).split()) + hint, file=sys.stderr)
    return typer.Exit(2 if isinstance(ours, InvalidArgumentError) else 1)


def _discard_output() -> None:
    """Let go of standard output: Python writes what is left when it exits, which would fail again and say so."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
