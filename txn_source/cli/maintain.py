"""``txnlog maintain``: doing once, by hand, what ``txnlog serve`` does in the background."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from txn_source.cli.connection import on_log
from txn_source.cli.output import Json, note, print_json, repeatable
from txn_source.cli.progress import Progress
from txn_source.cli.units import format_size
from txn_source.model.units import format_count, parse_duration

if TYPE_CHECKING:
    from txn_source.client.log import Log
    from txn_source.client.tiering.maintenance import MaintenanceReport

DEFAULT_SNAPSHOTS = "15m"
SnapshotInterval = Annotated[
    str,
    typer.Option(
        metavar="AGE",
        help="How old the newest snapshot of the metadata is before the next one is made, if something has changed, of"
        " a log whose metadata is in SQLite. 0 keeps none: then files are deleted that a snapshot would need.",
    ),
]


@on_log()
def maintain(
    log: Log,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all copies of hot segments, and mend what is damaged.")
    ] = False,
    snapshot_interval: SnapshotInterval = DEFAULT_SNAPSHOTS,
    as_json: Json = False,
) -> None:
    """Do now what the topics' policies say: copy what roots lack, offload, delete hot copies, trim, make a snapshot of
    the metadata, delete files.

    `txnlog serve` does it every minute. Exit status 1 if it failed for a topic; the others had their turn.
    """
    from txn_source.client.tiering import maintenance

    logging.getLogger(maintenance.__name__).addHandler(logging.NullHandler())  # what failed is printed below
    with repeatable(), Progress("topics", later=True) as shown:
        every_s = parse_duration(snapshot_interval) or None
        report = maintenance.maintain(log.access, verify=verify, snapshot_interval_s=every_s, told=shown.of)
    if as_json:
        print_json(report)
    else:
        for topic, error in report.failures:
            note(f"{topic}: {error}")
        print(f"Maintenance: {describe(report) or 'nothing done'}.")
    if report.failures:
        raise typer.Exit(1)


def describe(report: MaintenanceReport) -> str:
    """Return in one line what was done; nothing if that is nothing."""
    offloaded = report.offloaded
    parts = []
    if report.copies.copied:
        parts.append(f"copied {format_count(report.copies.copied, 'segment')}")
    if report.copies.given_up:
        parts.append(f"gave up surplus copies of {format_count(report.copies.given_up, 'segment')}")
    if offloaded.ledger_ids:
        ledgers = format_count(len(offloaded.ledger_ids), "ledger")
        sizes = f"{format_size(offloaded.hot_bytes)} hot -> {format_size(offloaded.tiered_bytes)} tiered"
        parts.append(f"offloaded {ledgers} ({format_count(offloaded.messages, 'message')}, {sizes})")
    if report.snapshot:
        parts.append("made a snapshot of the metadata")
    if report.hot_copies_deleted:
        parts.append(f"deleted the hot copies of {format_count(report.hot_copies_deleted, 'ledger')}")
    if report.ledgers_trimmed:
        parts.append(f"trimmed {format_count(report.ledgers_trimmed, 'ledger')}")
    if report.files_deleted:
        parts.append(f"deleted {format_count(report.files_deleted, 'file')}")
    return ", ".join(parts)
