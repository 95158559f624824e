"""Random histories of a topic: what is read is what a naive look at its entries, one after the other, says."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

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
    marker,
    single,
    write_ledger,
)
from tests.foreign.pulsar.sample_cases import COMMITTED, UNCOMMITTED, only_topic, rows_of, whole
from tests.selection import for_each
from txn_source.foreign.pulsar.chunks import Chunk, whole_messages
from txn_source.foreign.pulsar.entries import txn_bits
from txn_source.foreign.pulsar.managed_ledger import parse_snapshot
from txn_source.model.position import Position, PositionRange
from txn_source.model.transaction import TransactionState

_CODECS = (NONE, LZ4, ZLIB, ZSTD, SNAPPY)


@dataclass
class History:
    """Entries by ledger, and what is in them: values by (ledger, entry), with the transaction."""

    chance: random.Random
    ledgers: dict[int, list[bytes]] = field(default_factory=dict)
    rows: list[tuple[Position, tuple[int, int] | None, bytes | None]] = field(default_factory=list)
    firsts: dict[tuple[int, int], Position] = field(default_factory=dict)
    ended: dict[tuple[int, int], bool] = field(default_factory=dict)
    sequence: int = 0
    snapshots: list[dict[str, Any]] = field(default_factory=list)

    def take_snapshot(self) -> None:
        """Note what the broker's transaction buffer would write now."""
        ledger = max(self.ledgers, default=2)
        last = self.stable or Position(ledger, len(self.ledgers.get(ledger, ())))
        aborted = [txn for txn, committed in self.ended.items() if not committed]
        self.snapshots.append(
            {
                "topicName": "persistent://public/default/orders",
                "maxReadPositionLedgerId": last.ledger_id,
                "maxReadPositionEntryId": last.entry_id - 1,
                "aborts": [{"txnIdMostBits": most, "txnIdLeastBits": least} for most, least in aborted],
            }
        )

    def put(self, entry: bytes) -> Position:
        """Append an entry; now and then a new ledger begins."""
        if not self.ledgers or (self.ledgers[max(self.ledgers)] and self.chance.random() < 0.1):
            self.ledgers[max(self.ledgers, default=2) + self.chance.randint(1, 5)] = []
        ledger = max(self.ledgers)
        self.ledgers[ledger].append(entry)
        return Position(ledger, len(self.ledgers[ledger]) - 1)

    def send(self, txn: tuple[int, int] | None) -> None:
        """Append messages of any kind."""
        messages = []
        for _ in range(self.chance.randint(1, 4)):
            self.sequence += 1
            size = self.chance.choice([0, 1, 30, 400])
            value = None if self.chance.random() < 0.1 else self.chance.randbytes(size)
            messages.append(Sent(value, sequence=self.sequence))
        frame = Frame(codec=self.chance.choice(_CODECS), txn=txn)
        kind = self.chance.random()
        if kind < 0.6:
            entries, at = [batch(messages, frame)], 0
        elif kind < 0.8:
            entries, at, messages = [single(messages[0], frame)], 0, messages[:1]
        else:
            messages = [Sent(self.chance.randbytes(200), sequence=self.sequence)]
            entries = chunks(messages[0], self.chance.randint(2, 4), frame)
            if self.chance.random() < 0.2:  # its producer went away
                entries, messages = entries[:-1], []
            elif self.chance.random() < 0.3:  # some are sent again
                entries = [*entries[:2], *entries[:2], *entries[2:]] if len(entries) > 2 else [entries[0], *entries]
            at = len(entries) - 1
        for number, entry in enumerate(entries):
            place = self.put(entry)
            if txn is not None:
                self.firsts.setdefault(txn, place)
            if number == at:
                self.rows += [(place, txn, message.value) for message in messages]
            elif self.chance.random() < 0.3:  # another producer's entry lies between chunks
                self.sequence += 1
                other = Sent(b"between", sequence=self.sequence)
                self.rows.append((self.put(single(other, Frame(producer="q"))), None, other.value))

    def visible(self, of: PositionRange, *, committed: bool) -> list[bytes | None]:
        """Return the values of a range that a level shows: the naive rule."""
        return [
            value
            for place, txn, value in self.rows
            if place in of and (not committed or txn is None or self.ended.get(txn, False))
        ]

    @property
    def stable(self) -> Position | None:
        """The first entry of the earliest transaction without an end."""
        return min((place for txn, place in self.firsts.items() if txn not in self.ended), default=None)


