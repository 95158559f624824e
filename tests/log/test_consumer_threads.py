"""Many threads on one consumer or reader, while messages arrive: each message goes to one of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.log.consuming import WAIT_S, numbered, subscribe
from tests.log.reading import BY_HAND, eventually, send_each
from tests.log.sites import Site
from tests.selection import mostly_long
from txn_source import Consumer, InvalidArgumentError, Log, MessageBatch, TxnLogError

PRODUCERS, EACH = 3, 120
KINDS = ["exclusive", "shared"]


class Got:
    """What several threads received."""

    def __init__(self, wanted: int) -> None:
        self._lock = threading.Lock()
        self._wanted = wanted
        self.values: Counter[bytes] = Counter()

    def add(self, *values: bytes) -> None:
        with self._lock:
            self.values.update(values)

    @property
    def all(self) -> bool:
        return len(self.values) >= self._wanted


def expected() -> set[bytes]:
    return {b"%d:%d" % (p, n) for p in range(PRODUCERS) for n in range(EACH)}


@contextmanager
def producing(log: Log) -> Iterator[None]:
    """Have several threads write messages, a few at once, while the block runs."""

    def produce(number: int) -> None:
        with log.producer("t", batching=BY_HAND) as producer:
            for n in range(EACH):
                producer.send(b"%d:%d" % (number, n))
                if n % 7 == 0:
                    producer.flush()

    with ThreadPoolExecutor(PRODUCERS) as pool:
        futures = [pool.submit(produce, number) for number in range(PRODUCERS)]
        yield
        for future in futures:
            future.result(WAIT_S)


def in_threads(*works: Callable[[], None]) -> None:
    with ThreadPoolExecutor(len(works)) as pool:
        for future in [pool.submit(work) for work in works]:
            future.result(4 * WAIT_S)


def one_by_one(consumer: Consumer, got: Got) -> None:
    while not got.all:
        if (message := consumer.receive(0.05)) is not None:
            consumer.acknowledge(message)
            got.add(message.value)


def in_batches(consumer: Consumer, got: Got) -> None:
    while not got.all:
        if (batch := consumer.receive_batch(0.05)) is not None:
            consumer.acknowledge(batch)
            got.add(*batch.values)


def in_transactions(consumer: Consumer, got: Got, log: Log) -> None:
    while not got.all:
        if (message := consumer.receive(0.05)) is not None:
            with log.begin_transaction() as transaction:
                transaction.acknowledge(message)
            got.add(message.value)


def acknowledged(log: Log) -> bool:
    return sum(p.backlog for p in log.subscription("t", "s").partitions) == 0


@pytest.mark.parametrize("kind", mostly_long(KINDS, "shared"))
def test_each_message_goes_to_one_thread(log: Log, kind: str) -> None:
    """Receive in six threads, one by one, in batches and in transactions, while three threads produce."""
    log.create_topic("t", 2)
    consumer, got = subscribe(log, type=kind, acknowledge_interval=0.02), Got(PRODUCERS * EACH)
    with producing(log):
        in_threads(
            *[lambda: one_by_one(consumer, got)] * 3,
            *[lambda: in_batches(consumer, got)] * 2,
            lambda: in_transactions(consumer, got, log),
        )
    assert got.values == Counter(expected())
    consumer.flush()
    assert acknowledged(log)
    assert consumer.receive(0.0) is None


def test_reader_is_read_by_many_threads(log: Log) -> None:
    """Read in six threads, one by one, in batches and by iterating, while three threads produce."""
    log.create_topic("t", 2)
    reader, got = log.reader("t"), Got(PRODUCERS * EACH)

    def one() -> None:
        while (message := reader.read_next()) is not None:
            got.add(message.value)

    def batches() -> None:
        while (batch := reader.read_batch()) is not None:
            got.add(*batch.values)

    def iterate() -> None:
        for message in reader:
            got.add(message.value)

    def until_closed(work: Callable[[], None]) -> None:
        with pytest.raises(InvalidArgumentError, match="The consumer is closed"):
            work()

    def close() -> None:
        eventually(lambda: got.all)
        reader.close()

    with producing(log):
        in_threads(*[lambda w=w: until_closed(w) for w in (one, one, batches, batches, iterate, iterate)], close)  # type: ignore[misc]
    assert got.values == Counter(expected())


def test_cumulative_acknowledgements_cover_what_other_threads_hold(log: Log) -> None:
    """Receive in two threads that acknowledge cumulatively: all is received once, and at the end acknowledged."""
    log.create_topic("t")
    consumer, got = subscribe(log, acknowledge_interval=0.01), Got(PRODUCERS * EACH)

    def receive() -> None:
        while not got.all:
            if (message := consumer.receive(0.05)) is not None:
                got.add(message.value)
                consumer.acknowledge_cumulative(message)

    with producing(log):
        in_threads(receive, receive, receive)
    assert got.values == Counter(expected())
    consumer.flush()
    assert acknowledged(log)


@pytest.mark.parametrize("kind", mostly_long(KINDS, "shared"))
def test_refused_messages_come_again_to_some_thread(log: Log, kind: str) -> None:
    """Refuse each message once, from four threads: each comes twice or more, and in the end all are acknowledged."""
    log.create_topic("t", 2)
    consumer = subscribe(log, type=kind, acknowledge_interval=0.02, negative_acknowledge_delay=0.0)
    got, refused, lock = Got(PRODUCERS * 10), set[bytes](), threading.Lock()

    def receive() -> None:
        while not got.all:
            if (message := consumer.receive(0.05)) is None:
                continue
            with lock:
                first = message.value not in refused
                refused.add(message.value)
            if first:
                consumer.negative_acknowledge(message)
            else:
                consumer.acknowledge(message)
                got.add(message.value)

    with log.producer("t", batching=BY_HAND) as producer:
        send_each(producer, [b"%d:%d" % (p, n) for p in range(PRODUCERS) for n in range(10)])
    in_threads(receive, receive, receive, receive)
    consumer.flush()
    # A redelivery of all can overtake an acknowledgement: what was acknowledged in an older epoch comes again.
    while (message := consumer.receive(0.3)) is not None:
        consumer.acknowledge(message)
    consumer.flush()
    assert acknowledged(log)


def test_seeks_from_other_threads_leave_no_gap(log: Log) -> None:
    """Receive in three threads while another one seeks: after the last seek all comes once, in each one's order."""
    numbered(log, 60)
    consumer = subscribe(log)
    seeking, lock = threading.Event(), threading.Lock()
    got: list[tuple[int, bytes]] = []

    def receive() -> None:
        while not seeking.is_set() or sum(epoch == consumer.epoch for epoch, _ in got) < 60:
            if (message := consumer.receive(0.02)) is not None:
                with lock:
                    got.append((message.epoch, message.value))

    def seek() -> None:
        for _ in range(5):
            consumer.seek("earliest")
            eventually(lambda: sum(epoch == consumer.epoch for epoch, _ in got) > 5)
        consumer.seek("earliest")
        seeking.set()

    in_threads(receive, receive, receive, seek)
    last = [value for epoch, value in got if epoch == consumer.epoch]
    assert sorted(last) == sorted(b"%d" % n for n in range(60))


