"""A stream that follows a subscription, against seeks at any point of a batch, kills, restarts and lost leases.

After each of them: where the next batch begins, and where the subscription stands.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.log.reading import BY_HAND, eventually, send_each
from tests.log.sites import ManualClock, Site
from tests.log.streaming import Follower, Row, reread, rows_between
from tests.log.subscribed import Streams, begins, ends, marks
from txn_source import (
    Log,
    MessageId,
    SubscriptionBusyError,
)
from txn_source.reading.limits import StreamLimits
from txn_source.reading.stream import Stream

CHILD = Path(__file__).with_name("child.py")
SEED = 20260131
ROUNDS = 8


@dataclass
class Race:
    """A stream and an operator, and all messages of each partition in order."""

    log: Log
    query: Follower
    source: random.Random
    sent: dict[int, list[tuple[MessageId, bytes]]]

    def send(self) -> None:
        """Append some entries of one to three messages, plainly, or with a part on each partition in a transaction."""
        producer = self.log.producer("t", batching=BY_HAND)
        for _ in range(self.source.randrange(1, 5)):
            how = self.source.choice(["plain", "committed", "aborted"])
            transaction = None if how == "plain" else self.log.begin_transaction()
            for partition in (0, 1) if transaction else (self.source.randrange(2),):
                values = [b"%d" % self.source.randrange(10**9) for _ in range(self.source.randrange(1, 4))]
                for value in values:
                    producer.send(value, partition=partition, txn=transaction)
                ids = producer.flush()
                if how != "aborted":
                    self.sent[partition] += zip(ids, values, strict=True)
            if transaction is not None:
                transaction.commit() if how == "committed" else transaction.abort()

    def seek(self) -> dict[int, MessageId]:
        """Go anywhere; return where the subscription stands then."""
        to = {p: self.source.choice([*(str(at) for at, _ in messages), "latest"]) for p, messages in self.sent.items()}
        self.log.seek("t", "s", self.source.choice([{"t": to}, {"t": to}, {"t": to}, "earliest", "latest"]))
        return marks(self.log)

    def expect(self, begin: dict[int, MessageId], batch: list[Row]) -> None:
        """Check that a batch is what comes first at a place, on each partition."""
        for partition, messages in self.sent.items():
            came = [row["value"] for row in batch if row["__partition"] == partition]
            after = [value for at, value in messages if at >= begin[partition]]
            assert came == after[: len(came)]


def race(log: Log, stream: Stream[Any]) -> None:
    """Let an operator seek at any point of a batch, many times, and look at the next batch and at the cursor."""
    source = random.Random(SEED)
    race = Race(log, Follower(log, stream), source, {0: [], 1: []})
    query, points = race.query, ["before it", "before its plan", "while it runs", "after its commit"]
    race.send()
    for _ in range(ROUNDS):
        race.send()
        point, sought = source.choice(points), {}
        start = reread(query.at)
        if point == "before it":
            sought = race.seek()
        end = stream.latest(start)
        assert end is not start
        if point == "before its plan":
            sought = race.seek()
        begin = ends(start) | begins(end)
        if point == "before it":
            assert begin == sought
        rows = rows_between(log, stream, start, end)
        race.expect(begin, rows)
        query.batches.append((start, end, rows))
        query.at = reread(end)
        if point == "while it runs":
            sought = race.seek()
        stream.commit(query.at)
        overtaken = point in ("before its plan", "while it runs")
        assert marks(log) == (sought if overtaken else ends(end))
        if point == "after its commit":
            sought = race.seek()
        if point != "before it":
            following = stream.latest(query.at)
            assert following.epoch == end.epoch + 1
            assert begins(following) == sought
            race.expect(sought, rows_between(log, stream, query.at, following))
            query.at = reread(following)
            assert marks(log) == sought
            stream.commit(query.at)
            assert marks(log) == ends(following)
    query.replay()
    assert log.subscription("t", "s").epoch == ROUNDS


def test_stream_and_operator_against_each_other(log: Log, streams: Streams) -> None:
    """Seek at random points of batches: the next batch begins there, and the overtaken commit moves nothing."""
    log.create_topic("t", partitions=2, ledger_max_entries=7)
    stream = streams.open(log, start="earliest", limits=StreamLimits(max_messages=3))
    race(log, stream)


# Crashes


def test_killed_stream_frees_its_subscription(site: Site, streams: Streams) -> None:
    """kill -9 a process that holds it: another stream takes over at once, and goes on where it stands."""
    log = site.connect()
    log.create_topic("t")
    log.create_subscription("t", "s")
    target = site.endpoint if site.kind == "remote" else str(site.root)
    command = [sys.executable, str(CHILD), "hold_subscription", site.kind, target, "t", "s"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(SubscriptionBusyError):
            streams.open(log)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie from now on
        if site.kind == "remote":  # the service sees the broken connection a moment later
            eventually(lambda: not log.subscription("t", "s").consumers, within_s=5)
        query = Follower(log, streams.open(log))
    send_each(log.producer("t", batching=BY_HAND), ["x"])
    assert query.values() == [b"x"]


def test_restart_of_the_service_ends_no_stream(tmp_path: Path, streams: Streams) -> None:
    """Stop the server under a stream and start it: the same stream goes on, still holds its subscription, and
    acknowledges what it read before."""
    with Site("remote", tmp_path / "log") as site:
        log = site.connect()
        log.create_topic("t")
        query = Follower(log, streams.open(log))
        send_each(log.producer("t", batching=BY_HAND), ["a"])
        assert query.values() == [b"a"]
        port = int(site.endpoint.rpartition(":")[2])
        site.stop_server()
        query.stream.commit(query.at)
        site.start_server(port)
        eventually(lambda: len(log.subscription("t", "s").consumers) == 1)
        with pytest.raises(SubscriptionBusyError):
            streams.open(log)
        send_each(log.producer("t", batching=BY_HAND), ["b"])
        assert query.values() == [b"b"]
        assert marks(log) == ends(query.batches[-1][0])


def test_stream_that_slept_past_its_lease_stops(clocked_site: Site, clock: ManualClock, streams: Streams) -> None:
    """Let the lease end, and a second stream take over: the first one neither reads on nor acknowledges."""
    log, other = clocked_site.connect(), clocked_site.connect()
    log.create_topic("t")
    slow = Follower(log, streams.open(log))
    send_each(log.producer("t", batching=BY_HAND), ["a"])
    assert slow.values() == [b"a"]
    clock.advance(60)
    fast = Follower(other, streams.open(other))
    before = marks(other)
    slow.stream.commit(slow.at)
    with pytest.raises(SubscriptionBusyError):
        slow.next()
    assert marks(other) == before
    assert fast.values() == [b"a"]
