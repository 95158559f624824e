"""One history in the three kinds of logs: our own, Kafka's folders, and Pulsar's offloaded ledgers.

A history knows what was written, and derives by plain rules what a reader sees. Its *places* are partitions: 0 and 1 of
topic ``a``, and topic ``b``. Messages are growing numbers, so a wrong order shows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tests.log.sites import ManualClock
from txn_source import IsolationLevel, Position
from txn_source.foreign.source import ForeignSource
from txn_source.foreign.target import ForeignTarget
from txn_source.model.position import LATEST, PositionRange
from txn_source.reading.limits import StreamLimits
from txn_source.reading.log_source import LogSource
from txn_source.reading.places import Name, Side
from txn_source.reading.plan import ReadPlan, plan
from txn_source.reading.ranges import tell
from txn_source.reading.request import ReadRequest, Selection
from txn_source.reading.stream import Stream
from txn_source.reading.stream_offset import StreamOffset

COMMITTED, UNCOMMITTED = LEVELS = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
BOTH = Selection(("a", "b"))
ALL = StreamLimits()
COLUMNS = ("__topic", "__partition", "value", "__txn_status", "__ledger_id", "__entry_id")
Clock = Callable[[], float]


class Row(NamedTuple):
    """A row that was read."""

    place: int
    position: Position
    number: int
    status: str | None


class Entry(NamedTuple):
    """Messages with one position (or, in Kafka, with positions from it on), or a transaction's marker."""

    numbers: list[int]
    txn: int | None = None
    commit: bool | None = None
    """How the transaction ended; None: this isn't its marker."""
    position: Any = None
    """Of messages."""


