"""``txnlog topics export-iceberg``: what is offloaded, as an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from txn_source.cli.arguments import Name
from txn_source.cli.connection import on_log
from txn_source.cli.output import Json, print_json, to_json
from txn_source.model.units import format_count

if TYPE_CHECKING:
    from txn_source.client.log import Log


@on_log()
def export_iceberg(
    log: Log,
    name: Name,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="<namespace>.<table>, made if it isn't there.", show_default=False)
    ],
    catalog: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The catalog's name in PyIceberg's configuration.", show_default=False),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="KEY=VALUE",
            help="A property of the catalog, such as type=sql, uri=..., warehouse=...; can be given several times.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring an Iceberg table up to date with what is offloaded: what read_committed shows, up to a cut.

    Objects are registered as they are. It can be repeated; what was trimmed is removed.
    """
    given = dict(_parsed(text) for text in properties or ())
    if catalog is None and not given:
        raise typer.BadParameter("Name a catalog, or give its properties.", param_hint="'--catalog' / '--property'")
    if catalog is not None:
        given = {"name": catalog, **given}
    report = log.export_iceberg(name, given, table)
    if as_json:
        print_json({"topic": name, **to_json(report)})
        return
    if not report.added and not report.removed:
        print(f"Nothing to export to {table}: it shows {format_count(report.rows, 'message')}.")
    else:
        changed = f"{format_count(report.added, 'file')} added, {report.removed:,} removed"
        print(f"Exported topic {name!r} to {table}: {changed}, {format_count(report.rows, 'message')} now.")
    if report.waiting:
        waiting = format_count(report.waiting, "ledger")
        print(f"{waiting} with messages above the cut: not offloaded yet, or divided by it.")


def _parsed(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE.", param_hint="'--property'")
    return key, value
