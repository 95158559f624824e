"""``txnlog backup`` and ``txnlog restore``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Annotated, Self

import typer

from txn_source.cli.connection import METADATA_VARIABLE, Root, database_of
from txn_source.cli.output import Json, note, print_json, reports_errors
from txn_source.cli.progress import Progress
from txn_source.cli.serve import root_of
from txn_source.cli.units import format_size
from txn_source.model.moments import shown_time
from txn_source.model.units import format_count


@reports_errors
def backup(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="New or empty folder, on another disk.", show_default=False)
    ],
    root: Root = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="BACKUP",
            help="Earlier backup of the log on the same file system: what hasn't changed since is linked to it, and"
            " takes neither time nor room. Each of the two is whole.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Read the backup at both isolation levels before it counts.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Back a log up while it is used: nobody waits for it, and it shows one moment.

    It works beside a service, on the machine whose folder the log is. A folder counts as a backup only when it is
    whole; one that was interrupted is removed, or by the next backup to the same folder.

    Tiered objects that lie outside of the log's root are named, not copied.
    """
    path = root_of(context, root)
    from txn_source.upkeep.backup import backup as make

    with _Copying() as copying:
        done = make(path, target, base=base, check=check, progress=copying.update)
    _print_notes(done.notes)
    if done.outside:
        note(f"{format_count(len(done.outside), 'tiered object')} outside of the root not in it: {done.outside[0]} ...")
    if as_json:
        print_json(done)
        return
    reused = f", {done.reused} of them as in the earlier one" if done.reused else ""
    print(
        f"Backed up {format_count(done.topics, 'topic')} as of {shown_time(done.taken_at_us)}:"
        f" {format_count(done.files, 'file')}{reused}, {format_size(done.bytes)}.{_scanned(done.messages)}"
    )


@reports_errors
def restore(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="BACKUP", help="What `txnlog backup` made.", show_default=False)],
    root: Root = None,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Read the log at both isolation levels before it is one.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Make a log of a backup, in the new or empty folder that --root names. The backup stays as it is.

    It is another log than the one that was backed up, with an id of its own. What that one stored after the backup is
    lost, and no place in this one: a stream's checkpoint from then is refused, and never leads to other rows.
    Transactions that were open are aborted.

    A folder counts as a log only when it is whole. Damaged files of a backup are told, and nothing is made.
    """
    path = root_of(context, root)
    from txn_source.upkeep.restore import restore as make

    with _Copying() as copying:
        done = make(source, path, check=check, progress=copying.update)
    _print_notes(done.notes)
    if as_json:
        print_json(done)
        return
    print(
        f"Restored the log {done.backup_of} as of {shown_time(done.taken_at_us)} as {done.log_id}:"
        f" {format_count(done.files, 'file')}, {format_size(done.bytes)}.{_scanned(done.messages)}"
    )


@reports_errors
def after_restore(
    context: typer.Context,
    root: Root = None,
    metadata: Annotated[
        str | None,
        typer.Option(metavar="URL", help=f"The log's PostgreSQL database (or set {METADATA_VARIABLE})."),
    ] = None,
) -> None:
    """Let a log whose database was restored by PostgreSQL's own means go on behind a gap.

    Run it once, after pg_restore or a recovery to a point in time, and before any service is started: what the log gave
    out after that point is given out to nobody else then, and open transactions are aborted. `txnlog restore` does so
    by itself.
    """
    path = root_of(context, root)
    from txn_source.upkeep.after_restore import after_restore as pass_over

    print(f"The log {pass_over(path, database_of(metadata))} goes on behind a gap.")


class _Copying(AbstractContextManager["_Copying"]):
    """A line that tells how much is copied; its total is known when copying has begun."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._total = 0
        self._shown: Callable[[int], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def update(self, done: int, total: int) -> None:
        """Note how many bytes of how many are copied."""
        if self._shown is None or total != self._total:
            self._stack.close()
            self._shown, self._total = self._stack.enter_context(Progress("bytes", total)).update, total
        self._shown(done)


def _print_notes(notes: tuple[str, ...]) -> None:
    for text in notes:
        note(text)


def _scanned(messages: dict[str, int]) -> str:
    if not messages:
        return " It was not read."
    return f" Read {' and '.join(f'{count:,} messages at {level}' for level, count in messages.items())}."
