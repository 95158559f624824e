"""A writer's day, of which any step may be interrupted and is then repeated, and what must be in the log afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from tests.interrupts.injection import KINDS, Injection
from tests.log.reading import COMMITTED, UNCOMMITTED, by_id, values
from txn_source import Batching, Log, MessageId
from txn_source.client.writing.linger import Linger

TOPICS = ("left", "right")
PARTITIONS = 2
Inject = Callable[[int], AbstractContextManager[Injection]]
_BATCHING = Batching(linger_s=1e6, max_messages=3)


@dataclass
class Ledger:
    """What was acknowledged: values that must be there once, may be there once, and must not be there."""

    must: list[bytes] = field(default_factory=list)
    may: list[bytes] = field(default_factory=list)
    aborted: list[bytes] = field(default_factory=list)
    ids: dict[tuple[str, MessageId], None] = field(default_factory=dict)
    ordered: list[list[MessageId]] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)
    """Where interrupts came, by step."""


class Day:
    """One run of all steps, interrupted at the n-th place, and while that step is repeated at the m-th."""

    def __init__(self, log: Log, ledger: Ledger, name: str, inject: Inject, first: int, second: int | None) -> None:
        self._log = log
        self._ledger = ledger
        self._name = name
        self._inject = inject
        self._left: int | None = first
        self._second = second
        self.interrupted = False

    def run(self) -> None:
        """Do all steps; each is repeated until it succeeds."""
        left, right = (self._log.producer(topic, batching=_BATCHING) for topic in TOPICS)
        for index in range(4):
            self._send(left, f"plain {index}")  # the last one writes the others first
        self._send(left, "batch", keys=3)
        self._send(left, "batch", keys=3)  # so does this
        self._flush("left", left)
        for end in ("commit", "abort"):
            transaction = self._log.begin_transaction()
            into = self._ledger.must if end == "commit" else self._ledger.aborted
            self._send(left, f"{end} left", into, txn=transaction)
            self._send(right, f"{end} right", into, txn=transaction)
            self._step(end, getattr(transaction, end))
        self._send(right, "last")
        self._step("close", left.close)
        self._step("close", right.close)

    def _send(self, producer: Any, what: str, into: list[bytes] | None = None, keys: int = 0, txn: Any = None) -> None:
        """Send a message, or a batch with so many keys; each try has a name of its own, so that doubles show."""
        tries: list[list[bytes]] = []

        def send() -> None:
            name = f"{self._name} {what} {len(self._ledger.must)} try {len(tries)}"
            if keys:
                tries.append([f"{name} row {row}".encode() for row in range(keys)])
                columns = [[b"%d" % row for row in range(keys)], tries[-1]]
                batch = pa.record_batch([pa.array(c, pa.binary()) for c in columns], ["key", "value"])
                producer.send_batch(batch, txn=txn)
            else:
                tries.append([name.encode()])
                producer.send(tries[-1][0], key=what, txn=txn)

        self._step("send_batch" if keys else "send", send)
        *interrupted, done = tries
        (self._ledger.must if into is None else into).extend(done)
        if into is not self._ledger.aborted:
            self._ledger.may.extend(value for each in interrupted for value in each)

    def _flush(self, topic: str, producer: Any) -> None:
        ids = self._step("flush", producer.flush)
        self._ledger.ids.update({(topic, each): None for each in ids})
        self._ledger.ordered.append(list(ids))

    def _step(self, name: str, call: Callable[[], Any]) -> Any:
        while True:
            if self._left is None:
                return call()
            try:
                with self._inject(self._left) as injection:
                    answer = call()
            except KINDS:
                assert injection.place is not None
                self._ledger.places[name] += 1
                self.interrupted = True
                self._left, self._second = self._second, None
                continue
            # A step that had fewer places than that leaves the rest of the count to the next one.
            self._left -= injection.seen
            return answer


def interrupt_everywhere(log: Log, inject: Inject, stride: int, second: Callable[[int], int | None]) -> Ledger:
    """Run days interrupted at each place that comes, or every so many-th; then check the log and return the ledger.

    Producers' own threads stand still, so that all that is written is written by the calls that are interrupted.
    """
    for topic in TOPICS:
        log.create_topic(topic, partitions=PARTITIONS, ledger_max_entries=50)
    ledger, number = Ledger(), 0
    with patch.object(Linger, "wake"):
        while True:
            day = Day(log, ledger, f"day {number}", inject, number, second(number))
            day.run()
            if not day.interrupted:
                break
            number += stride
    check(log, ledger)
    return ledger


def check(log: Log, ledger: Ledger) -> None:
    """Check that all that was acknowledged is there once and whole, and that the topics take more."""
    committed = [value for topic in TOPICS for value in values(log, topic, COMMITTED)]
    stored = {topic: by_id(log, topic, UNCOMMITTED) for topic in TOPICS}
    seen = Counter(committed)
    assert max(seen.values()) == 1
    assert max(Counter(value for found in stored.values() for value in found.values()).values()) == 1
    assert set(ledger.must) <= seen.keys()
    assert seen.keys() <= {*ledger.must, *ledger.may}
    assert seen.keys().isdisjoint(ledger.aborted)
    for topic, each in ledger.ids:
        assert each in stored[topic]
    for ids in ledger.ordered:
        found = [stored["left"][each] for each in ids]
        plain = [value for value in found if b"plain" in value]
        assert plain == sorted(plain)
    for topic in TOPICS:
        with log.producer(topic) as producer:
            producer.send(b"the next one")
            [each] = producer.flush()
        assert by_id(log, topic)[each] == b"the next one"
    taken = [value for value in ledger.may if value in seen]
    ledger.places["taken by a send that was interrupted"] = len(taken)