class History:
    """The messages written to a log. Methods of one kind of log have names that begin with an underscore."""

    kind: str
    target: ForeignTarget
    """Where a log of others' lies."""
    columns: Sequence[str] = COLUMNS
    tells = True
    """Its transactions have the same name on each partition."""
    foresees = True
    """The log shows entries that can't be read yet, so they hold back transactions that were committed elsewhere."""
    at_once = False
    """Entries can be read when they are written; else ``publish`` makes them readable."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, ManualClock()
        self.names: list[Name] = []
        self.entries: list[list[Entry]] = []
        self.readable: list[int] = []
        """So many of each place can be read at read_uncommitted."""
        self.known: list[int] = []
        """So many are seen by the log."""
        self.open: dict[int, list[int]] = {}
        """The places that open transactions wrote to."""
        self._numbers, self._txns = count(), count(1)

    def add(self, topic: str) -> int:
        """Add a partition to a topic, which is created if missing, and return its place."""
        place, index = len(self.names), len(self.places(topic))
        self.names.append(self._name(topic, index))
        self.entries.append([])
        self.readable.append(0)
        self.known.append(0)
        self._add(place, topic, index)
        return place

    def send(self, place: int, size: int = 1, txn: int | None = None) -> list[int]:
        """Write an entry with so many messages, a second after the one before; return their numbers."""
        self.clock.advance(1)
        sent = [next(self._numbers) for _ in range(size)]
        if txn is not None and place not in self.open[txn]:
            self.open[txn].append(place)
        self._append(place, Entry(sent, txn, position=self._write(place, sent, txn)))
        return sent

    def begin(self) -> int:
        """Begin a transaction."""
        txn = next(self._txns)
        self.open[txn] = []
        self._begin(txn)
        return txn

    def end(self, txn: int, *, commit: bool = True) -> None:
        """End a transaction."""
        places = self.open.pop(txn)
        self._end(txn, places, commit=commit)
        for place in places:
            self._append(place, Entry([], txn, commit))

    def transfer(self, *places: int) -> list[int]:
        """Commit a transaction with an entry on each place; return the numbers."""
        txn = self.begin()
        sent = [self.send(place, txn=txn)[0] for place in places]
        self.end(txn)
        return sent

    def publish(self, *places: int) -> None:
        """Make the entries of some places readable, or of all."""
        chosen = places or range(len(self.names))
        self._publish(chosen)
        for place in chosen:
            self.readable[place] = len(self.entries[place])
        self.known = [*map(len, self.entries)] if self.foresees else [*self.readable]

    def step(self, rng: random.Random) -> None:
        """Do one thing at random."""
        place = rng.randrange(len(self.names))
        match rng.randrange(8):
            case 0 | 1:
                self.send(place, rng.choice([1, 1, 3]))
            case 2 | 3 | 4:
                txn = rng.choice([*self.open]) if len(self.open) > rng.randrange(3) else self.begin()
                self.send(place, rng.choice([1, 1, 2]), txn)
            case 5 if self.open:
                self.end(rng.choice([*self.open]), commit=rng.random() < 0.7)
            case _:
                self.publish(*([place] if self.foresees and rng.random() < 0.7 else []))

    def settle(self) -> None:
        """Commit the open transactions, and make everything readable."""
        for txn in [*self.open]:
            self.end(txn)
        self.publish()

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._delete(topic)
        for place in self.places(topic):
            self.entries[place], self.readable[place], self.known[place] = [], 0, 0

    def make_anew(self, topic: str) -> None:
        """Create a deleted topic again."""
        for index, place in enumerate(self.places(topic)):
            self._add(place, topic, index)

    def _append(self, place: int, entry: Entry) -> None:
        self.entries[place].append(entry)
        if self.at_once:
            self.publish(place)

    def places(self, topic: str) -> list[int]:
        """Return the places of a topic."""
        return [place for place, name in enumerate(self.names) if name == self._name(topic, name[1])]

    def sent(self, place: int) -> list[int]:
        """Return the numbers of a place's messages."""
        return [each for entry in self.entries[place] for each in entry.numbers]

    def ends(self, level: IsolationLevel) -> list[int]:
        """Return the number of each place's entries below a level's bound."""
        return [n if level is UNCOMMITTED else self._stable(entries[:n]) for entries, n in self._all()]

    def cut(self, ends: Sequence[int]) -> list[int]:
        """Lower ends until no committed transaction is cut in two, by the definition."""
        places = range(len(ends))
        together = [places] if self.tells else [[place] for place in places]
        lowered = [self._cut(of, [ends[place] for place in of]) for of in together]
        return [*chain(*lowered)]

    def _cut(self, places: Sequence[int], ends: list[int]) -> list[int]:
        done = {entry.txn for place in places for entry in self.entries[place][: self.readable[place]] if entry.commit}
        seen = [self.entries[place][: self.known[place]] for place in places]
        wrote = [[entry.txn if entry.numbers else 0 for entry in entries] for entries in seen]
        while True:
            above = done & {txn for txns, end in zip(wrote, ends, strict=True) for txn in txns[end:]}
            lower = [min([end, *map(txns.index, above & {*txns})]) for txns, end in zip(wrote, ends, strict=True)]
            if lower == ends:
                return ends
            ends = lower

    def shown(self, level: IsolationLevel, ends: Sequence[int] | None = None) -> list[int]:
        """Return the sorted numbers that a level shows below some ends, or below its bounds."""
        hidden = {entry.txn for entry in chain(*self.entries) if entry.commit is False and level is COMMITTED}
        seen = (of[:end] for of, end in zip(self.entries, ends or self.ends(level), strict=True))
        return sorted(chain(*(entry.numbers for entry in chain(*seen) if entry.txn not in hidden)))

    def status(self, row: Row) -> str | None:
        """Return the status of a row's transaction now; each partition knows its own markers."""
        entries = self.entries[row.place]
        txn = next(entry.txn for entry in entries if row.number in entry.numbers)
        ends = [e.commit for e in entries[: self.readable[row.place]] if e.txn == txn and e.commit is not None]
        return None if txn is None else "open" if not ends else "committed" if ends[0] else "aborted"

    def _all(self) -> list[tuple[list[Entry], int]]:
        return list(zip(self.entries, self.readable, strict=True))

    @staticmethod
    def _stable(seen: Sequence[Entry]) -> int:
        ended = {entry.txn for entry in seen if entry.commit is not None}
        return next((at for at, e in enumerate(seen) if e.txn is not None and e.txn not in ended), len(seen))

    def planned(
        self, request: ReadRequest, selection: Selection = BOTH, told: Callable[[str | None], object] = tell
    ) -> ReadPlan:
        """Plan a read."""
        source = self.source()
        return plan(source, source.look(selection), request, told)

    def rows(self, planned: ReadPlan, tasks: Iterable[Any] | None = None) -> list[Row]:
        """Read a plan, or tasks of it with a new reader for each."""
        source, columns, found = self.source(), self._columns(planned), []
        for parts in [planned.parts] if tasks is None else tasks:
            for rows in planned.reader(source, columns).read(parts):
                found += [self._row(row) for row in rows.to_pylist()]
        return found

    def numbers(self, request: ReadRequest, selection: Selection = BOTH) -> list[int]:
        """Return the numbers of a read, sorted."""
        return numbers(self.rows(self.planned(request, selection)))

    def side(self, value: Any) -> Side:
        """Return the side that a value names."""
        return self.target.rules.parse_side(value, LATEST)

    def source(self) -> LogSource[Any]:
        """Return the log as a new process opens it."""
        return ForeignSource(self.target)

    def stream(self, selection: Selection, request: ReadRequest, limits: StreamLimits, clock: Clock) -> Stream[Any]:
        """Return a new stream."""
        return Stream(self.source(), selection, request, limits, clock=clock)

    def part(self, part: Any) -> tuple[Name, PositionRange]:
        """Return the partition and the range of a task's part."""
        return part.name, part.unit.of

    def _columns(self, planned: ReadPlan) -> pa.Schema:
        return pa.schema([planned.payload.field(name) for name in self.columns])

    def _row(self, row: dict[str, Any]) -> Row:
        topic, index, number, status, *at = row.values()
        position = Position(*at) if len(at) > 1 else Position.from_key(*at)
        return Row(self.names.index((self._topic(topic), index)), position, int(number), status)

    def _topic(self, text: str) -> Any:
        return text

    def _begin(self, txn: int) -> None:
        return

    def _publish(self, places: Sequence[int]) -> None:
        return


