"""Random damage to sound objects: an error of ours, or the rows that were written; never others."""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from tests.foreign.pulsar.offload_writer import (
    LZ4,
    NONE,
    SNAPPY,
    ZLIB,
    ZSTD,
    Frame,
    Sent,
    batch,
    chunks,
    ledger_metadata,
    marker,
    objects,
    sequence_file,
    single,
)
from tests.foreign.pulsar.sample_cases import COMMITTED, log_of, rows_of, whole
from txn_source.foreign.foreign_log import PartitionName
from txn_source.model.errors import InternalError, TxnLogError

_NAME = "00000000-0000-0000-0000-000000000001-ledger-7"
_MANAGED = "public/default/persistent/orders"
_TXN = (0, 3)


def _entries() -> list[bytes]:
    entries = []
    for codec in (NONE, LZ4, ZLIB, ZSTD, SNAPPY):
        messages = [
            Sent(b"%d-%d" % (codec, at) * 6, b"key", at == 1, None, {"a": "b", "c": str(at)}, 5, at) for at in range(4)
        ]
        entries += [batch(messages, Frame(codec=codec)), single(messages[0], Frame(codec=codec, broker=(7, 8)))]
    entries += [batch([Sent(b"txn")], Frame(txn=_TXN)), *chunks(Sent(b"chunked" * 20), 3, Frame(codec=LZ4))]
    return [*entries, marker(_TXN, commit=True), single(Sent(b"last"))]


def _read(folder: Path) -> list[dict[str, Any]]:
    log = log_of(folder)
    partition = log.partition(PartitionName("persistent://public/default/orders", -1))
    return rows_of(partition, whole(partition), COMMITTED)


def _damaged(data: bytes, chance: random.Random) -> bytes:
    broken = bytearray(data)
    kind = chance.random()
    if kind < 0.2:
        return bytes(broken[: chance.randrange(len(broken))])
    for _ in range(chance.choice([1, 1, 1, 4])):
        at = chance.randrange(len(broken))
        broken[at] = chance.choice([broken[at] ^ 1 << chance.randrange(8), 0, 255, chance.randrange(256)])
    if kind < 0.3:
        at = chance.randrange(len(broken))
        del broken[at : at + chance.randint(1, 20)]
    return bytes(broken)


def _unsummed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without what no checksum covers: the broker's own metadata."""
    return {name: value for name, value in row.items() if name not in ("__index", "__broker_publish_time")}


def _attack(folder: Path, write: Callable[[random.Random], None], seeds: range) -> int:
    """Damage and read again and again; return how often there was an error."""
    sound = [_unsummed(row) for row in _read(folder)]
    assert len(sound) == 5 * 5 + 3
    errors: list[TxnLogError] = []
    for seed in seeds:
        write(random.Random(seed))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                rows = [_unsummed(row) for row in _read(folder)]
        except TxnLogError as error:
            errors.append(error)
            continue
        assert rows == sound, seed
    assert not [error for error in errors if isinstance(error, InternalError)]
    return len(errors)


def _data_object(folder: Path, part: str) -> Callable[[random.Random], None]:
    data, index = objects(_MANAGED, _entries(), block_bytes=1500)
    sound = {"": data, "-index": index}
    for suffix, content in sound.items():
        (folder / f"{_NAME}{suffix}").write_bytes(content)
    return lambda chance: (folder / f"{_NAME}{part}").write_bytes(_damaged(sound[part], chance)) and None


@pytest.mark.parametrize("part", ["", "-index"])
def test_damaged_objects(tmp_path: Path, part: str) -> None:
    """Flip, cut and take away bytes of data and index objects."""
    assert _attack(tmp_path, _data_object(tmp_path, part), range(50)) > 12


def _map_file(folder: Path, kind: str) -> Callable[[random.Random], None]:
    path = folder / f"7-{_NAME[:36]}" / "data"
    path.parent.mkdir()
    entries = _entries()
    sound = sequence_file([(-1, ledger_metadata(_MANAGED, entries)), *enumerate(entries)], kind, 5)
    path.write_bytes(sound)
    return lambda chance: path.write_bytes(_damaged(sound, chance)) and None


@pytest.mark.parametrize("kind", ["block", "record", "none"])
def test_damaged_map_files(tmp_path: Path, kind: str) -> None:
    """Flip, cut and take away bytes of SequenceFiles."""
    assert _attack(tmp_path, _map_file(tmp_path, kind), range(25)) > 6


def _resummed(seed: int) -> list[bytes]:
    """Return entries of which one is damaged and has a right checksum all the same."""
    chance = random.Random(seed)
    entries = _entries()
    at = chance.randrange(len(entries))
    body = entries[at]
    skip = 6 + int.from_bytes(body[2:6], "big") if body[:2] == b"\x0e\x02" else 0
    broken = bytearray(_damaged(body[skip + 6 :], chance))
    entries[at] = body[:skip] + b"\x0e\x01" + crc32c(bytes(broken)).to_bytes(4, "big") + bytes(broken)
    return entries


def _attack_sums(folder: Path, seeds: range) -> int:
    errors: list[TxnLogError] = []
    for seed in seeds:
        place = folder / str(seed)
        place.mkdir()
        for suffix, content in zip(("", "-index"), objects(_MANAGED, _resummed(seed)), strict=True):
            (place / f"{_NAME}{suffix}").write_bytes(content)
        try:
            first = _read(place)
            assert first == _read(place), seed
        except TxnLogError as error:
            errors.append(error)
        shutil.rmtree(place)
    assert not [error for error in errors if isinstance(error, InternalError)]
    return len(errors)


def test_wrong_entries_with_right_checksums(tmp_path: Path) -> None:
    """Damage an entry and sum it anew, as a producer's bug would: an error of ours, or rows, the same each time."""
    assert _attack_sums(tmp_path, range(40)) > 6
