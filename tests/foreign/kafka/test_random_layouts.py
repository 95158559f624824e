"""Lays one history out over brokers that follow, lag behind or lost their office, and over a remote tier, at random.

What is read must be the history as the last leader has it, whichever copies there are.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow.fs as fs
import pytest

from tests.foreign.kafka.aiven_writer import lay_out
from tests.foreign.kafka.batch_writer import ABORT, CODECS, COMMIT, Batch, Record, encode_batch
from tests.foreign.kafka.partition_writer import TOPIC_ID, PartitionWriter
from tests.selection import mostly_long
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.kafka import decided
from txn_source.foreign.kafka.kafka_log import KafkaLog
from txn_source.foreign.kafka.partition_folders import Folder
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange

Row = tuple[int, bytes | None, str | None]
_LETTERS = "ABCDEFGHabcdefgh0123_-"


def behind(batch: Batch) -> int:
    return batch.base_offset + max(len(batch.records), 1)


def random_batch(rng: random.Random, offset: int, epoch: int, tag: str = "") -> Batch:
    """A marker, plain records, or those of a transaction of one of four producers."""
    producer, kind = rng.randrange(4), rng.random()
    if kind < 0.25:
        end = rng.choice([ABORT, COMMIT])
        return Batch(offset, (), "none", producer, rng.randrange(2), control=end, leader_epoch=epoch)
    records = tuple(Record(b"k", f"{tag}{offset + at}".encode()) for at in range(rng.choice([1, 2, 5])))
    if kind < 0.5:
        return Batch(offset, records, rng.choice(CODECS), leader_epoch=epoch)
    return Batch(offset, records, rng.choice(CODECS), producer, 0, 0, True, leader_epoch=epoch)


def random_history(rng: random.Random) -> list[Batch]:
    history: list[Batch] = []
    offset = epoch = 0
    for number in range(rng.choice([5, 30, 80])):
        epoch += rng.choice([1, 2]) if number and rng.random() < 0.06 else 0
        history.append(random_batch(rng, offset, epoch))
        offset = behind(history[-1])
    return history


def other_end(rng: random.Random, history: Sequence[Batch]) -> list[Batch]:
    """What a replica has: some of the history, and maybe what it wrote itself when the others had another leader."""
    changes = [at for at in range(1, len(history)) if history[at].leader_epoch != history[at - 1].leader_epoch]
    if not changes or rng.random() < 0.4:
        return list(history[: rng.randrange(1, len(history) + 1)])
    mine = list(history[: rng.choice(changes)])
    for _ in range(rng.randrange(1, 8)):
        mine.append(random_batch(rng, behind(mine[-1]), mine[-1].leader_epoch, "stale"))
    return mine


def epochs_text(batches: Sequence[Batch], until: int) -> str:
    starts: dict[int, int] = {}
    for batch in batches:
        if batch.base_offset < until:
            starts.setdefault(batch.leader_epoch, batch.base_offset)
    return f"0\n{len(starts)}\n" + "".join(f"{epoch} {start}\n" for epoch, start in starts.items())


def write(rng: random.Random, root: Path, batches: Sequence[Batch], rolls: float) -> PartitionWriter:
    writer = PartitionWriter(root, segment_bytes=1 << 30, index_interval=rng.choice([0, 100, 500]))
    for batch in batches:
        if writer.end and rng.random() < rolls:
            writer.roll()
        writer.append(batch)
    writer.close()
    (writer.folder / "leader-epoch-checkpoint").write_text(epochs_text(batches, writer.end))
    return writer


def copy_segment(
    rng: random.Random, writer: PartitionWriter, batches: Sequence[Batch], base: int, remote: Path, *, aiven: bool
) -> bool:
    """Copy a closed segment to the remote tier; return whether all of it came there."""
    end = writer.bases[writer.bases.index(base) + 1]
    kinds = {kind: writer.folder / f"{base:020}.{kind}" for kind in ("log", "index", "timeindex", "txnindex")}
    files = {kind: path for kind, path in kinds.items() if path.exists()}
    files["snapshot"] = writer.folder / f"{end:020}.snapshot"
    files["leader_epoch_checkpoint"] = remote / "epochs"
    files["leader_epoch_checkpoint"].write_text(epochs_text(batches, end))
    name = f"{base:020}-{''.join(rng.choices(_LETTERS, k=22))}"
    if aiven:
        to = remote / f"t-{TOPIC_ID}" / "0" / name
        lay_out(files, to, chunk=rng.choice([200, 5000]), compress=rng.random() < 0.5, variable=True)
        return True
    folder = remote / f"t-0-{TOPIC_ID}"
    folder.mkdir(exist_ok=True)
    whole = rng.random() < 0.9
    for kind, path in files.items():
        if whole or kind == "log" or rng.random() < 0.3:
            data = path.read_bytes()
            kept = len(data) if whole else rng.randrange(len(data) + 1)
            (folder / f"{name}.{kind}").write_bytes(data[:kept] if kind == "log" else data)
    return whole


def lay_out_all(rng: random.Random, root: Path, history: Sequence[Batch]) -> list[Path]:
    """Write brokers' folders and a remote tier; what the last leader has is in its own folder or in the tier."""
    leader = write(rng, root / "b0", history, rng.choice([0.05, 0.2]))
    replicas = [(leader, history)]
    for number in range(1, rng.choice([1, 2, 4])):
        mine = other_end(rng, history)
        replicas.append((write(rng, root / f"b{number}", mine, 0.2), mine))
        (root / f"b{number}" / "replication-offset-checkpoint").unlink()
    folders = [writer.root for writer, _ in replicas]
    if rng.random() < 0.6:
        (root / "remote").mkdir()
        folders.append(root / "remote")
        aiven, copied = rng.random() < 0.3, set()
        for writer, batches in replicas:
            for base in writer.bases[:-1]:
                if (writer is leader or rng.random() < 0.8) and copy_segment(
                    rng, writer, batches, base, root / "remote", aiven=aiven
                ):
                    copied |= {base} if writer is leader else set()
        for base in leader.bases[:-1]:
            if base not in copied or rng.random() < 0.2:
                break
            for path in leader.folder.glob(f"{base:020}.*"):
                path.unlink()
    for writer, _ in replicas:
        for path in writer.folder.glob("*.snapshot") if rng.random() < 0.3 else ():
            path.unlink()
        if rng.random() < 0.2:
            torn = encode_batch(Batch(writer.end, (Record(b"k", b"torn" * 10),)))[:50]
            with (writer.folder / f"{writer.bases[-1]:020}.log").open("ab") as file:
                file.write(rng.choice([bytes(4096), torn]))
    rng.shuffle(folders)
    return folders


