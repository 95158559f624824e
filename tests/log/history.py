"""What overlapping transactions write to a topic, and where it went: for tests that know better than the log."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import strategies as st

from tests.log.reading import BY_HAND, send_each
from txn_source import Log, Position, Transaction

PARTITIONS = 3
Place = tuple[int, Position]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "commit", "commit", "abort", "plain"]),
        st.integers(0, 2),
        st.integers(0, PARTITIONS - 1),
    ),
    min_size=5,
    max_size=40,
)
"""Each: what is done, by which writer, on which partition."""


class History:
    """What some writers, each with a transaction at a time, do to a topic."""

    def __init__(self, log: Log) -> None:
        self.log = log
        log.create_topic("t", partitions=PARTITIONS, ledger_max_entries=3)
        self.producer = log.producer("t", batching=BY_HAND)
        self.open: dict[int, tuple[bytes, Transaction]] = {}
        self.entries: dict[bytes, list[Place]] = defaultdict(list)
        """Of what is committed, or plain and of its own."""
        self._written: dict[bytes, list[Place]] = defaultdict(list)
        self._count = 0

    def do(self, step: str, writer: int, partition: int) -> None:
        if step == "plain":
            self._count += 1
            name = b"%d" % self._count
            self.entries[name] += self._send(name, partition, None)
        elif step == "write":
            if writer not in self.open:
                self._count += 1
                self.open[writer] = b"%d" % self._count, self.log.begin_transaction()
            name, transaction = self.open[writer]
            self._written[name] += self._send(name, partition, transaction)
        elif writer in self.open:
            name, transaction = self.open.pop(writer)
            if step == "commit":
                transaction.commit()
                self.entries[name] = self._written[name]
            else:
                transaction.abort()

    def end(self) -> None:
        for writer in list(self.open):
            self.do("abort", writer, 0)

    def trim(self, partition: int, ledgers: int) -> None:
        """Trim so many ledgers, or as many as may go."""
        found = self.log.stats("t").partitions[partition].ledgers
        self.log.trim("t", before={"t": {partition: f"{found[min(ledgers, len(found) - 1)].ledger_id}:0"}})

    def _send(self, name: bytes, partition: int, transaction: Transaction | None) -> list[Place]:
        return [
            (partition, at.position) for at in send_each(self.producer, [name], partition=partition, txn=transaction)
        ]
