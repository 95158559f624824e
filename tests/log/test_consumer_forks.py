"""A consumer or reader in a process that was forked: refused there at once, and the parent's goes on."""

from __future__ import annotations

import gc
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log.consuming import numbered, receive, service_of, subscribe, take
from tests.log.reading import eventually, send_each
from tests.log.sites import Site
from txn_source import InvalidArgumentError, Log

VALUES = [b"%d" % number for number in range(10)]
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def in_child(work: Callable[[], None], within_s: int = 30) -> None:
    """Fork, do the work in the child, and have it succeed in time."""
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(within_s)  # a child that hangs is killed
        try:
            work()
            gc.collect()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("held", [False, True])
def test_inherited_consumer_is_refused(site: Site, held: bool) -> None:
    """Fork, also while another thread holds the consumer's locks: each call is refused; the parent misses nothing."""
    log = site.connect()
    producer, _ = numbered(log)
    consumer = subscribe(log, acknowledge_interval=0.01)
    message = receive(consumer)

    def child() -> None:
        for call in (
            lambda: consumer.receive(1.0),
            lambda: consumer.receive_batch(1.0),
            lambda: next(iter(consumer)),
            lambda: consumer.acknowledge(message),
            lambda: consumer.acknowledge_cumulative(message),
            lambda: consumer.negative_acknowledge(message),
            lambda: consumer.flush(),
            lambda: consumer.seek("earliest"),
            lambda: consumer.redeliver(),
            lambda: consumer.unsubscribe(),
        ):
            with pytest.raises(InvalidArgumentError, match="and this process was forked from that one"):
                call()
        consumer.close()

    if held:
        import threading

        taken, done = threading.Event(), threading.Event()

        def hold() -> None:
            with consumer._sender.sending, consumer._epochs.seeking, consumer._lock:
                taken.set()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        taken.wait()
        in_child(child)
        done.set()
        thread.join()
    else:
        in_child(child)
    assert take(consumer, 9) == VALUES[1:]
    consumer.acknowledge(message)
    consumer.flush()
    assert log.subscription("t", "s").partitions[0].backlog == 9
    send_each(producer, [b"new"])
    assert take(consumer, 1) == [b"new"]


def test_child_that_forgets_and_closes_takes_nothing_away(site: Site) -> None:
    """Drop and close everything in the child: the parent's reader and consumer stay connected and receive."""
    log = site.connect()
    numbered(log)
    kept = {"consumer": subscribe(log), "reader": log.reader("t")}
    assert take(kept["consumer"], 3) == VALUES[:3]  # type: ignore[arg-type]

    def child() -> None:
        kept.clear()
        gc.collect()
        log.close()

    in_child(child)
    assert sorted(info.name for info in log.subscriptions("t") if info.consumers)[-1] == "s"
    assert len(log.subscriptions("t")) == 2
    assert take(kept["consumer"], 7) == VALUES[3:]  # type: ignore[arg-type]
    message = kept["reader"].read_next(30.0)  # type: ignore[union-attr]
    assert message is not None
    assert message.value == b"0"


def test_embedded_log_of_a_connected_consumer_is_refused_in_a_child(embedded_site: Site) -> None:
    """Use the log in a child while a consumer of the parent is connected: SQLite can't be used on both sides."""
    log = embedded_site.connect()
    numbered(log)
    consumer = subscribe(log)
    database = embedded_site.root / "metadata.db"

    def in_use() -> bool:
        service_of(embedded_site, log).close_database()  # as a fork does first
        return any(Path(f"/dev/fd/{fd}").resolve() == database.resolve() for fd in os.listdir("/dev/fd"))

    eventually(in_use)  # by the thread that waits for others' changes

    def child() -> None:
        with pytest.raises(InvalidArgumentError, match="was in use when this process was forked"):
            log.topics()

    in_child(child)
    assert take(consumer, 10) == VALUES


def test_child_opens_its_own(remote_site: Site) -> None:
    """Open a reader and a consumer in the child, over the log that it inherited, beside the parent's."""
    log = remote_site.connect()
    producer, _ = numbered(log)
    consumer = subscribe(log)
    assert take(consumer, 1) == VALUES[:1]

    def child() -> None:
        own: Log = log
        with own.reader("t") as reader, subscribe(own, "child's") as other:
            assert [message.value for _, message in zip(VALUES, reader, strict=False)] == VALUES
            assert take(other, 10, acknowledge=True) == VALUES
            with own.producer("t") as more:
                more.send(b"from the child")
            assert take(other, 1) == [b"from the child"]  # it is woken

    in_child(child)
    assert take(consumer, 10) == [*VALUES[1:], b"from the child"]
    send_each(producer, [b"new"])
    assert take(consumer, 1) == [b"new"]
    assert log.subscription("t", "child's").partitions[0].backlog == 2
