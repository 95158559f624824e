"""Random transactions of several threads over a lossy way, against what their callers were told of them."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from tests.log.lossy import LossyWay
from tests.log.reading import COMMITTED, UNCOMMITTED, by_id, values
from tests.log.sites import Site
from tests.selection import mostly_long
from txn_source import Batching, Log, MessageId, Producer, Transaction, TransactionEndedError, UnavailableError
from txn_source.model.errors import InternalError

THREADS, EACH = 3, 12
WAIT_S = 120.0


@dataclass
class Told:
    """A transaction, and what its callers were told: what was taken of it, and how it ended."""

    txn: Transaction
    taken: list[tuple[str, bytes]] = field(default_factory=list)
    ends: set[str] = field(default_factory=set)


class Storm:
    """Threads that do what comes to their minds; each transaction is one thread's, or shared by all of them."""

    def __init__(self, site: Site, seed: int) -> None:
        self.plain: list[tuple[str, bytes]] = []
        self.told: list[Told] = []
        self.ids: dict[str, list[MessageId]] = defaultdict(list)
        self.reader = site.connect()
        self.topics = [f"{name}-{seed}" for name in ("debits", "credits")]
        for topic in self.topics:
            self.reader.create_topic(topic, partitions=2, ledger_max_entries=20)
        self.way = LossyWay(site.transport(), seed)
        self.log = Log(self.way)  # type: ignore[arg-type]
        batching = Batching(linger_s=random.Random(seed).choice([1e6, 0.001]), max_messages=5)
        self.producers = [self.log.producer(topic, batching=batching) for topic in self.topics]
        self._names = count()
        self._seed = seed

    def run(self, *, shared: bool) -> None:
        """Go through it, then settle what had no answer, over a way that loses nothing any more."""
        self.way.rate = 0.25
        barrier = threading.Barrier(THREADS, action=self._begin)
        with ThreadPoolExecutor(THREADS) as pool:
            threads = [pool.submit(self._work, thread, barrier if shared else None) for thread in range(THREADS)]
            for each in threads:
                each.result(WAIT_S)
        self.way.rate = 0.0
        rng = random.Random(self._seed)
        for told in self.told:
            for end in (rng.choice(["commit", "abort"]), "abort", "commit"):
                if not told.ends:
                    self._act(rng, told, end)
        for producer in self.producers:
            while not self._try(lambda producer=producer: self._flush(producer)):  # type: ignore[misc]
                pass  # what was sent too late is told, one transaction after the other

    def _work(self, thread: int, barrier: threading.Barrier | None) -> None:
        rng = random.Random(self._seed * 1000 + thread)
        for _ in range(EACH):
            if barrier is None:
                told = self._begin()
            else:
                barrier.wait(WAIT_S)
                told = self.told[-1]
            usual = ["send"] * 6 + ["batch", "plain", "flush", "id"] + ["commit", "abort"] * (barrier is not None)
            for _ in range(rng.randrange(1, 6)):
                self._act(rng, told, rng.choice(usual))
            end = rng.choice(["commit", "commit", "commit", "abort"])
            for _ in range(rng.choice([1, 1, 2, 3])):
                self._act(rng, told, end)
                self._act(rng, told, rng.choice(["send", "plain", "flush", "id", "abort", end]))

    def _begin(self) -> Told:
        told = Told(self.log.begin_transaction())
        self.told.append(told)
        return told

    def _act(self, rng: random.Random, told: Told, what: str) -> None:
        producer, names = rng.choice(self.producers), [b"%s %d" % (what.encode(), next(self._names)) for _ in range(3)]
        if what in ("send", "plain"):
            txn = told.txn if what == "send" else None
            if self._try(lambda: producer.send(names[0], txn=txn, partition=rng.choice([None, 0, 1]))):
                (self.plain if txn is None else told.taken).append((producer.topic, names[0]))
        elif what == "batch":
            if self._try(lambda: producer.send_batch(pa.record_batch({"value": names}), txn=told.txn)):
                told.taken += [(producer.topic, name) for name in names]
        elif what == "flush":
            self._try(lambda: self._flush(producer))
        elif what == "id":
            self._try(lambda: told.txn.id)
        elif self._try(getattr(told.txn, what)):
            told.ends.add(what)

    def _flush(self, producer: Producer) -> None:
        self.ids[producer.topic] += producer.flush()

    def _try(self, call: Callable[[], Any]) -> bool:
        """Return True if a call succeeds, False if it is refused since a transaction has ended, or had no answer."""
        try:
            call()
        except (UnavailableError, InternalError, TransactionEndedError):
            return False
        return True

    def check(self) -> None:
        """Compare what readers see with what was told, and once more when all late calls have arrived."""
        seen = {topic: Counter(values(self.reader, topic, COMMITTED)) for topic in self.topics}
        self.way.carry_out_late()
        assert {topic: Counter(values(self.reader, topic, COMMITTED)) for topic in self.topics} == seen
        stored = {topic: by_id(self.reader, topic, UNCOMMITTED) for topic in self.topics}
        for topic in self.topics:
            assert len(set(stored[topic].values())) == len(stored[topic])
            assert len(set(self.ids[topic])) == len(self.ids[topic])
        acknowledged = {(topic, stored[topic][each]) for topic in self.topics for each in self.ids[topic]}
        must = list(self.plain)
        for told in self.told:
            assert len(told.ends) == 1, told
            if told.ends == {"commit"}:
                assert self.reader.transaction(told.txn.id).state.value == "committed" or not told.taken
                must += told.taken
        assert sorted(must) == sorted((topic, value) for topic in self.topics for value in seen[topic].elements())
        assert set(must) <= acknowledged
        assert [txn for txn in self.reader.transactions() if txn.partitions] == []


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("seed", mostly_long(range(3), 0))
def test_what_was_told_is_what_is_there(site: Site, seed: int, shared: bool) -> None:
    """Commit, abort, flush and ask for ids in several threads, while a quarter of their calls is disturbed."""
    storm = Storm(site, seed)
    storm.run(shared=shared)
    storm.check()
    assert sum(storm.way.disturbed.values()) > 0
    storm.log.close()
