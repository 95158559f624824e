"""``txnlog doctor``: is a log whole, and what to do if it isn't."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from txn_source.cli.connection import (
    METADATA_VARIABLE,
    Address,
    Endpoint,
    Root,
    TlsCa,
    TlsCert,
    TlsKey,
    TokenFile,
    address_of,
    database_of,
)
from txn_source.cli.output import Json, console, reports_errors
from txn_source.cli.progress import Progress
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.foreign_path import is_foreign
from txn_source.model.units import format_count, parse_size

if TYPE_CHECKING:
    from txn_source.upkeep.doctor.findings import Report
    from txn_source.upkeep.doctor.opening import Where
    from txn_source.upkeep.doctor.subject import Options, Watch


class _Bars:
    """Shows each part of an examination that takes longer than two seconds, with rate and remaining time."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._bar: Progress | None = None
        self._done = 0

    def begin(self, what: str, unit: str, total: int | None) -> None:
        self.end()
        self._done = 0
        self._bar = Progress(unit if what == unit else f"{unit} ({what})", total, wanted=self._wanted)
        self._bar.__enter__()

    def advance(self, count: int = 1) -> None:
        self._done += count
        if self._bar is not None:
            self._bar.update(self._done)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


@reports_errors
def doctor(
    context: typer.Context,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="NAME", help="Only this topic; can be repeated. What is about the whole log is left out."
        ),
    ] = None,
    checksums: Annotated[
        str,
        typer.Option(
            metavar="none|sample|all",
            help="Which bytes are read and checked: none, some of each file, or all.",
        ),
    ] = "sample",
    rate: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Read so much in a second at most, such as 50MB/s.", show_default=False),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|URL",
            help="Where the metadata is if it isn't in the root: postgresql://user@host/database, or the file of a log"
            f" on an object store (or set {METADATA_VARIABLE}).",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    root: Root = None,
    endpoint: Endpoint = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    token_file: TokenFile = None,
) -> None:
    """Look at a log from outside, say what is wrong with it, and what to do about each finding.

    Nothing is changed. The log may be in use. Where it can be, name its root: over an endpoint the
    database itself can't be looked at, and the report says what was not checked.

    Exit status: 0 if nothing has to be done (notes may be shown), 1 if there are warnings or errors, or the log can't
    be looked at, 2 for wrong usage.
    """
    from txn_source.upkeep.doctor.examination import examine
    from txn_source.upkeep.doctor.opening import opened

    shown = {"tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key, "token_file": token_file}
    where = _where(address_of(context).override(root, endpoint).showing(**shown).resolve(), metadata)
    bars = _Bars(wanted=not as_json or sys.stderr.isatty())
    options = _options(topic or [], checksums, rate, bars)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        with opened(where, **options) as log:
            report = examine(log)
    finally:
        bars.end()
    if as_json:
        print(json.dumps(report.document(), indent=2, ensure_ascii=False))
    else:
        _print(report)
    if not report.is_clean:
        raise typer.Exit(1)


def _where(address: Address, metadata: str | None) -> Where:
    from txn_source.upkeep.doctor.opening import Where

    if is_foreign(address.root):
        raise InvalidArgumentError(
            f"{str(address.root).partition('?')[0]} is a log that others wrote.", "Use the tools of who wrote it."
        )
    given = database_of(metadata) if address.root is not None else None
    return Where(address.root, address.endpoint, given, address.credentials or None)


def _options(topics: list[str], checksums: str, rate: str | None, watch: Watch) -> Options:
    from txn_source.model.topic_name import TopicName
    from txn_source.upkeep.doctor.pace import Pace
    from txn_source.upkeep.doctor.subject import Checksums

    if checksums not in [one.value for one in Checksums]:
        raise typer.BadParameter(f"{checksums!r} is none of none, sample and all.", param_hint="'--checksums'")
    bytes_per_s = None if rate is None else parse_size(rate.strip().lower().removesuffix("/s"))
    if bytes_per_s == 0:
        raise typer.BadParameter("Nothing could be read.", param_hint="'--rate'")
    return {
        "topics": tuple(TopicName.parse(name) for name in topics),
        "checksums": Checksums(checksums),
        "pace": Pace(bytes_per_s),
        "watch": watch,
    }


def _print(report: Report) -> None:
    from rich.text import Text

    colours = {"error": "bold red", "warning": "yellow", "note": "cyan"}
    out = console()
    for one in report.findings:
        head = Text.assemble((one.severity.value.upper(), colours[one.severity.value]), f" {one.code}: {one.fact}")
        out.print(head, soft_wrap=True)
        out.print(f"    {one.remedy}", soft_wrap=True)
    for why in dict.fromkeys(left_out.why for left_out in report.not_checked):
        checks = ", ".join(left_out.check for left_out in report.not_checked if left_out.why == why)
        out.print(f"Not checked: {checks} ({why}).", soft_wrap=True)
    severities = list(dict.fromkeys(one.severity for one in report.findings))
    counts = [format_count(report.count(severity), severity.value) for severity in severities]
    out.print(f"{len(report.checked)} checks: {', '.join(counts) or 'nothing found'}.", soft_wrap=True)
