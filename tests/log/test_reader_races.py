"""Seeks of readers and consumers against threads that receive meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from tests.log.consuming import WAIT_S
from tests.log.reading import BY_HAND, send_each
from tests.log.sites import Site
from tests.log.test_reconnect_races import reconnect
from txn_source import Log, Reader
from txn_source.client.consuming.epoch_changes import EpochChanges
from txn_source.metadata.stub.conversation import Conversation


def two_partitions(log: Log) -> None:
    """Make the topic with five messages on each of two partitions."""
    log.create_topic("t", partitions=2)
    producer = log.producer("t", batching=BY_HAND)
    for partition in range(2):
        send_each(producer, [b"%d-%d" % (partition, i) for i in range(5)], partition=partition)


def of_partition_1(reader: Reader) -> Iterator[bytes]:
    """Read until a message of the second partition comes, and yield it."""
    while (message := reader.read_next(WAIT_S)) is not None and message.partition != 1:
        pass
    if message is not None:
        yield message.value


@pytest.mark.parametrize("replaced", [False, True])
def test_seek_of_one_partition_repeats_nothing_of_another(site: Site, replaced: bool) -> None:
    """Let another thread read on while a reader seeks in one partition, also behind a connection that is replaced."""
    log = site.connect()
    two_partitions(log)
    reader = log.reader("t")
    consumer = reader._consumer
    found: dict[int, list[bytes]] = defaultdict(list)
    inner, begin = Conversation.seek, EpochChanges.begin
    lost: list[Conversation] = []

    def begin_epoch(of: EpochChanges, ask: Any) -> Any:
        if not replaced:
            found[1] += of_partition_1(reader)
        return begin(of, ask)

    def seek(link: Conversation, *arguments: Any) -> Any:
        sought = inner(link, *arguments)
        if replaced and not lost:
            lost.append(link)
            reconnect(consumer)
            found[1] += of_partition_1(reader)
        return sought

    with patch.object(Conversation, "seek", seek), patch.object(EpochChanges, "begin", begin_epoch):
        reader.seek({"t": {0: "earliest"}})
    assert found[1]
    for _ in range(9):
        message = reader.read_next(WAIT_S)
        assert message is not None
        found[message.partition].append(message.value)
    assert found == {p: [b"%d-%d" % (p, i) for i in range(5)] for p in range(2)}
