"""``txnlog brokers``: policies for all topics of the log; they are stronger than ``broker.conf``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from txn_source.cli import policies as shared
from txn_source.cli.connection import on_log
from txn_source.cli.output import Json
from txn_source.cli.policies import Priority, PriorityOption, Remove, takes_policies

if TYPE_CHECKING:
    from txn_source.client.log import Log

app = typer.Typer(no_args_is_help=True, help="Set policies and read priorities for all topics of the log.")


@app.command("set-data-read-priority")
@on_log()
def set_data_read_priority(log: Log, value: Priority = None, option: PriorityOption = None) -> None:
    """Set which copy of a ledger is read first, where neither topic nor namespace sets it."""
    shared.set_priority(log, value, option)


@app.command("get-data-read-priority")
@on_log()
def get_data_read_priority(log: Log, as_json: Json = False) -> None:
    """Print the read priority that is set for all topics, or "unset"."""
    shared.print_priority(shared.own_priority(log), as_json=as_json)


@app.command("remove-data-read-priority")
@on_log()
def remove_data_read_priority(log: Log) -> None:
    """Unset it: what broker.conf says, or tiered-first, applies again."""
    shared.remove_priority(log)


@app.command("set-policies")
@on_log()
@takes_policies
def set_policies(log: Log, policies: dict[str, Any], remove: Remove = None) -> None:
    """Set policies of all topics, where neither topic nor namespace sets them."""
    shared.change_policies(log, policies, remove, None, None)


@app.command("get-policies")
@on_log()
def get_policies(log: Log, as_json: Json = False) -> None:
    """Show the policies that are set for all topics, by broker.conf too, and no others."""
    shared.print_set(log, None, as_json=as_json)