class Written(History):
    """A log of another system that a test has written itself; its rows are tuples of some columns."""

    def __init__(self, target: ForeignTarget, *columns: str) -> None:
        self.target, self.columns = target, columns

    def _row(self, row: dict[str, Any]) -> Any:
        return tuple(row.values())


def numbers(rows: Sequence[Row]) -> list[int]:
    """Return the numbers of rows, sorted."""
    return sorted(row.number for row in rows)


def in_order(rows: Sequence[Row]) -> bool:
    """True if the rows of each place are in the order of writing."""
    places = {row.place for row in rows}
    return all(of == sorted({*of}) for of in ([row.number for row in rows if row.place == p] for p in places))


class Query:
    """A query with a checkpoint of JSON texts; its batches lie between them. ``open`` restarts it."""

    def __init__(
        self,
        history: History,
        limits: StreamLimits = ALL,
        selection: Selection = BOTH,
        clock: Clock = lambda: 0.0,
        **request: Any,
    ) -> None:
        self.history, self.limits, self.selection, self.clock = history, limits, selection, clock
        self.request = ReadRequest(**request)
        self.batches: list[list[Row]] = []
        self.open()
        self.texts = [self.text_of(self.stream.initial())]

    def open(self, **changed: Any) -> Query:
        """Go on with a new stream, with some options changed."""
        self.limits, self.selection = changed.pop("limits", self.limits), changed.pop("selection", self.selection)
        self.request = replace(self.request, **changed)
        self.stream = self.history.stream(self.selection, self.request, self.limits, self.clock)
        return self

    def text_of(self, offset: StreamOffset) -> str:
        """Return an offset as JSON text."""
        return json.dumps(self.history.source().describe().offsets.to_json(offset))

    def at(self, index: int) -> StreamOffset:
        """Return an offset of the checkpoint."""
        return self.history.source().describe().offsets.from_json(json.loads(self.texts[index]))

    def next(self) -> list[Row] | None:
        """Read the next batch; None if there is nothing to read yet."""
        start = self.at(-1)
        end = self.stream.latest(start)
        if end is start:
            return None
        self.texts.append(self.text_of(end))
        self.batches.append(self.read(len(self.texts) - 2))
        return self.batches[-1]

    def read(self, index: int) -> list[Row]:
        """Read a batch, for the first time or again."""
        return self.history.rows(self.stream.plan(self.at(index), self.at(index + 1)))

    def rest(self) -> list[int]:
        """Read until nothing is left; return the numbers, sorted."""
        found: list[Row] = []
        for _ in range(500):
            rows = self.next()
            if rows is None:
                return numbers(found)
            found += rows
        raise AssertionError("there is no end")
