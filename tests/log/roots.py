"""A log with copies in three roots, which can be taken away, brought back and damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import txn_source
from txn_source import Log
from txn_source.client.writing import copies
from txn_source.storage import root_health


class Roots:
    """The folders of a log with the roots main, b and c."""

    def __init__(self, folder: Path) -> None:
        self.main, self.b, self.c = folder / "log", folder / "b", folder / "c"
        self._away: dict[Path, Path] = {}

    def __getitem__(self, name: str) -> Path:
        return {"main": self.main, "b": self.b, "c": self.c}[name]

    def segments(self, name: str) -> list[Path]:
        return sorted(path for path in (self[name] / "segments").rglob("*.arrow*") if path.is_file())

    def lose(self, name: str) -> None:
        """Take a root away, as a disk that is unmounted; of the log's own one, what lies in it."""
        place = self[name] / "segments" if name == "main" else self[name]
        self._away[place] = place.with_name(f"{place.name}-away")
        place.rename(self._away[place])
        if name == "main":
            place.write_text("in the way")

    def bring_back(self, name: str) -> None:
        place = self[name] / "segments" if name == "main" else self[name]
        if name == "main":
            place.unlink()
        self._away.pop(place).rename(place)
        root_health.roots._until.clear()  # it is tried at once, not in a while


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path)


@pytest.fixture
def log(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """A log with three roots, of which a topic t has copies in all."""
    monkeypatch.setattr(root_health, "REST_S", 0.0)
    monkeypatch.setattr(root_health, "HUNG_REST_S", 0.0)
    monkeypatch.setattr(copies, "PATIENCE_S", 60.0)
    monkeypatch.setattr(copies, "DEADLINE_S", 60.0)
    with txn_source.connect(roots.main) as log:
        log.add_root("b", roots.b)
        log.add_root("c", roots.c)
        log.create_topic("t", hot_copies="main,b,c")
        yield log


def bounds_of(log: Log, topic: str = "t") -> tuple[int, int, int]:
    """Return last stable, high watermark and end of a topic's partition, as entry ids."""
    [partition] = log.stats(topic).partitions
    return partition.last_stable.entry_id, partition.high_watermark.entry_id, partition.log_end.entry_id


def spoil(path: Path, how: str) -> None:
    """Damage a file."""
    if how == "gone":
        path.unlink()
    elif how == "short":
        os.truncate(path, path.stat().st_size - 1)
    else:
        data = bytearray(path.read_bytes())
        data[-20] ^= 1
        path.write_bytes(data)
