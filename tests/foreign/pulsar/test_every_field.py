"""Topics of any entries, in objects of any kind: every field of every row is what a naive reader says."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pyarrow.fs as fs
import pytest

from tests.foreign.pulsar.naive_reader import NaiveTopic
from tests.foreign.pulsar.offload_writer import ledger_metadata, map_index, sequence_file, write_ledger
from tests.foreign.pulsar.random_entries import RandomEntries
from tests.foreign.pulsar.sample_cases import COMMITTED, UNCOMMITTED, rows_of, whole
from txn_source.foreign.pulsar.columns import SCHEMA
from txn_source.foreign.pulsar.listing import partition_of, topic_of
from txn_source.foreign.pulsar.pulsar_log import PulsarLog
from txn_source.model.position import Position, PositionRange

_TOPICS = (
    "public/default/persistent/orders",
    "public/default/persistent/orders-partition-3",
    "a.b=c:d/n-s/persistent/%C3%BCx+y%2F%25%2B%2A~",
    "property/cluster/namespace/persistent/old",
)
_COLUMNS = tuple(SCHEMA.names)


def _write(place: Path, topic: str, ledger: int, entries: list[bytes], chance: random.Random) -> None:
    name = uuid.UUID(int=chance.getrandbits(128), version=4)
    if chance.random() < 0.3:
        data = place / topic / f"{ledger}-{name}" / "data"
        data.parent.mkdir(parents=True)
        records = [(-1, ledger_metadata(topic, entries)), *enumerate(entries)]
        data.write_bytes(sequence_file(records, chance.choice(["block", "record", "none"]), chance.randint(1, 7)))
        data.with_name("index").write_bytes(map_index(closed=True))
        return
    largest = 128 + 12 + max(map(len, entries))
    write_ledger(place, ledger, entries, topic, chance.choice([largest, largest + 1, 2 * largest, 1 << 26]), name)


def check(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write some topics to one place, and read each at both levels: whole, in pieces, and now and then by entries."""
    chance = random.Random(seed)
    monkeypatch.setattr("txn_source.foreign.pulsar.summary.STRETCH_BYTES", chance.choice([1, 300, 1 << 20]))
    monkeypatch.setattr("txn_source.foreign.pulsar.data_object.PIECE_BYTES", chance.choice([200, 700, 4 << 20]))
    place = folder / str(seed) / chance.choice(["prefix", "a b/ü"])
    place.mkdir(parents=True)
    encrypted, ledger = chance.random() < 0.3, 3
    topics: dict[str, dict[int, list[bytes]]] = {}
    for topic in chance.sample(_TOPICS, chance.randint(1, 2)):
        source = RandomEntries(chance, encrypted)
        for _ in range(chance.randint(1, 3)):
            ledger += chance.randint(1, 9)
            entries = [source.next() for _ in range(chance.randint(1, 25))]
            topics.setdefault(topic, {})[ledger] = entries
            _write(place, topic, ledger, entries, chance)
    log = PulsarLog(fs.LocalFileSystem(), str(folder / str(seed)), keep_encrypted=encrypted)
    for topic, ledgers in topics.items():
        partition = log.partition(partition_of(topic_of(topic, "")))
        naive = NaiveTopic(ledgers)
        for level in (COMMITTED, UNCOMMITTED):
            wanted = [{name: row[name] for name in _COLUMNS} for row in naive.visible(committed=level is COMMITTED)]
            of = whole(partition, level)
            assert rows_of(partition, of, level, _COLUMNS, chance.choice([1, 500, 1 << 30])) == wanted, seed
            if chance.random() < 0.3:
                places = [Position(ledger, entry) for ledger in ledgers for entry in range(len(ledgers[ledger]))]
                parts = [PositionRange(at, min(at.plus(1), of.end)) for at in places if at < of.end]
                assert [row for part in parts for row in rows_of(partition, part, level, _COLUMNS)] == wanted, seed
            some = ("value", *chance.sample([name for name in _COLUMNS if name != "value"], chance.randint(0, 2)))
            assert rows_of(partition, of, level, some) == [{name: row[name] for name in some} for row in wanted], seed


@pytest.mark.parametrize("seed", range(1))
def test_every_field(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few topics."""
    check(seed, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("seeds", [range(at, at + 50) for at in range(1000, 1300, 50)])
def test_every_field_often(seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many."""
    for seed in seeds:
        check(seed, tmp_path, monkeypatch)