def random_history(chance: random.Random) -> History:
    """Return a topic's life: plain messages, transactions side by side, each with an end or without one."""
    history = History(chance)
    open_: list[tuple[int, int]] = []
    begun = 0
    for _ in range(chance.randint(3, 50)):
        step = chance.random()
        history.take_snapshot()
        if step < 0.15:
            open_.append((chance.choice([0, 0, 3]), begun))
            begun += 1
        elif step < 0.35 and open_:
            txn = open_.pop(chance.randrange(len(open_)))
            commit = chance.random() < 0.6
            if txn in history.firsts:
                history.put(marker(txn, commit=commit))
                history.ended[txn] = commit
        else:
            history.send(chance.choice([None, *open_]))
    for txn in open_:
        if chance.random() < 0.8 and txn in history.firsts:
            history.put(marker(txn, commit=True))
            history.ended[txn] = True
    if not history.ledgers:
        history.send(None)
    return history


def _check(seed: int, folder: Path) -> None:
    chance = random.Random(seed)
    history = random_history(chance)
    place = folder / uuid.uuid4().hex
    place.mkdir()
    for ledger, entries in history.ledgers.items():
        write_ledger(place, ledger, entries, block_bytes=chance.choice([5000, 1 << 26]))
    partition = only_topic(place)
    bounds = partition.bounds()
    assert bounds.last_stable == (history.stable or bounds.log_end), seed
    for level in (COMMITTED, UNCOMMITTED):
        of = whole(partition, level)
        cut = chance.choice([Position(ledger, chance.randint(0, len(e))) for ledger, e in history.ledgers.items()])
        cut = min(cut, of.end)
        for part in (of, PositionRange(of.start, cut), PositionRange(cut, of.end)):
            rows = rows_of(partition, part, level, ("value",), unit_bytes=chance.choice([100, 1 << 20]))
            assert [row["value"] for row in rows] == history.visible(part, committed=level is COMMITTED), seed


@pytest.fixture
def small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txn_source.foreign.pulsar.summary.STRETCH_BYTES", 300)
    monkeypatch.setattr("txn_source.foreign.pulsar.data_object.PIECE_BYTES", 700)


def _check_tail(seed: int, folder: Path) -> None:
    """Read the first ledgers of a history with a snapshot of any time: what is decided is decided as it was to be."""
    chance = random.Random(seed)
    history = random_history(chance)
    place = folder / uuid.uuid4().hex
    place.mkdir()
    ledgers = sorted(history.ledgers)[: chance.randint(1, len(history.ledgers))]
    for ledger in ledgers:
        write_ledger(place, ledger, history.ledgers[ledger])
    snapshot = chance.choice(history.snapshots)
    known = parse_snapshot(snapshot)
    partition = only_topic(place, snapshots=[snapshot])
    of = whole(partition)
    for txn, outcome in partition.outcomes().items():
        bits = txn_bits(txn)
        if outcome.state is TransactionState.OPEN:
            assert outcome.first > known.last_key, seed
            assert outcome.marker < 0, seed
        else:
            assert history.ended[bits] == (outcome.state is TransactionState.COMMITTED), seed
    rows = rows_of(partition, of, columns=("value",))
    assert [row["value"] for row in rows] == history.visible(of, committed=True), seed
    assert of.end.key > min(known.last_key, Position(ledgers[-1], len(history.ledgers[ledgers[-1]]) - 1).key), seed


@pytest.mark.long
def test_random_histories_with_snapshots(tmp_path: Path) -> None:
    """Leave the last ledgers out, as they aren't offloaded yet, and give a snapshot."""
    for seed in range(12):
        _check_tail(seed, tmp_path)


@pytest.mark.usefixtures("small_stretches")
def test_random_histories(tmp_path: Path) -> None:
    """Write random histories, and read them at both levels, whole and cut in two."""
    for seed in range(6):
        _check(seed, tmp_path)


def _states(folder: Path, *entries: bytes, ledger: int = 3) -> tuple[str, list[str], str]:
    write_ledger(folder, ledger, list(entries))
    partition = only_topic(folder)
    rows = rows_of(partition, whole(partition), columns=("value",))
    shown = rows_of(partition, whole(partition, UNCOMMITTED), UNCOMMITTED, ("__txn_status",))
    values = "".join(row["value"].decode() for row in rows)
    return values, [row["__txn_status"] for row in shown], str(partition.bounds().last_stable)


