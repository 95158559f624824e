"""The log as plain lists: slow, in memory, and short enough to be checked by eye."""

from __future__ import annotations

from dataclasses import dataclass, field

from txn_source import TxnId


@dataclass
class NaiveTransaction:
    deadline_us: int
    writers: set[str] = field(default_factory=set)
    state: str = "open"
    why: str = ""


@dataclass
class NaiveEntry:
    """An entry of one partition; a marker has no values."""

    txn: TxnId | None
    values: tuple[bytes, ...] = ()


class NaiveLog:
    """One topic. ``ledgers`` are the numbers of entries in each ledger of a partition, the open one last."""

    def __init__(self, partitions: int, ledger_max_entries: int) -> None:
        self.entries: list[list[NaiveEntry]] = [[] for _ in range(partitions)]
        self.ledgers: list[list[int]] = [[0] for _ in range(partitions)]
        self.transactions: dict[TxnId, NaiveTransaction] = {}
        self._ledger_max_entries = ledger_max_entries

    # What happens

    def append(self, partition: int, values: list[bytes], writer: str, txn: TxnId | None) -> None:
        if txn is not None:
            self.transactions[txn].writers.add(writer)
        self._place(partition, NaiveEntry(txn, tuple(values)))

    def end(self, txn: TxnId, state: str, why: str = "client") -> None:
        self.transactions[txn].state, self.transactions[txn].why = state, why
        for partition, entries in enumerate(self.entries):
            if any(entry.txn == txn for entry in entries):
                self._place(partition, NaiveEntry(txn))

    def expire(self, now_us: int) -> None:
        for txn in self.open():
            if self.transactions[txn].deadline_us <= now_us:
                self.end(txn, "aborted", "timeout")

    def fence(self, writer: str) -> None:
        for txn in self.open():
            if writer in self.transactions[txn].writers:
                self.end(txn, "aborted", "fenced")

    def roll(self, partition: int) -> None:
        if self.ledgers[partition][-1]:
            self.ledgers[partition].append(0)

    def add_partitions(self, count: int) -> None:
        self.entries += [[] for _ in range(count)]
        self.ledgers += [[0] for _ in range(count)]

    def begin_anew(self, partitions: int) -> None:
        """The topic is deleted and made again: its messages are gone, and so are its producers."""
        self.entries, self.ledgers = [], []
        self.add_partitions(partitions)
        for known in self.transactions.values():
            known.writers.clear()

    # What is seen

    def open(self) -> list[TxnId]:
        return [txn for txn, known in self.transactions.items() if known.state == "open"]

    def last_stable(self, partition: int) -> int:
        """How many entries lie below the bound of read_committed."""
        entries, undecided = self.entries[partition], self.open()
        return next((i for i, entry in enumerate(entries) if entry.txn in undecided), len(entries))

    def committed(self, partition: int) -> list[bytes]:
        below = self.entries[partition][: self.last_stable(partition)]
        return [v for entry in below if self.status(entry.txn) in (None, "committed") for v in entry.values]

    def uncommitted(self, partition: int) -> list[tuple[bytes, str | None]]:
        return [(value, self.status(entry.txn)) for entry in self.entries[partition] for value in entry.values]

    def held_back(self, partition: int) -> dict[TxnId, int]:
        """How many messages lie at or behind the first one of each open transaction."""
        entries = self.entries[partition]
        firsts = {t: [i for i, entry in enumerate(entries) if entry.txn == t][:1] for t in self.open()}
        return {t: sum(len(e.values) for e in entries[first[0] :]) for t, first in firsts.items() if first}

    def status(self, txn: TxnId | None) -> str | None:
        return None if txn is None else self.transactions[txn].state

    def _place(self, partition: int, entry: NaiveEntry) -> None:
        self.entries[partition].append(entry)
        self.ledgers[partition][-1] += 1
        if self.ledgers[partition][-1] >= self._ledger_max_entries:
            self.ledgers[partition].append(0)