@pytest.mark.parametrize("batches", [False, True])
def test_close_ends_the_calls_that_wait(log: Log, batches: bool) -> None:
    """Let five threads wait for a message that never comes, and close: each ends with the error that says so."""
    log.create_topic("t")
    consumer, waiting = subscribe(log), threading.Barrier(6)

    def receive() -> TxnLogError:
        waiting.wait(WAIT_S)
        with pytest.raises(InvalidArgumentError, match="The consumer is closed") as error:
            (consumer.receive_batch if batches else consumer.receive)(WAIT_S)
        return error.value

    with ThreadPoolExecutor(5) as pool:
        futures = [pool.submit(receive) for _ in range(5)]
        waiting.wait(WAIT_S)
        eventually(lambda: len(consumer._state.news._waiting) == 5)
        consumer.close()
        assert all(isinstance(future.result(WAIT_S), InvalidArgumentError) for future in futures)


def test_nothing_is_taken_after_close(site: Site) -> None:
    """Close, then call everything: what would be lost is refused; closing again is harmless."""
    log = site.connect()
    numbered(log, 3)
    consumer = subscribe(log)
    message = consumer.receive(WAIT_S)
    assert message is not None
    consumer.close()
    for call in (
        lambda: consumer.receive(0.0),
        lambda: consumer.receive_batch(0.0),
        lambda: next(iter(consumer)),
        lambda: consumer.acknowledge(message),
        lambda: consumer.acknowledge_cumulative(message),
        lambda: consumer.negative_acknowledge(message),
        lambda: consumer.seek("earliest"),
        lambda: consumer.redeliver(),
        lambda: consumer.flush(),
    ):
        with pytest.raises(InvalidArgumentError, match="The consumer is closed"):
            call()
    consumer.close()
    again = subscribe(log)
    batch = again.receive_batch(WAIT_S)
    assert isinstance(batch, MessageBatch)
    assert batch.values[0] == b"0"
