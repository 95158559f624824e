"""``txnlog topics``: offloading ledgers, deleting copies of them, and trimming the log's start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from txn_source.cli.arguments import Name, Yes, confirm
from txn_source.cli.connection import on_log
from txn_source.cli.output import Json, console, print_json, repeatable, table, to_json
from txn_source.cli.progress import Progress
from txn_source.cli.units import format_duration, format_size
from txn_source.model.copies import Tier
from txn_source.model.errors import SegmentUnreadableError, StorageWriteError
from txn_source.model.topic_name import TopicName
from txn_source.model.units import format_count, parse_duration, parse_size

if TYPE_CHECKING:
    from txn_source.client.log import Log
    from txn_source.client.tiering.offload import OffloadReport
    from txn_source.client.topic_stats import LedgerStats, TopicStats
    from txn_source.model.retention import Trimmed

_LISTED = 10
Ledgers = Annotated[
    list[int] | None,
    typer.Option("--ledger", metavar="ID", help="Only that of this ledger; can be repeated.", show_default=False),
]


@on_log()
def offload(log: Log, name: Name, as_json: Json = False) -> None:
    """Copy closed ledgers to tiered storage, a Parquet object for each.

    Where to: the policy offload_uri. Ledgers that have a copy there are left alone, so it can be repeated.
    """
    from txn_source.client.tiering.offload import OffloadReport

    total = _offloadable(log, name)
    try:
        with Progress("ledgers", total) as shown:
            report = log.offload(name, shown.advance) if total else OffloadReport()
    except (StorageWriteError, SegmentUnreadableError, KeyboardInterrupt):
        done = total - _offloadable(log, name)
        if done > 0 and not as_json:
            print(f"Offloaded {done:,} of {format_count(total, 'ledger')}. The copies made so far stay.")
        raise
    found = log.stats(name)
    waiting, still_open = _waiting(found), [x for x in found.ledgers if not x.closed and x.entries]
    if as_json:
        ids = {"waiting_for_transactions": waiting, "still_open": still_open}
        listed = {key: [ledger.ledger_id for ledger in ledgers] for key, ledgers in ids.items()}
        print_json({"topic": found.topic, **to_json(report), **listed})
        return
    _print_offloaded(found, report)
    if waiting:
        print(
            f"{_these(waiting)} for an open transaction to end: see `txnlog transactions list --topic {found.topic}`,"
            " and abort what hangs."
        )
    if still_open:
        print(f"{_these(still_open, 'is', 'are')} still open: close with `txnlog topics roll {found.topic}`.")


@on_log()
def delete_offloaded(log: Log, name: Name, ledger: Ledgers = None, yes: Yes = False, as_json: Json = False) -> None:
    """Delete the tiered copies of a topic's ledgers; asks first, and is refused if one is the only sound copy."""
    found = log.stats(name)
    copies = [one for one in found.ledgers if Tier.TIERED in one.tiers and (not ledger or one.ledger_id in ledger)]
    confirm(f"Delete the tiered copies of {_count(copies)} of topic {found.topic!r}?", yes=yes)
    with repeatable():
        deleted = log.delete_offloaded(name, ledger or None)
    _print_deleted("tiered", deleted, found.topic, as_json=as_json)


