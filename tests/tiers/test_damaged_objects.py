"""Objects that somebody damaged or replaced, in every kind of store: never read, and named in an error."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.reading import UNCOMMITTED
from tests.log.tiers import everything, write_ledgers
from tests.tiers.stores import Store
from txn_source import Log, SegmentUnreadableError
from txn_source.model.copies import Tier
from txn_source.storage import tiered


def foreign_parquet(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"key": [b"k"], "value": [b"v"]}), sink)
    return sink.getvalue().to_pybytes()


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def flip_value(data: bytes) -> bytes:
    """Damage the last values of the second row group."""
    column = pq.read_metadata(pa.BufferReader(data)).row_group(1).column(1)
    return flip(data, column.data_page_offset + column.total_compressed_size - 10)


SIZE = "it has {size} bytes where [0-9]+ were written"
CHECKSUM = "its footer has checksum [0-9a-f]{8} where [0-9a-f]{8} was written"
DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "foreign file": (lambda data: b"not Parquet at all", SIZE.replace("{size}", "18")),
    "foreign file of the same size": (lambda data: b"x" * len(data), CHECKSUM),
    "foreign Parquet file": (foreign_parquet, SIZE.replace("{size}", "[0-9]+")),
    "empty file": (lambda data: b"", SIZE.replace("{size}", "0")),
    "truncated": (lambda data: data[:-1], SIZE.replace("{size}", "[0-9]+")),
    "damaged footer": (lambda data: flip(data, len(data) - 100), CHECKSUM),
    "damaged page": (flip_value, "bytes [0-9]+ to [0-9]+ have checksum"),
}


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make row groups of a few rows each, and read footers as a process that hasn't read them before."""
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 5)
    monkeypatch.setattr(tiered, "_CACHED_FOOTERS_BYTES", 0)
    monkeypatch.setattr(tiered, "_FOOTERS", tiered._FooterCache())


@pytest.fixture
def before(log_with_store: Log) -> pa.Table:
    """What three offloaded ledgers and an open one hold."""
    log_with_store.create_topic("orders")
    write_ledgers(log_with_store)
    found = everything(log_with_store, "orders", UNCOMMITTED)
    log_with_store.offload("orders")
    return found


def test_hot_copy_is_read_instead_of_a_damaged_object(log_with_store: Log, store: Store, before: pa.Table) -> None:
    """Put something else in the place of the second object: all rows are right, and the failed copy is noted."""
    name = store.names()[1]
    sound = store.read(name)
    for what, (change, why) in DAMAGE.items():
        store.write(name, change(sound))
        reader = log_with_store.scan("orders", UNCOMMITTED, before.schema.names)
        assert reader.read_all().equals(before), what
        copies = log_with_store.copies_read(reader)
        [failure] = copies.failures
        assert (failure.tier, failure.ledger_id) == (Tier.TIERED, 2)
        assert re.search(f"{name} is unreadable: {why}", failure.reason), what
        assert (copies.hot_ledgers, copies.tiered_ledgers) == (2, 3 if what == "damaged page" else 2), what


def test_damaged_only_copy_is_one_line(log_with_store: Log, store: Store, before: pa.Table) -> None:
    """Do the same, and remove it, when the hot copies are gone: one line names object, reason and remedy."""
    log_with_store.delete_hot("orders")
    name = store.names()[1]
    sound = store.read(name)
    for what, (change, why) in DAMAGE.items():
        store.write(name, change(sound))
        check_error(log_with_store, name, why)
        store.write(name, sound)
        assert everything(log_with_store, "orders", UNCOMMITTED).equals(before), what
    store.remove(name)
    check_error(log_with_store, name, "it is missing")


def check_error(log: Log, name: str, why: str) -> None:
    with pytest.raises(SegmentUnreadableError) as caught:
        everything(log, "orders", UNCOMMITTED)
    assert re.fullmatch(
        rf"\[TXNLOG_SEGMENT_UNREADABLE\] Object \S*{name} is unreadable: {why}[^\n]*\. Restore the object, [^\n]*",
        str(caught.value),
    )
