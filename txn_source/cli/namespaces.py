"""``txnlog namespaces``: policies for all topics of a namespace that don't set their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from txn_source.cli import policies as shared
from txn_source.cli.connection import on_log
from txn_source.cli.output import Json
from txn_source.cli.policies import Priority, PriorityOption, Remove, takes_policies

if TYPE_CHECKING:
    from txn_source.client.log import Log

app = typer.Typer(no_args_is_help=True, help="Set policies and read priorities for all topics of a namespace.")

Namespace = Annotated[str, typer.Argument(metavar="TENANT/NAMESPACE", help="public/default.", show_default=False)]


@app.command("set-data-read-priority")
@on_log()
def set_data_read_priority(
    log: Log, namespace: Namespace, value: Priority = None, option: PriorityOption = None
) -> None:
    """Set which copy of a ledger is read first, for topics that don't set it themselves."""
    shared.set_priority(log, value, option, namespace=namespace)


@app.command("get-data-read-priority")
@on_log()
def get_data_read_priority(log: Log, namespace: Namespace, as_json: Json = False) -> None:
    """Print the read priority that is set for a namespace, or "unset"."""
    shared.print_priority(shared.own_priority(log, namespace), as_json=as_json)


@app.command("remove-data-read-priority")
@on_log()
def remove_data_read_priority(log: Log, namespace: Namespace) -> None:
    """Unset a namespace's read priority: the broker's or tiered-first applies again."""
    shared.remove_priority(log, namespace=namespace)


@app.command("set-policies")
@on_log()
@takes_policies
def set_policies(log: Log, namespace: Namespace, policies: dict[str, Any], remove: Remove = None) -> None:
    """Set policies of a namespace; they are stronger than the broker's."""
    shared.change_policies(log, policies, remove, None, namespace)


@app.command("get-policies")
@on_log()
def get_policies(log: Log, namespace: Namespace, as_json: Json = False) -> None:
    """Show the policies that are set for a namespace, and no others."""
    shared.print_set(log, namespace, as_json=as_json)
