"""``txnlog transactions``: what is open, what it holds back, and ending it by force."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from txn_source.cli import completion, foreign
from txn_source.cli.connection import on_log
from txn_source.cli.output import Json, console, note, print_json, table
from txn_source.cli.units import format_duration, format_size
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TransactionState

if TYPE_CHECKING:
    from txn_source.client.log import Log
    from txn_source.metadata.stub.metadata_stub import TransactionInfo

app = typer.Typer(no_args_is_help=True, help="List, show and abort transactions.")

Id = Annotated[str, typer.Argument(metavar="ID", help="A transaction's id: '(0,7)', 0,7 or 0:7.", show_default=False)]


class StateFilter(enum.Enum):
    """The states that can be asked for."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    ALL = "all"


class Order(enum.Enum):
    """Which ones come first."""

    OLDEST = "oldest"
    NEWEST = "newest"


@app.command("list")
@on_log(foreign=foreign.list_transactions)
def list_transactions(
    log: Log,
    state: Annotated[StateFilter, typer.Option(help="Only those in this state.")] = StateFilter.OPEN,
    topic: Annotated[
        str | None,
        typer.Option(help="Only those that wrote to this topic.", show_default=False, autocompletion=completion.topics),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1000,
    first: Annotated[
        Order | None, typer.Option(help="Which come first.", show_default="oldest of open ones, else newest")
    ] = None,
    as_json: Json = False,
) -> None:
    """List transactions. Of the open ones the oldest come first: they hold readers back the longest."""
    wanted = None if state is StateFilter.ALL else TransactionState(state.value)
    order = first or (Order.OLDEST if state is StateFilter.OPEN else Order.NEWEST)
    found, more = log.metadata.first_transactions(
        wanted, None if topic is None else TopicName.parse(topic), limit, oldest_first=order is Order.OLDEST
    )
    if as_json:
        print_json(found)
    elif found:
        _print_list(found)
    else:
        print("There are no transactions." if wanted is None else f"There are no {wanted} transactions.")
    if more:
        note(f"The {order.value} {len(found):,} are listed, there are {more:,} more; --limit takes another number.")


@app.command("show")
@on_log()
def show(log: Log, id: Id, as_json: Json = False) -> None:
    """Show one transaction: its state, what it wrote where, and what it holds back."""
    found = log.transaction(id)
    if as_json:
        print_json(found)
        return
    out = console()
    facts = table("", "Transaction", str(found.id))
    facts.add_row("state", _state(found))
    facts.add_row("began", f"{format_duration(found.age)} ago")
    facts.add_row("timeout", format_duration(found.timeout))
    facts.add_row("producers", ", ".join(found.producers) or "none")
    facts.add_row("holds back", f"{found.held_back_messages:,} messages, {format_size(found.held_back_bytes)}")
    out.print(facts)
    numbers = ("Messages", "Size", "Held back", "Held back size")
    written = table("Written to", "Topic", "Partition", "First position", "Marker", *numbers, right=numbers)
    for p in found.partitions:
        written.add_row(
            p.topic,
            str(p.partition),
            str(p.first_position),
            "" if p.marker_position is None else str(p.marker_position),
            f"{p.messages:,}",
            format_size(p.bytes),
            f"{p.held_back_messages:,}",
            format_size(p.held_back_bytes),
        )
    if found.partitions:
        out.print("", written)


@app.command("abort")
@on_log()
def abort(log: Log, id: Id) -> None:
    """Abort an open transaction by force; its owner's next call is refused.

    Messages that it held back become visible to read_committed readers; its own never do.
    """
    log.abort_transaction(id)
    print(f"Transaction {log.transaction(id).id} is aborted.")


def _print_list(found: Sequence[TransactionInfo]) -> None:
    numbers = ("Messages", "Held back", "Held back size")
    listing = table("", "Id", "State", "Age", "Timeout", "Partitions", "Producers", *numbers, right=("Age", *numbers))
    for txn in found:
        listing.add_row(
            str(txn.id),
            _state(txn),
            format_duration(txn.age),
            format_duration(txn.timeout),
            "\n".join(f"{p.topic}-partition-{p.partition}" for p in txn.partitions),
            "\n".join(txn.producers),
            f"{sum(p.messages for p in txn.partitions):,}",
            f"{txn.held_back_messages:,}",
            format_size(txn.held_back_bytes),
        )
    console().print(listing)


def _state(txn: TransactionInfo) -> str:
    by = f" ({txn.end_reason})" if txn.end_reason not in ("", "client") else ""
    return f"{txn.state}{by}"
