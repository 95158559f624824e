"""A writer that is hit by signals at random moments; it prints what was acknowledged, one JSON value a line.

A signal is let through while a call of the log runs; then it is Ctrl-C, and the call is repeated.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.log.child import opened
from tests.log.numbered import PARTITIONS, TOPIC
from txn_source import Batching

_listening = False
interrupted = 0


def _interrupt(*_: object) -> None:
    global _listening
    if _listening:
        _listening = False  # here, so that what this test does about it is never interrupted itself
        raise KeyboardInterrupt


def insist(call: Callable[[], Any]) -> Any:
    """Repeat a call until it isn't interrupted."""
    global _listening, interrupted
    while True:
        try:
            try:
                _listening = True
                return call()
            finally:
                _listening = False
        except KeyboardInterrupt:
            interrupted += 1


def tell(line: Any) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


class Writer:
    """Sends numbered messages, and finds out whether a send that was interrupted has taken its message."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._producer = log.producer(TOPIC, batching=Batching(linger_s=0.002, max_messages=3))
        self._sent = 0

    def send(self, value: Any, **options: Any) -> None:
        """Have a message taken once: as many ids as messages tell whether the interrupt came too late."""
        global _listening, interrupted
        while True:
            try:
                try:
                    _listening = True
                    self._producer.send(value, **options)
                finally:
                    _listening = False
                self._sent += 1
                return
            except KeyboardInterrupt:
                interrupted += 1
                taken, self._sent = len(self._producer.flush()) - self._sent, 0
                assert taken in (0, 1)
                if taken:
                    return

    def flush(self) -> None:
        """Have everything acknowledged."""
        insist(self._producer.flush)
        self._sent = 0

    def transaction(self, name: str, messages: int, commit: bool) -> None:
        """Write a transaction and end it."""
        txn = insist(self._log.begin_transaction)
        for each in range(messages):
            self.send(f"txn {name} message {each} of {messages}", partition=each % PARTITIONS, txn=txn)
        insist(txn.commit if commit else txn.abort)
        self.flush()

    def close(self) -> None:
        insist(self._producer.close)


def write(kind: str, target: str, seed: str) -> None:
    """Write until standard input ends; change the producer now and then."""
    source = random.Random(seed)
    number = int(seed) * 1_000_000
    signal.signal(signal.SIGINT, _interrupt)
    log = opened(kind, target)
    tell("ready")
    while not select.select([0], [], [], 0)[0]:
        writer = Writer(log)
        for _ in range(20):
            number += 10
            if source.random() < 0.5:
                numbers = list(range(number, number + source.randrange(1, 6)))
                for each in numbers:
                    writer.send(b"plain %d" % each, partition=source.randrange(PARTITIONS))
                writer.flush()
                tell(["plain", *numbers])
            else:
                name, messages = f"{seed}-{number}", source.randrange(2, 6)
                commit = source.random() < 0.8
                writer.transaction(name, messages, commit)
                tell(["committed", name, messages] if commit else ["aborted", name])
        writer.close()
        tell(["interrupted", interrupted])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tell(["interrupted", interrupted])
    log.close()


if __name__ == "__main__":
    write(*sys.argv[1:])
