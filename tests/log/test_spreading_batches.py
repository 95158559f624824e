"""Large batches without keys: spread over the partitions, entry by entry, in an order that the ids show."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.log.reading import BY_HAND, by_id
from tests.log.sites import Site


def numbers(count: int) -> pa.Table:
    return pa.table({"n": pa.array(np.arange(count))})


@pytest.mark.long
def test_large_batch_without_keys_is_spread_over_the_partitions(embedded_site: Site) -> None:
    """Send one batch of three entries to three partitions, and a small one: ids are in the order of sending."""
    log = embedded_site.connect()
    log.create_topic("flights", partitions=3, schema=numbers(1).schema)
    with log.producer("flights", batching=BY_HAND) as producer:
        producer.send_batch(numbers(150_000))
        ids = producer.flush()
        producer.send_batch(numbers(10))
        last = producer.flush()
    stored = by_id(log, "flights", column="n")
    assert [stored[i] for i in ids] == list(range(150_000))
    assert [stored[i] for i in last] == list(range(10))
    messages = [sum(ledger.messages for ledger in p.ledgers) for p in log.stats("flights").partitions]
    assert min(messages) >= 150_000 - 2 * 65_536
    assert max(messages) <= 65_536 + 10
    assert len({i.position for i in last}) == 1


def test_large_batch_for_one_partition_stays_there(embedded_site: Site) -> None:
    """Name the partition of a batch of several entries."""
    log = embedded_site.connect()
    log.create_topic("flights", partitions=3, schema=numbers(1).schema)
    with log.producer("flights") as producer:
        producer.send_batch(numbers(140_000), partition=1)
    messages = [sum(ledger.messages for ledger in p.ledgers) for p in log.stats("flights").partitions]
    assert messages == [0, 140_000, 0]