def plain_rules(history: Sequence[Batch], mark: int) -> tuple[list[Row], int]:
    """Return all rows with how their transactions had ended below the high watermark, and the last stable offset."""
    open_txns: dict[int, int] = {}
    ends: dict[int, str] = {}
    rows: list[tuple[int, bytes | None, int | None]] = []
    for batch in history:
        if batch.control is not None:
            if batch.producer_id in open_txns and batch.base_offset < mark:
                ends[open_txns.pop(batch.producer_id)] = "committed" if batch.control == COMMIT else "aborted"
            continue
        first = open_txns.setdefault(batch.producer_id, batch.base_offset) if batch.transactional else None
        rows += [(batch.base_offset + at, record.value, first) for at, record in enumerate(batch.records)]
    stable = min([first for _, _, first in rows if first is not None and first not in ends], default=mark)
    statuses = [(offset, value, None if first is None else ends.get(first, "open")) for offset, value, first in rows]
    return statuses, min(stable, mark)


def check(seed: int, root: Path) -> None:
    rng = random.Random(seed)
    history = random_history(rng)
    end = behind(history[-1])
    folders = lay_out_all(rng, root, history)
    mark = rng.choice([end, rng.randrange(end + 1)])
    (root / "b0" / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {mark}\n")
    log = KafkaLog([Folder(fs.LocalFileSystem(), str(path)) for path in folders], trust_indexes=rng.random() < 0.7)
    partition = log.partition(PartitionName("t", 0))
    rows, stable = plain_rules(history, mark)
    bounds = partition.bounds()
    found = (bounds.log_start.key, bounds.last_stable.key, bounds.high_watermark.key, bounds.log_end.key)
    assert found == (0, stable, mark, end), seed
    for level in IsolationLevel:
        upper = bounds.upper(level).key
        cut = rng.randrange(upper + 1)
        read: list[Row] = []
        for low, high in ((0, cut), (cut, upper)):
            of = PositionRange(Position.from_key(low), Position.from_key(high))
            decisions = partition.decisions(of)
            for unit in partition.units(of, 1500):
                for batch in partition.read(unit, level, decisions, ["offset", "value", "__txn_status"]):
                    read += [(row["offset"], row["value"], row["__txn_status"]) for row in batch.to_pylist()]
        committed = level is IsolationLevel.READ_COMMITTED
        assert read == [row for row in rows if row[0] < upper and not (committed and row[2] == "aborted")], seed


@pytest.mark.parametrize("cheap", mostly_long([0, 256], 0))
def test_copies_of_all_kinds_read_as_the_last_leader_wrote(
    cheap: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare rows, statuses and bounds; once from the markers, and once from transaction indexes."""
    monkeypatch.setattr(decided, "_CHEAP_SEGMENTS", cheap)
    for seed in range(cheap, cheap + 8):
        check(seed, tmp_path / str(seed))
