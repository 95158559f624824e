"""What a broker of Kafka wrote, read where it lies: no broker runs, nothing is copied, the reader chooses the level.

The log directory is a real one. A producer of its topic ``txn`` died within a transaction: that one holds back what
comes behind it from every reader at read_committed. The example names it, reads the topic at both levels with Spark
and without, draws the transactions along the offsets, and moves the topic to a log of txnlog's own.

Run ``python examples/kafka.py``; ``--help`` lists the options. The exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
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
from txn_source.importing import import_topics

SAMPLE = Path(__file__).resolve().parent.parent / "tests/foreign/kafka/samples/txn.tar.gz"
PICTURE = Path(__file__).resolve().parent.parent / "build/kafka.png"
TOPICS = ("txn", "txn3")
LEVELS = ("read_committed", "read_uncommitted")

console = Console(highlight=False)


def main() -> int:
    """Run the example and return its exit status."""
    parser = argparse.ArgumentParser(description="A Kafka log directory, read in place at both levels.")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where to draw to (default: %(default)s)")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="txnlog-kafka-") as folder, tarfile.open(SAMPLE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 and older have none
        archive.extractall(folder)
        return run(Path(folder), options.picture)


def run(folder: Path, picture: Path) -> int:
    """Read the log in a folder, and return the exit status."""
    path = f"kafka:{folder / 'txn' / 'log'}"
    log = txn_source.connect(path)
    console.print(f"{path} has the topics {', '.join(log.topics())}.")
    for topic in TOPICS:
        tell_of_open(log, topic)
    with quiet_spark("kafka") as spark:
        seen = {
            level: spark.read.format("txnlog")
            .option("topic", "txn")
            .option("isolationLevel", level)
            .load(path)
            .collect()
            for level in LEVELS
        }
    console.print(side_by_side(log, seen))
    draw(picture, "A Kafka log directory: its transactions", "offset", [line for t in TOPICS for line in lines(log, t)])
    console.print(f"The transactions along the offsets: {picture}")
    with txn_source.connect(folder / "moved") as target:
        report = import_topics(path, "txn", target, undecided="keep")
        moved = [[row["value"] for row in target.scan("txn", level).read_all().to_pylist()] for level in LEVELS]
    console.print(f"Moved {report.messages} messages in {report.transactions} transactions to a log of txnlog's own.")
    right = all([_bytes(row.value) for row in seen[level]] == of for level, of in zip(LEVELS, moved, strict=True))
    console.print("[green]It shows the same at both levels.[/]" if right else "[red]It shows something else.[/]")
    return 0 if right and len(seen[LEVELS[0]]) < len(seen[LEVELS[1]]) else 1


def tell_of_open(log: Any, topic: str) -> None:
    """Name the transactions that are undecided, with what they hold back."""
    for partition in log.stats(topic).partitions:
        for txn in partition.ongoing_transactions:
            held = partition.high_watermark - partition.last_stable
            console.print(
                f"{topic}-{partition.partition}: the transaction of producer {txn.producer_id}, epoch"
                f" {txn.producer_epoch}, is open since offset {txn.first}. read_committed ends at"
                f" {partition.last_stable}: {held} offsets are held back."
            )


def side_by_side(log: Any, seen: dict[str, list[Any]]) -> Table:
    """Return the end of the topic as both levels show it, below each other's offsets."""
    columns = ["offset", "value", "__producer_id", "__txn_status"]
    rows = log.scan("txn", "read_uncommitted", columns).read_all().to_pylist()
    shown = {row.offset for row in seen[LEVELS[0]]}
    table = Table(title="The last messages of txn", title_justify="left", box=None)
    for name in ("offset", "producer", "its transaction", *LEVELS):
        table.add_column(name, no_wrap=True)
    for row in rows[-24:]:
        text = text_of(row["value"])
        status = row["__txn_status"] or ""
        producer = "" if row["__producer_id"] < 0 else str(row["__producer_id"])
        table.add_row(str(row["offset"]), producer, status, text if row["offset"] in shown else "", text)
    table.add_row("", "", "messages in all", *(str(len(seen[level])) for level in LEVELS))
    return table


def lines(log: Any, topic: str) -> list[Line]:
    """Return what to draw of a topic's partitions."""
    rows = log.scan(topic, "read_uncommitted", ["partition", "offset", "__txn_status"]).read_all().to_pylist()
    transactions = log.transactions(state=None, topic=topic)
    found = []
    for partition in log.stats(topic).partitions:
        index = partition.partition
        mine = [(row["offset"], row["__txn_status"]) for row in rows if row["partition"] == index]
        of = [txn for txn in transactions if txn.partition == index]
        found.append(line_of(f"{topic}-{index}", mine, of, (partition.last_stable, partition.high_watermark), float))
    return found


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


if __name__ == "__main__":
    sys.exit(main())
