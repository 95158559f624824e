"""What Pulsar offloaded, read where it lies: no broker runs, nothing is copied, the reader chooses the level.

The objects are real ones, as a broker offloaded them. Their last transactions have no marker yet, since it lies in a
ledger that wasn't offloaded: these hold back what comes behind them from every reader at read_committed. The example
names them, reads the topic at both levels with Spark and without, draws the transactions along the entries of the
ledgers, and moves the topic to a log of txnlog's own.

Run ``python examples/pulsar.py``; ``--help`` lists the options. The exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from others_picture import Line, draw, line_of, text_of
from quiet_spark import quiet_spark
from rich.console import Console
from rich.table import Table

import txn_source
from txn_source import Position
from txn_source.importing import import_topics

SAMPLE = Path(__file__).resolve().parent.parent / "tests/foreign/pulsar/samples/txn-open.tar.gz"
PICTURE = Path(__file__).resolve().parent.parent / "build/pulsar.png"
TOPIC = "persistent://lab/txn/txn-open"
LEVELS = ("read_committed", "read_uncommitted")

console = Console(highlight=False)


def main() -> int:
    """Run the example and return its exit status."""
    parser = argparse.ArgumentParser(description="Ledgers that Pulsar offloaded, read in place at both levels.")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where to draw to (default: %(default)s)")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="txnlog-pulsar-") as folder, tarfile.open(SAMPLE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 and older have none
        archive.extractall(folder)
        objects = Path(folder) / "txn-open" / "objects"
        for packed in objects.glob("*.gz"):
            with gzip.open(packed) as source, packed.with_suffix("").open("wb") as target:
                shutil.copyfileobj(source, target)
        return run(objects, Path(folder), options.picture)


def run(objects: Path, folder: Path, picture: Path) -> int:
    """Read the objects, and return the exit status."""
    path = f"pulsar:{objects}"
    log = txn_source.connect(path)
    console.print(f"{path} has the topic {', '.join(log.topics())}.")
    [partition] = log.stats(TOPIC).partitions
    for txn in partition.ongoing_transactions:
        name = f"({txn.producer_id},{txn.producer_epoch})"
        console.print(f"The transaction {name} is undecided: its first message is at {txn.first}.")
    console.print(f"read_committed ends at {partition.last_stable}, and the objects at {partition.log_end}.")
    with quiet_spark("pulsar") as spark:
        seen = {
            level: spark.read.format("txnlog")
            .option("topic", TOPIC)
            .option("isolationLevel", level)
            .load(path)
            .collect()
            for level in LEVELS
        }
    console.print(side_by_side(log, seen))
    draw(picture, "Ledgers that Pulsar offloaded: their transactions", "entry, ledger by ledger", [line(log)])
    console.print(f"The transactions along the entries: {picture}")
    with txn_source.connect(folder / "moved") as target:
        report = import_topics(path, TOPIC, target, names=["orders"], undecided="keep")
        moved = [[row["value"] for row in target.scan("orders", level).read_all().to_pylist()] for level in LEVELS]
    console.print(f"Moved {report.messages} messages in {report.transactions} transactions to a log of txnlog's own.")
    right = all([_bytes(row.value) for row in seen[level]] == of for level, of in zip(LEVELS, moved, strict=True))
    console.print("[green]It shows the same at both levels.[/]" if right else "[red]It shows something else.[/]")
    return 0 if right and len(seen[LEVELS[0]]) < len(seen[LEVELS[1]]) else 1


def side_by_side(log: Any, seen: dict[str, list[Any]]) -> Table:
    """Return the end of the topic as both levels show it, below each other's positions."""
    columns = ["__ledger_id", "__entry_id", "__batch_index", "__txn_id", "__txn_status", "value"]
    rows = log.scan(TOPIC, "read_uncommitted", columns).read_all().to_pylist()
    shown = {(row["__ledger_id"], row["__entry_id"]) for row in seen[LEVELS[0]]}
    table = Table(title="The last messages", title_justify="left", box=None)
    for name in ("message id", "transaction", "how it ended", *LEVELS):
        table.add_column(name, no_wrap=True)
    for row in rows[-24:]:
        text = text_of(row["value"])
        place = f"{row['__ledger_id']}:{row['__entry_id']}:{max(row['__batch_index'], 0)}"
        seen_here = text if (row["__ledger_id"], row["__entry_id"]) in shown else ""
        table.add_row(place, row["__txn_id"] or "", row["__txn_status"] or "", seen_here, text)
    table.add_row("", "", "messages in all", *(str(len(seen[level])) for level in LEVELS))
    return table


def line(log: Any) -> Line:
    """Return what to draw: ledgers one behind the other, each as wide as it has entries."""
    columns = ["__ledger_id", "__entry_id", "__txn_status"]
    rows = log.scan(TOPIC, "read_uncommitted", columns).read_all().to_pylist()
    transactions = log.transactions(state=None, topic=TOPIC)
    [partition] = log.stats(TOPIC).partitions
    positions = [Position(row["__ledger_id"], row["__entry_id"]) for row in rows]
    known = [*positions, *(at for txn in transactions for at in (txn.first, txn.marker) if at is not None)]
    widths: dict[int, int] = {}
    for at in [*known, partition.log_end, partition.last_stable]:
        widths[at.ledger_id] = max(widths.get(at.ledger_id, 0), at.entry_id + 1)
    starts: dict[int, int] = {}
    for ledger in sorted(widths):
        starts[ledger] = sum(widths[before] for before in starts)
    messages = [(at, row["__txn_status"]) for at, row in zip(positions, rows, strict=True)]
    return line_of(
        TOPIC,
        messages,
        transactions,
        (partition.last_stable, partition.high_watermark),
        lambda at: float(starts[at.ledger_id] + at.entry_id),
        [(start, f"ledger {ledger}") for ledger, start in starts.items()],
    )


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


if __name__ == "__main__":
    sys.exit(main())