_T = (0, 0)


def test_message_behind_a_commit_is_undecided(tmp_path: Path) -> None:
    """A message that comes after its transaction was committed holds back what follows, as with a broker."""
    entries = [single(Sent(b"a"), Frame(txn=_T)), marker(_T, commit=True), single(Sent(b"b"))]
    late = [single(Sent(b"c"), Frame(txn=_T)), single(Sent(b"d"))]
    assert _states(tmp_path, *entries, *late)[::2] == ("ab", "3:3")


def test_status_does_not_depend_on_the_range(tmp_path: Path) -> None:
    """What lies before the commit is committed, and what lies behind it open, however the log is divided."""
    late = single(Sent(b"c"), Frame(txn=_T))
    assert _states(tmp_path, single(Sent(b"a"), Frame(txn=_T)), marker(_T, commit=True), late, late)[1:] == (
        ["committed", "open", "open"],
        "3:2",
    )
    partition = only_topic(tmp_path)
    known = {0: "committed", 2: "open", 3: "open"}
    for start in range(4):
        of = PositionRange(Position(3, start), Position(3, 4))
        rows = rows_of(partition, of, UNCOMMITTED, ("__entry_id", "__txn_status"))
        assert [tuple(row.values()) for row in rows] == [item for item in known.items() if item[0] >= start]


def test_message_behind_a_commit_in_a_later_ledger(tmp_path: Path) -> None:
    """The same where the message lies in another ledger than the commit, and that in another than the first message."""
    write_ledger(tmp_path, 3, [single(Sent(b"a"), Frame(txn=_T))])
    write_ledger(tmp_path, 4, [marker(_T, commit=True), single(Sent(b"b"))])
    assert _states(tmp_path, single(Sent(b"c")), single(Sent(b"d"), Frame(txn=_T)), ledger=5)[::2] == ("abc", "5:1")


def test_message_behind_an_abort_is_hidden(tmp_path: Path) -> None:
    """A message that comes after its transaction was aborted is aborted."""
    entries = [single(Sent(b"a"), Frame(txn=_T)), marker(_T, commit=False), single(Sent(b"b"), Frame(txn=_T))]
    assert _states(tmp_path, *entries, single(Sent(b"c"))) == ("c", ["aborted", "aborted", None], "3:4")


def test_marker_alone(tmp_path: Path) -> None:
    """A marker whose messages were trimmed, or never were, decides nothing that is here."""
    entries = [marker(_T, commit=False), marker((5, 1), commit=True), single(Sent(b"a"))]
    assert _states(tmp_path, *entries) == ("a", [None], "3:3")


def test_messages_that_are_not_whole_are_known(tmp_path: Path) -> None:
    """Take a chunk away: the message isn't read, its neighbours are, and one can ask where it began."""
    first, second = chunks(Sent(b"first" * 9, sequence=1), 3), chunks(Sent(b"second" * 9, sequence=2), 3)
    write_ledger(tmp_path, 3, [second[0], first[0], first[2], second[1], single(Sent(b"x")), second[2]])
    partition = only_topic(tmp_path)
    rows = rows_of(partition, whole(partition), columns=("value", "__first_chunk"))
    assert rows == [{"value": b"x", "__first_chunk": None}, {"value": b"second" * 9, "__first_chunk": "3:0"}]
    assert partition.incomplete_messages() == [Position(3, 1)]


@for_each(
    ("sent", "whole_"),
    [
        ("0 1 2", ["0 1 2"]),
        ("0 1 0 1 2", ["2 3 4"]),
        ("0 1 1 2", ["0 1 3"]),
        ("0 2 1 2", []),
        ("1 2", []),
        ("0 1 2 2", ["0 1 2"]),
        ("0 1 2 0 1 2", ["0 1 2", "3 4 5"]),
        ("0 1", []),
    ],
)
def test_chunks_that_make_a_message(sent: str, whole_: list[str]) -> None:
    """Chunks that come again, out of order, or not at all, as Pulsar's consumer takes them."""
    given = [Chunk(at, b"u", int(number), 3, -1, 0) for at, number in enumerate(sent.split())]
    assert [" ".join(str(chunk.key) for chunk in message) for message in whole_messages(given)] == whole_
