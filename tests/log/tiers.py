"""Short ways to fill a topic's ledgers, to look at the copies of each, and to damage them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.log.reading import BY_HAND
from txn_source import Log
from txn_source.client.reading.columns import columns_beside
from txn_source.model.copies import Tier

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
Damage = Callable[[Path], None]


def everything(log: Log, topic: str, level: str, **options: object) -> pa.Table:
    """Scan the payload and all metadata columns."""
    return log.scan(topic, level, [*log.schema(topic).names, *columns_beside(log.schema(topic))], **options).read_all()  # type: ignore[arg-type]


def closed_ledgers(log: Log, topic: str) -> list[int]:
    """Return the ids of a topic's closed ledgers."""
    return [ledger.ledger_id for ledger in log.stats(topic).ledgers if ledger.closed]


def tiers_of(log: Log, topic: str) -> list[set[str]]:
    """Return which tiers have a copy of each ledger, the open one left out."""
    return [{str(tier) for tier in ledger.tiers} for ledger in log.stats(topic).ledgers if ledger.closed]


def objects(root: Path) -> list[Path]:
    """Return the objects in the root, by ledger."""
    return sorted((root / "tiered").rglob("*.parquet"), key=lambda path: int(path.name.split("-")[1]))


def second_file(path: Path) -> Path:
    """Return the file with the aborted messages of an object."""
    return path.with_name(f"_{path.stem}.aborted")


def second_files(root: Path) -> list[Path]:
    """Return all files with aborted messages in the root, by ledger."""
    return sorted((root / "tiered").rglob("*.aborted"), key=lambda path: int(path.name.split("-")[1]))


def segments(root: Path) -> list[Path]:
    """Return the segments in the root, by the ledger that was open when they were begun."""
    return sorted((root / "segments").rglob("*.arrow"), key=lambda path: int(path.name.split("-")[0]))


def copy_of(root: Path, ledger_id: int, tier: Tier) -> Path:
    """Return the file of a copy; hot ones must have been written as ``write_ledgers`` does."""
    name, found = (f"ledger-{ledger_id}-", objects(root)) if tier is Tier.TIERED else (f"{ledger_id}-", segments(root))
    [path] = [path for path in found if path.name.startswith(name)]
    return path


def write_ledgers(
    log: Log,
    topic: str = "orders",
    ledgers: int = 3,
    value: Callable[[random.Random], object] = lambda source: source.randbytes(200),
    tick: Callable[[], object] = lambda: None,
) -> None:
    """Fill and close ledgers of a partition, each with a segment of its own; then begin one more.

    A ledger gets plain messages, entries of several messages, a committed and an aborted transaction, and entries of
    two others that span all of them and end in the last one. Of three ledgers the second one has event times and
    properties, the third one event times. ``tick`` is called before each entry.
    """
    source = random.Random(topic)
    spanning = [log.begin_transaction(800), log.begin_transaction(800)]
    for number in range(ledgers):
        with log.producer(topic, name=f"producer {number}", batching=BY_HAND) as producer:
            for index, txn in enumerate([None, *spanning, "commit", None, "abort", None]):
                own = log.begin_transaction(800) if isinstance(txn, str) else None
                for entry in range(2):
                    for _ in range(1 + entry * index % 3):
                        producer.send(
                            value(source),
                            key=b"%d" % index if index % 2 else None,
                            properties={"number": str(index)} if number % 3 == 1 else None,
                            event_time=NOON + timedelta(seconds=index) if number % 3 else None,
                            txn=own or (None if isinstance(txn, str) else txn),
                            partition=0,
                        )
                    tick()
                    producer.flush()
                if own is not None:
                    own.commit() if txn == "commit" else own.abort()
        if number < ledgers - 1:
            log.roll_ledger(topic)
    spanning[0].commit()
    spanning[1].abort()
    log.roll_ledger(topic)
    with log.producer(topic, name="last") as producer:
        producer.send(value(source), partition=0)


# Damage


def remove(path: Path) -> None:
    path.unlink()


def cut_in_half(path: Path) -> None:
    _cut(path, path.stat().st_size // 2)


def cut_last_byte(path: Path) -> None:
    _cut(path, path.stat().st_size - 1)


def overwrite(path: Path) -> None:
    """Put a file of the same size with other bytes in its place."""
    path.write_bytes(b"x" * path.stat().st_size)


def replace_by_folder(path: Path) -> None:
    """Put a folder in its place: it can't be opened, whoever asks."""
    path.unlink()
    path.mkdir()


def replace_by_sibling(path: Path) -> None:
    """Put the file that lies beside it in its place."""
    other = next(p for p in sorted(path.parent.iterdir()) if p != path and p.suffix == path.suffix)
    shutil.copy(other, path)


def flip_in_middle(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


def flip_near_end(path: Path) -> None:
    flip(path, path.stat().st_size - 20)


def flip_in_footer(path: Path) -> None:
    flip(path, path.stat().st_size - 100)


def flip_in_row_group(number: int) -> Damage:
    """Return what damages the values in one row group of an object."""

    def damage(path: Path) -> None:
        column = pq.read_metadata(path).row_group(number).column(1)
        assert column.path_in_schema == "value"
        flip(path, column.data_page_offset + column.total_compressed_size - 10)

    return damage


def in_second_file(damage: Damage) -> Damage:
    """Return what does the same damage to the file with the aborted messages."""
    return lambda path: damage(second_file(path))


def flip(path: Path, at: int, mask: int = 0xFF) -> None:
    """Change one byte of a file, in place."""
    with path.open("r+b") as file:
        file.seek(at)
        [byte] = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ mask]))


def _cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)
