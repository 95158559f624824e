"""``txnlog topics``: a topic's policies and its read priority."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from txn_source.cli import policies as shared
from txn_source.cli.arguments import Name
from txn_source.cli.connection import on_log
from txn_source.cli.output import Json
from txn_source.cli.policies import Priority, PriorityOption, Remove, takes_policies
from txn_source.model.policies import EffectivePolicy

if TYPE_CHECKING:
    from txn_source.client.log import Log


@on_log()
@takes_policies
def set_policies(log: Log, name: Name, policies: dict[str, Any], remove: Remove = None) -> None:
    """Set policies of a topic; they are stronger than its namespace's and the broker's."""
    shared.change_policies(log, policies, remove, name, None)


@on_log()
def get_policies(log: Log, name: Name, as_json: Json = False) -> None:
    """Show a topic's policies as they are in force: each value, and where it comes from."""
    shared.print_in_force(log.policies(name), as_json=as_json)


@on_log()
def set_data_read_priority(log: Log, name: Name, value: Priority = None, option: PriorityOption = None) -> None:
    """Set which copy of a topic's ledgers is read first; the other one is the fallback."""
    shared.set_priority(log, value, option, topic=name)


@on_log()
def get_data_read_priority(
    log: Log,
    name: Name,
    applied: Annotated[
        bool, typer.Option("--applied", "-ap", help="What is in force, wherever it is set; --json says where.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the read priority that is set for a topic itself, or "unset"."""
    found: EffectivePolicy | None = log.policies(name)["data_read_priority"]
    if not applied and found is not None and found.source != "topic":
        found = None
    shared.print_priority(found, as_json=as_json)


@on_log()
def remove_data_read_priority(log: Log, name: Name) -> None:
    """Unset a topic's read priority: its namespace's, the broker's or tiered-first applies again."""
    shared.remove_priority(log, topic=name)
