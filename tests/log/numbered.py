"""Numbered messages: a producer that tells what was acknowledged, and the check that all of it is there, once."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tests.log.reading import COMMITTED, UNCOMMITTED, by_partition
from txn_source import Log, Producer, Transaction

PARTITIONS = 2
TOPIC = "numbered"
_PLAIN = re.compile(rb"plain (\d+)")
_INSIDE = re.compile(rb"txn (\S+) message \d+ of (\d+)")
Insist = Callable[[Callable[[], Any]], Any]


def produce(log: Log, producer: Producer, seed: str, insist: Insist = lambda call: call()) -> Iterator[list[Any]]:
    """Write messages plain and in transactions, without end; yield what was acknowledged as soon as it was.

    That is ``["plain", number, ...]``, ``["committed", name, messages]`` or ``["aborted", name]``. Numbers and names
    begin with the seed, so that none is used twice. ``insist`` carries out each call that may have to be repeated.
    """
    source = random.Random(seed)
    number = int(seed) * 1_000_000
    while True:
        if source.random() < 0.4:
            numbers = list(range(number, number + source.randrange(1, 5)))
            for each in numbers:
                producer.send(b"plain %d" % each, partition=source.randrange(PARTITIONS))
            insist(producer.flush)
            number += len(numbers)
            yield ["plain", *numbers]
        else:
            transaction: Transaction = insist(log.begin_transaction)
            name, messages = f"{seed}-{number}", source.randrange(2, 6)
            number += 1
            for each in range(messages):
                value = f"txn {name} message {each} of {messages}"
                producer.send(value, partition=each % PARTITIONS, txn=transaction)
                if source.random() < 0.3:
                    insist(producer.flush)
            if source.random() < 0.8:
                insist(transaction.commit)
                yield ["committed", name, messages]
            else:
                insist(transaction.abort)
                yield ["aborted", name]


def check(log: Log, acknowledged: list[list[Any]]) -> None:
    """Check that what was acknowledged is there exactly once, that transactions are whole, and that order is kept.

    It holds for one producer at a time that writes one transaction after the other: behind an undecided one there is
    nothing else then.
    """
    committed, everything = by_partition(log, TOPIC, COMMITTED), by_partition(log, TOPIC, UNCOMMITTED)  # in this order
    stored = [value for values in everything.values() for value in values]
    seen = [value for values in committed.values() for value in values]
    assert len(set(stored)) == len(stored)
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(stored)
    for values in committed.values():
        numbers = [int(found[1]) for value in values if (found := _PLAIN.fullmatch(value))]
        assert numbers == sorted(numbers)

    plain = {int(found[1]) for value in seen if (found := _PLAIN.fullmatch(value))}
    inside = Counter(found.groups() for value in seen if (found := _INSIDE.fullmatch(value)))
    assert all(count == int(messages) for (_, messages), count in inside.items())
    whole = {name.decode(): count for (name, _), count in inside.items()}
    assert len(plain) + sum(inside.values()) == len(seen)
    for what, *operands in acknowledged:
        match what:
            case "plain":
                assert plain.issuperset(operands)
            case "committed":
                name, messages = operands
                assert whole[name] == messages
            case "aborted":
                assert operands[0] not in whole
