"""Which rows a batch query gives: at both levels, over many shapes of topics, and the same as ``scan`` gives."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import txn_source
from txn_source.model.position import Position
from txn_source.model.transaction import TxnId

LEVELS = ("read_committed", "read_uncommitted")
MANUAL = txn_source.Batching(linger_s=3600, max_messages=10**9, max_bytes=10**12)
"""Nothing is written before the test says so."""


def test_message_of_nulls_is_a_row(log, read) -> None:
    """Read a message that has neither key nor value: a tombstone, not nothing."""
    log.create_topic("orders")
    with log.producer("orders") as producer:
        producer.send(None)
    assert [tuple(row) for row in read(topic="orders", metadataColumns="none").collect()] == [(None, None)]


def test_message_of_100_megabytes_is_read_whole(log, read) -> None:
    """Read one huge message between two small ones."""
    size = 100 << 20
    block = random.Random(1).randbytes(1 << 20)
    value = block * (size // len(block))
    log.create_topic("orders")
    with log.producer("orders") as producer:
        for message in (b"before", value, b"after"):
            producer.send(message)
    rows = [row.value for row in read(schema="value binary", topic="orders").collect()]
    assert sorted(map(len, rows)) == [len(b"after"), len(b"before"), size]
    assert value in rows


def test_entry_of_more_rows_than_a_batch_is_read_whole(log, read) -> None:
    """Send 200,000 rows in one go, and 3 more: no row is lost or twice where batches are cut."""
    log.create_topic("numbers", schema=pa.schema([("id", pa.int64())]))
    with log.producer("numbers", batching=MANUAL) as producer:
        producer.send_batch(pa.table({"id": pa.array(range(200_000))}))
        producer.flush()
        producer.send_batch(pa.table({"id": pa.array(range(200_000, 200_003))}))
    rows = read(topic="numbers").toArrow()
    assert sorted(rows["id"].to_pylist()) == list(range(200_003))
    assert (
        rows.select(["__entry_id", "__batch_index"]).group_by(["__entry_id", "__batch_index"]).aggregate([]).num_rows
        == 200_003
    )


def test_many_small_entries_are_joined_to_few_batches(log, read) -> None:
    """Write 200 entries of one message, half of them aborted: all rows are there, handed to Spark in one batch."""
    log.create_topic("orders")
    with log.producer("orders", batching=MANUAL) as producer:
        transactions = [log.begin_transaction() for _ in range(200)]
        for number, transaction in enumerate(transactions):
            producer.send(str(number), txn=transaction)
        producer.flush()
        for number, transaction in enumerate(transactions):
            (transaction.commit if number % 2 else transaction.abort)()
    assert log.stats("orders").partitions[0].log_end.entry_id == 400, "200 messages and as many markers"
    frame = read(topic="orders")
    assert sorted(int(row.value) for row in frame.collect()) == list(range(1, 200, 2))
    assert frame.toArrow()["value"].num_chunks == 1


@dataclass
class Sent:
    """A message as the test knows it."""

    partition: int
    position: Position
    value: str
    txn: TxnId | None


@dataclass
class RandomLog:
    """What was done to a topic with up to three partitions and small ledgers, at random but for the seed."""

    messages: list[Sent]
    states: dict[TxnId, str]

    @classmethod
    def fill(cls, log: txn_source.Log, topic: str, seed: int) -> RandomLog:
        """Do 60 random things to a new topic; some transactions stay open."""
        dice = random.Random(seed)
        partitions = dice.randint(1, 3)
        log.create_topic(topic, partitions=partitions, ledger_max_entries=dice.randint(3, 12))
        done = cls([], {})
        going: list[Any] = []
        with log.producer(topic, batching=MANUAL) as producer:
            for _ in range(60):
                match dice.choice(["send", "send", "send", "begin", "end", "roll"]):
                    case "send":
                        transaction = dice.choice([None, *going])
                        partition = dice.randrange(partitions)
                        sent = [f"{len(done.messages) + i:03}" for i in range(dice.randint(1, 3))]
                        for value in sent:
                            producer.send(value, partition=partition, txn=transaction)
                        txn = None if transaction is None else transaction.id
                        done.messages += [
                            Sent(partition, id.position, value, txn)
                            for id, value in zip(producer.flush(), sent, strict=True)
                        ]
                    case "begin" if len(going) < 4:
                        going.append(log.begin_transaction(timeout=600))
                        done.states[going[-1].id] = "open"
                    case "end" if going:
                        transaction = going.pop(dice.randrange(len(going)))
                        how = dice.choice(["committed", "aborted"])
                        (transaction.commit if how == "committed" else transaction.abort)()
                        done.states[transaction.id] = how
                    case "roll":
                        log.roll_ledger(topic, dice.randrange(partitions))
        return done

    def visible(self, level: str) -> list[str]:
        """Return the messages that a reader of the level must see: the rule of the levels, word by word."""
        if level == "read_uncommitted":
            return sorted(message.value for message in self.messages)
        seen = []
        for message in self.messages:
            held_back = any(
                other.partition == message.partition
                and other.txn is not None
                and self.states[other.txn] == "open"
                and other.position <= message.position
                for other in self.messages
            )
            if not held_back and (message.txn is None or self.states[message.txn] == "committed"):
                seen.append(message.value)
        return sorted(seen)


COLUMNS = ["value", "key", "__topic", "__partition", "__ledger_id", "__entry_id", "__batch_index", "__publish_time"]
COLUMNS += ["__event_time", "__producer_name", "__sequence_id", "__txn_id", "__txn_status", "__properties"]


def test_random_log_reads_as_the_rules_say_and_as_scan_does(log, spark_read, ordered) -> None:
    """Read a random topic in Spark at both levels, in several tasks; compare with the rules, and with scan."""
    done = RandomLog.fill(log, "orders", 1)
    for level in LEVELS:
        options = {"isolationLevel": level, "metadataColumns": "all", "consistentCut": "false", "minPartitions": "3"}
        rows = ordered(spark_read(topic="orders", **options))
        assert sorted(row["value"].decode() for row in rows) == done.visible(level)
        assert rows == ordered(log.scan("orders", level, COLUMNS, consistent_cut=False))


@pytest.mark.parametrize("seed", range(100, 105))
def test_tasks_of_any_size_read_what_scan_reads(log, read, ordered, seed) -> None:
    """Cut a random topic into a task for each entry, and read them without Spark, in any order, as its tasks do."""
    done = RandomLog.fill(log, "orders", seed)
    for level in LEVELS:
        options = {"topic": "orders", "isolationLevel": level, "maxPartitionBytes": "1"}
        frame = read(**options, metadataColumns="all", consistentCut="false")
        random.Random(seed).shuffle(frame.tasks())
        rows = ordered(frame)
        assert sorted(row["value"].decode() for row in rows) == done.visible(level)
        assert rows == ordered(log.scan("orders", level, COLUMNS, consistent_cut=False))
        assert level == "read_committed" or len(frame.tasks()) >= len({message.position for message in done.messages})
