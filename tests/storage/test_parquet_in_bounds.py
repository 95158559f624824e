"""Damaged pages under right checksums, as who may write objects can make them, read within a limit of memory."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from txn_source import TxnLogError, connect
from txn_source.storage.checked_file import Runs

_MEMORY = 2 << 30
_ROWS = 5_000
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("data", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(20, 2)),
    ]
)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_damaged_pages_neither_crash_nor_use_up_memory(seed: int, tmp_path: Path) -> None:
    """Change bytes of an object's pages many times: each scan ends with rows or with an error of ours."""
    here = [sys.executable, "-m", __name__, str(tmp_path / "log"), str(seed), "500"]
    ran = subprocess.run(here, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr[-2000:]
    ended = json.loads(ran.stdout)
    assert ended["refused"] > 100
    assert ended["peak_mib"] < 1_500


def _object_of(folder: Path) -> Path:
    """Make a log whose only ledger is an object."""
    with connect(folder) as log:
        log.create_topic("t", schema=_SCHEMA)
        with log.producer("t") as producer:
            for n in range(_ROWS):
                row = {
                    "id": n,
                    "text": f"text {n % 50}",
                    "data": bytes([n % 256]) * (n % 40),
                    "tags": ["a", str(n % 7)],
                }
                producer.send(row | {"at": None, "price": None})
        log.roll_ledger("t")
        log.offload("t")
        log.delete_hot("t")
    [found] = folder.rglob("*.parquet")
    return found


def main(folder: Path, seed: int, times: int) -> None:
    path, dice = _object_of(folder), random.Random(seed)
    sound = path.read_bytes()
    pages = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
    Runs.check = lambda *_: None  # type: ignore[assignment]
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    ended = {"read": 0, "refused": 0}
    for _ in range(times):
        data = bytearray(sound)
        for _ in range(dice.randint(1, 6)):
            data[dice.randrange(4, pages)] = dice.choice((0, 1, 127, 128, 255, dice.randrange(256)))
        path.write_bytes(data)
        try:
            with connect(folder) as log:
                log.scan("t").read_all()
            ended["read"] += 1
        except (TxnLogError, MemoryError):
            ended["refused"] += 1
    print(json.dumps(ended | {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