@on_log()
def delete_hot(
    log: Log,
    name: Name,
    after_lag: Annotated[
        bool, typer.Option("--after-lag", help="Only those whose offload_deletion_lag has passed.")
    ] = False,
    ledger: Ledgers = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete the hot copies of ledgers that are offloaded; asks first. Readers go on with the tiered copies."""
    if after_lag and ledger:
        raise typer.BadParameter("It doesn't go with --after-lag.", param_hint="'--ledger'")
    found = log.stats(name)
    lag = found.policies["offload_deletion_lag"].value
    if after_lag and lag is None:
        raise typer.BadParameter(
            f"No deletion lag is set for topic {found.topic!r}. Set it with `txnlog topics set-policies"
            f" {found.topic} --offload-deletion-lag AGE`, or delete without this option.",
            param_hint="'--after-lag'",
        )
    both = [one for one in found.ledgers if len(one.tiers) > 1 and (not ledger or one.ledger_id in ledger)]
    only = f", if they were offloaded more than {format_duration(lag)} ago" if after_lag else ""
    confirm(f"Delete the hot copies of {_count(both)} of topic {found.topic!r}{only}?", yes=yes)
    with repeatable():
        deleted = log.delete_hot(name, after_lag, ledger or None)
    _print_deleted("hot", deleted, found.topic, as_json=as_json)


@on_log()
def trim(
    log: Log,
    name: Name,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="OFFSET",
            help="Ledgers wholly before it go: 12:40 (if there is one partition), JSON such as"
            ' {"orders": {"0": "12:40"}}, or a publish time (ISO 8601 with a zone, or milliseconds since the epoch).',
            show_default=False,
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Ledgers that were closed so long ago go: 7d.", show_default=False),
    ] = None,
    keep_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="The oldest ledgers of a partition that has more bytes go: 10g.", show_default=False
        ),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete whole ledgers, in all tiers, from the start of each partition; asks first.

    Without an option the topic's retention policies decide. The open ledger stays, and so does a ledger with messages
    of an open transaction or behind one.
    """
    from txn_source.client.places import side_of_text

    found = log.stats(name)
    retention = [found.policies[policy].value for policy in ("retention_age", "retention_bytes")]
    if (before, older_than, keep_bytes) == (None, None, None) and retention == [None, None]:
        raise typer.BadParameter(
            f"Topic {found.topic!r} has no retention policy. Say what is to go.",
            param_hint="'--before' / '--older-than' / '--keep-bytes'",
        )
    start = None if before is None else side_of_text(before, "earliest")
    age = None if older_than is None else parse_duration(older_than)
    size = None if keep_bytes is None else parse_size(keep_bytes)
    confirm(f"Trim topic {found.topic!r}? What goes is gone for good, in all tiers.", yes=yes)
    with repeatable():
        done = log.trim(name, start, age, size)
    if as_json:
        print_json({"topic": found.topic, "partitions": done})
        return
    _print_trimmed(found.topic, done)


def _offloadable(log: Log, name: str) -> int:
    return len(log.metadata.list_offloadable(TopicName.parse(name))[0])


def _print_offloaded(found: TopicStats, report: OffloadReport) -> None:
    if not report.ledger_ids:
        print(f"Nothing to offload in topic {found.topic!r}.")
    else:
        counts = (format_count(len(report.ledger_ids), "ledger"), format_count(report.messages, "message"))
        sizes = f"{format_size(report.hot_bytes)} hot -> {format_size(report.tiered_bytes)} tiered"
        print(f"Offloaded {' with '.join(counts)} of topic {found.topic!r}: {sizes}.")
    if report.skipped:
        print(f"{format_count(len(report.skipped), 'ledger')} had been offloaded by somebody else meanwhile.")


def _print_deleted(kind: str, deleted: int, topic: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"topic": topic, "deleted": deleted})
    else:
        print(f"Deleted the {kind} copies of {format_count(deleted, 'ledger')} of topic {topic!r}.")


def _print_trimmed(topic: str, done: list[Trimmed]) -> None:
    if any(p.ledgers for p in done):
        counts = (
            format_count(sum(p.ledgers for p in done), "ledger"),
            format_count(sum(p.messages for p in done), "message"),
            format_size(sum(p.bytes for p in done)),
        )
        print(f"Trimmed {', '.join(counts)} of topic {topic!r}.\n")
    else:
        print(f"Nothing to trim in topic {topic!r}.\n")
    numbers = ("Ledgers", "Messages", "Size")
    listing = table("", "Partition", *numbers, "Log start now", right=("Partition", *numbers))
    for p in done:
        row = (f"{p.partition}", f"{p.ledgers:,}", f"{p.messages:,}", format_size(p.bytes), str(p.log_start))
        listing.add_row(*row)
    console().print(listing)
    for p in done:
        if p.held_by is not None:
            print(
                f"Partition {p.partition}: more is kept for subscription {p.held_by!r}, which has not acknowledged it."
            )


def _waiting(found: TopicStats) -> list[LedgerStats]:
    """Return the closed ledgers that reach into what is undecided: an object never changes, so they must wait."""
    return [
        ledger
        for p in found.partitions
        for ledger in p.ledgers
        if ledger.closed and Tier.TIERED not in ledger.tiers and ledger.ledger_id >= p.last_stable.ledger_id
    ]


def _these(ledgers: list[LedgerStats], one: str = "waits", several: str = "wait") -> str:
    ids = ", ".join(str(ledger.ledger_id) for ledger in ledgers[:_LISTED])
    more = f" and {len(ledgers) - _LISTED:,} more" if len(ledgers) > _LISTED else ""
    return f"{'Ledger' if len(ledgers) == 1 else 'Ledgers'} {ids}{more} {one if len(ledgers) == 1 else several}"


def _count(ledgers: list[LedgerStats]) -> str:
    return f"{format_count(len(ledgers), 'ledger')} ({format_size(sum(ledger.bytes for ledger in ledgers))})"
