"""Streams over what Pulsar offloads ledger by ledger: each message once, in order, decided before it is shown."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.foreign.pulsar.offload_writer import LZ4, Frame, Sent, batch, chunks, marker, single, write_ledger
from tests.foreign.pulsar.test_objects import TOPIC, map_index, write_map_file
from tests.reading import sources
from tests.reading.sources import Written
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.target import ForeignTarget
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange
from txn_source.reading.limits import StreamLimits
from txn_source.reading.request import Selection

_NO_LIMITS = StreamLimits()
_LEVELS = [IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED]


class Query:
    """A query whose batches are planned by streams that remember nothing, and read twice. It begins when it is run."""

    def __init__(
        self,
        folder: Path,
        level: IsolationLevel = IsolationLevel.READ_COMMITTED,
        limits: StreamLimits = _NO_LIMITS,
        topics: tuple[str, ...] = ("orders",),
        *,
        options: Mapping[str, str] | None = None,
        fail_on_data_loss: bool = True,
    ) -> None:
        written = Written(ForeignTarget.parse(f"pulsar:{folder}").with_options(options or {}), "value")
        request = {"isolation_level": level, "fail_on_data_loss": fail_on_data_loss}
        self._begin = lambda: sources.Query(written, limits, Selection(topics), **request)
        self._begun: sources.Query | None = None

    @property
    def rows(self) -> list[bytes]:
        """All rows so far."""
        return [value for batch in (self._begun.batches if self._begun else ()) for (value,) in batch]

    def run(self) -> bool:
        """Read one batch; return whether there was one."""
        self._begun = self._begun or self._begin()
        rows = self._begun.open().next()
        assert rows is None or [value for (value,) in rows] == self.replay()
        return rows is not None

    def run_all(self) -> list[bytes]:
        """Read until there is nothing, and return all rows."""
        while self.run():
            pass
        return self.rows

    def replay(self) -> list[bytes]:
        """Return the rows of the last batch, read once more."""
        assert self._begun is not None
        return [value for (value,) in self._begun.open().read(len(self._begun.batches) - 1)]


@pytest.mark.parametrize("level", _LEVELS)
def test_ledgers_that_come_one_by_one(tmp_path: Path, level: IsolationLevel) -> None:
    """Offload ledgers while a query runs, with limits and restarts at each batch: it shows what one read shows."""
    chance = random.Random(0)
    entries, written = history(chance), 0
    query = Query(tmp_path, level, StreamLimits(max_bytes=400))
    ledger = 3
    while written < len(entries):
        size = chance.randint(1, 9)
        write_ledger(tmp_path, ledger, entries[written : written + size], block_bytes=chance.choice([900, 1 << 20]))
        written, ledger = written + size, ledger + chance.randint(1, 5)
        while chance.random() < 0.8 and query.run():
            pass
    while query.run():
        pass
    target = ForeignTarget.parse(f"pulsar:{tmp_path}")
    log = target.open()
    partition = log.partition(PartitionName(TOPIC, -1))
    bounds = partition.bounds()
    whole = bounds.clip(bounds.log_start, bounds.log_end, level)
    wanted = [
        value
        for unit in partition.units(whole, 1 << 20)
        for found in partition.read(unit, level, partition.decisions(whole), ["value"])
        for value in found.column(0).to_pylist()
    ]
    assert query.rows == wanted


def history(chance: random.Random) -> list[bytes]:
    """Return entries of several producers: plain, of transactions, chunked, and markers; some are never decided."""
    entries: list[bytes] = []
    open_: list[tuple[int, int]] = []
    waiting: list[bytes] = []
    for at in range(60):
        if waiting and chance.random() < 0.5:
            entries.append(waiting.pop(0))
        if open_ and chance.random() < 0.3:
            entries.append(marker(open_.pop(0), commit=chance.random() < 0.6))
        if chance.random() < 0.3:
            open_.append((0, at))
            entries.append(single(Sent(b"%d/t" % at), Frame(txn=open_[-1])))
            continue
        txn = chance.choice([None, *open_[:2]])
        messages = [Sent(b"%d/%d" % (at, number)) for number in range(chance.randint(1, 4))]
        entries.append(batch(messages, Frame(codec=chance.choice([0, LZ4]), txn=txn)))
        if not waiting and chance.random() < 0.2:
            waiting = chunks(Sent(b"%d/" % at + b"c" * 300, sequence=at), 3, Frame(f"chunks{at}"))
    return entries


def test_limits_count_entries(tmp_path: Path) -> None:
    """A batch that is limited ends between entries, takes one at least, and markers behind its last one."""
    plain = [batch([Sent(b"a"), Sent(b"b")]), single(Sent(b"c")), marker((0, 9), commit=True), single(Sent(b"d"))]
    write_ledger(tmp_path, 3, plain)
    write_ledger(tmp_path, 5, [single(Sent(b"e"))])
    partition = ForeignTarget.parse(f"pulsar:{tmp_path}").open().partition(PartitionName(TOPIC, -1))
    bounds = partition.bounds()
    whole = PositionRange(bounds.log_start, bounds.log_end)
    for rows, end, taken in ((1, "3:1", 2), (2, "3:1", 2), (3, "3:3", 3), (4, "3:4", 4), (5, "5:1", 5), (99, "5:1", 5)):
        found = partition.take(whole, rows, 1 << 30)
        assert (str(found.end), found.rows) == (end, taken)
    assert partition.take(whole, 99, 1).end == Position(3, 1)
    assert partition.take(PositionRange(Position(3, 1), Position(3, 2)), 99, 1 << 30).rows == 1


def test_ledger_that_is_passed_over_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Offload a later ledger before an earlier one: by the broker's numbers of messages the query waits for it.

    The list of ledgers says the same without them, and that a ledger is lost.
    """
    parts = {4: (0, 1, 2), 6: (3, 4, 5), 9: (6, 7)}

    def offload(ledger: int) -> None:
        entries = [single(Sent(b"%d" % at), Frame(broker=(1, at))) for at in parts[ledger]]
        write_ledger(tmp_path, ledger, entries, name=uuid.UUID(int=ledger))

    query = Query(tmp_path, _LEVELS[0], StreamLimits(), ("orders",))
    for ledger in (4, 9):
        offload(ledger)
        while query.run():
            pass
    assert query.rows == [b"0", b"1", b"2"]
    assert [r.getMessage() for r in caplog.records if "ends at 4:3 for now" in r.getMessage()] != []
    offload(6)
    while query.run():
        pass
    assert query.rows == [b"%d" % at for at in range(8)]


def test_map_file_that_is_written_meanwhile(tmp_path: Path) -> None:
    """A MapFile grows under a query: it counts when it is whole."""
    query = Query(tmp_path, _LEVELS[0], StreamLimits(), ("orders",))
    values = [b"%d" % at for at in range(20)]
    write_map_file(tmp_path, [single(Sent(value)) for value in values])
    path = write_map_file(tmp_path, [single(Sent(value)) for value in values], ledger=8)
    whole, index = path.read_bytes(), path.with_name("index")
    index.write_bytes(map_index(closed=False))
    for end in range(0, len(whole), 150):
        path.write_bytes(whole[:end])
        while query.run():
            pass
        assert query.rows == values
    path.write_bytes(whole)
    while query.run():
        pass
    assert query.rows == values * 2
