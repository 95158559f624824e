"""``txnlog topics stats``: a topic's bounds, ledgers, subscriptions and open transactions, and what is read first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txn_source.cli import foreign, subscription_stats
from txn_source.cli.arguments import Name
from txn_source.cli.connection import on_log
from txn_source.cli.output import Json, console, print_json, table, to_json
from txn_source.cli.policies import origin, policy_text
from txn_source.cli.units import format_duration, format_size
from txn_source.model.copies import Tier
from txn_source.model.policies import DEFAULT
from txn_source.model.units import format_count

if TYPE_CHECKING:
    from txn_source.client.log import Log
    from txn_source.client.topic_stats import LedgerStats, TopicStats

_SHOWN_LEDGERS = 10


@on_log(foreign=foreign.stats)
def stats(log: Log, name: Name, as_json: Json = False) -> None:
    """Show a topic's bounds, ledgers and their copies, subscriptions, and what open transactions hold back."""
    found, subscriptions = log.stats(name), log.subscriptions(name)
    if as_json:
        by_name = {info.name: subscription_stats.facts(log, name, info) for info in subscriptions}
        print_json(to_json(found) | {"subscriptions": by_name})
        return
    counts = (format_count(len(found.partitions), "partition"), format_count(found.messages, "message"))
    print(f"{found.topic}: {', '.join(counts)}, {format_size(found.bytes)}\n")
    _print_partitions(found)
    _print_ledgers(found)
    _print_reading(found)
    if subscriptions:
        console().print(subscription_stats.listing("Subscriptions", subscriptions), "")
    _print_ongoing(found)


def _print_partitions(found: TopicStats) -> None:
    bounds = ("Log start", "Last stable", "High watermark", "Log end", "Max read")
    numbers = ("Messages", "Size", "Open transactions")
    partitions = table("Partitions", "Partition", *bounds, *numbers, right=("Partition", *numbers))
    for p in found.partitions:
        positions = (p.log_start, p.last_stable, p.high_watermark, p.log_end, p.max_read_position)
        transactions = f"{len(p.ongoing_transactions):,}"
        partitions.add_row(
            str(p.partition), *map(str, positions), f"{p.messages:,}", format_size(p.bytes), transactions
        )
    console().print(partitions, "")


def _print_ledgers(found: TopicStats) -> None:
    numbers = ("Entries", "Messages", "Size")
    right = ("Partition", "Ledger", *numbers)
    ledgers = table("Ledgers", "Partition", "Ledger", "State", "Tiers", *numbers, right=right)
    left_out = 0
    for p in found.partitions:
        left_out += len(p.ledgers[:-_SHOWN_LEDGERS])
        for ledger in p.ledgers[-_SHOWN_LEDGERS:]:
            state = "closed" if ledger.closed else "open"
            counts = (f"{ledger.entries:,}", f"{ledger.messages:,}", format_size(ledger.bytes))
            ledgers.add_row(str(p.partition), str(ledger.ledger_id), state, _tiers(ledger), *counts)
    console().print(ledgers)
    if left_out:
        print(f"(the newest {_SHOWN_LEDGERS} of each partition; --json lists the {left_out:,} older ones too)")
    print()


def _tiers(ledger: LedgerStats) -> str:
    if len(ledger.tiers) > 1:
        return "both"
    return "".join("hot" if tier is Tier.BOOKKEEPER else "tiered" for tier in ledger.tiers)


def _print_reading(found: TopicStats) -> None:
    priority, lag = found.data_read_priority, found.policies["offload_deletion_lag"]
    print(f"Read priority: {priority.value} ({origin(priority)}).")
    if lag.value is not None:
        text = policy_text("offload_deletion_lag", lag.value)
        print(f"Hot copies are deleted {text} after the offload ({origin(lag)}).")
    copies, acknowledge = found.policies["hot_copies"], found.policies["acknowledge_copies"]
    if copies.source != DEFAULT:
        text = policy_text("acknowledge_copies", acknowledge.value)
        print(f"Hot copies in {copies.value} ({origin(copies)}), acknowledged with {text}.")
    print()


def _print_ongoing(found: TopicStats) -> None:
    if not found.ongoing_transactions:
        print("No transaction is open: read_committed reads up to the log's end.")
        return
    numbers = ("Held back", "Held back size")
    ongoing = table(
        "Open transactions, and what each holds back from read_committed",
        "Partition", "Transaction", "Age", "Timeout", "First position", *numbers, "Producers",
        right=("Partition", "Age", "Timeout", *numbers),
    )  # fmt: skip
    for p in found.partitions:
        for txn in p.ongoing_transactions:
            ongoing.add_row(
                str(p.partition),
                str(txn.id),
                format_duration(txn.age),
                format_duration(txn.timeout),
                str(txn.first_position),
                f"{txn.messages_held_back:,}",
                format_size(txn.bytes_held_back),
                ", ".join(txn.producers),
            )
    console().print(ongoing)
