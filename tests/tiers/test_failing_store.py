"""A store that fails while it is used: a proxy cuts, delays and corrupts what it answers.

Objects have a row group for each few rows, each of which is one request; so answers can be spoilt in the middle of a
ledger, after entries before it were handed out.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.reading import COMMITTED, UNCOMMITTED, told_by
from tests.log.tiers import everything, tiers_of, write_ledgers
from tests.selection import mostly_long
from tests.tiers.proxy import Fault, Proxy, Request, on_byte
from tests.tiers.stores import Bucket
from txn_source import Log, Position, SegmentUnreadableError, StorageWriteError
from txn_source.client.reading import segment_entries
from txn_source.model.copies import Tier
from txn_source.storage import object_store, tiered

LEVELS = (COMMITTED, UNCOMMITTED)
FAULTS = {  # regular expressions
    "silence": "the store can't be reached: it didn't answer in time",
    "cut": "the store can't be reached: Transferred a partial file",
    "corrupt": "bytes [0-9]+ to [0-9]+ have checksum [0-9a-f]{8} where [0-9a-f]{8} was written \\(CRC-32C\\)",
}


class Spoilable:
    """A topic with three ledgers, offloaded to a bucket behind a proxy, and what was read of it before."""

    def __init__(self, log: Log, bucket: Bucket, proxy: Proxy, before: dict[str, pa.Table]) -> None:
        self.log = log
        self.bucket = bucket
        self.proxy = proxy
        self.before = before

    def row_group(self, ledger: int, number: int) -> tuple[range, Position]:
        """Return where the values of a row group lie in the object, and its first entry."""
        [name] = [name for name in self.bucket.names() if f"ledger-{ledger}-" in name]
        file = pq.ParquetFile(pa.BufferReader(self.bucket.read(name)))
        column = file.metadata.row_group(number).column(1)
        assert column.path_in_schema == "value"
        first = file.read_row_group(number, ["__entry_id"])["__entry_id"][0].as_py()
        start = column.dictionary_page_offset or column.data_page_offset
        return range(start, start + column.total_compressed_size), Position(ledger, first)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 5)
    monkeypatch.setattr(segment_entries, "_GROUP_BYTES", 1000)


@pytest.fixture
def spoilable(
    log: Log, bucket: Bucket, proxy: Proxy, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Spoilable:
    made = make_spoilable(log, bucket, proxy, max_attempts=1)
    if "silence" in request.node.name:
        opened = object_store._file_system
        monkeypatch.setattr(object_store, "_file_system", lambda *at: opened(*at[:-1], f"{at[-1]}&request_timeout=3"))
    return made


def make_spoilable(log: Log, bucket: Bucket, proxy: Proxy, max_attempts: int) -> Spoilable:
    uri = bucket.uri_at(proxy.endpoint, max_attempts=max_attempts)
    log.create_topic("orders", offload_uri=uri)
    write_ledgers(log)
    before = {level: everything(log, "orders", level) for level in LEVELS}
    log.offload("orders")
    proxy.requests.clear()
    return Spoilable(log, bucket, proxy, before)


@pytest.mark.long
@pytest.mark.parametrize("what", mostly_long(["silence", "corrupt"], "corrupt"))
def test_hot_copy_goes_on_where_the_store_fails(
    spoilable: Spoilable, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """Spoil every answer with the second row group of a ledger: the rows are right, and the failed place is noted."""
    log, names = spoilable.log, spoilable.before[UNCOMMITTED].schema.names
    data, first = spoilable.row_group(2, 1)
    spoilable.proxy.set_fault(on_byte(what, "/ledger-2-", data[-1]))
    for level in LEVELS if what != "silence" else (UNCOMMITTED,):
        caplog.clear()
        reader = log.scan("orders", level, names, read_priority="tiered-first")
        assert reader.read_all().equals(spoilable.before[level])
        copies = log.copies_read(reader)
        assert [(f.tier, f.ledger_id, f.position) for f in copies.failures] == [(Tier.TIERED, 2, first)]
        assert re.search(FAULTS[what], copies.failures[0].reason)
        # A store that didn't answer isn't waited for again in this read, as long as there is a hot copy.
        hot = {2, 4} if what == "corrupt" else {2, 3, 4}
        assert copies.ledgers == {Tier.TIERED: {1, 2, 3} - hot | {2}, Tier.BOOKKEEPER: hot}
        [warning] = told_by("client.reading", caplog)
        assert warning.startswith(
            f"topic orders, partition 0: the tiered copy of ledger 2 failed at {first}, going on with the bookkeeper"
        )
        assert re.search(rf"is unreadable: {FAULTS[what]}\.$", warning)
    assert spoilable.proxy.struck


def test_store_that_fails_has_the_only_copy(spoilable: Spoilable) -> None:
    """Do the same without hot copies: what lies before is read, then one line says why; later all is readable again."""
    log = spoilable.log
    log.delete_hot("orders")
    data, first = spoilable.row_group(2, 1)
    spoilable.proxy.set_fault(on_byte("cut", "/ledger-2-", data[-1]))
    with pytest.raises(SegmentUnreadableError) as caught:
        everything(log, "orders", UNCOMMITTED)
    assert re.fullmatch(
        r"\[TXNLOG_SEGMENT_UNREADABLE\] Object s3://[\w-]+/folder/public/default/orders/0/ledger-2-\w+\.parquet is"
        rf" unreadable: {FAULTS['cut']}\. Restore the object, or [^\n]*",
        str(caught.value),
    )
    start = spoilable.before[UNCOMMITTED]
    before = [row for row in start.to_pylist() if (row["__ledger_id"], row["__entry_id"]) < (2, first.entry_id)]
    assert everything(log, "orders", UNCOMMITTED, end=first).to_pylist() == before
    spoilable.proxy.set_fault(None)
    assert everything(log, "orders", UNCOMMITTED).equals(spoilable.before[UNCOMMITTED])


@pytest.mark.long
def test_answer_that_fails_once_is_asked_for_again(log: Log, bucket: Bucket, proxy: Proxy) -> None:
    """Spoil one answer of a store that is asked up to twice: nobody sees anything of it."""
    spoilable = make_spoilable(log, bucket, proxy, max_attempts=2)
    data, _ = spoilable.row_group(2, 2)
    spoilable.proxy.set_fault(on_byte("cut", "/ledger-2-", data[-1], times=1))
    names = spoilable.before[UNCOMMITTED].schema.names
    reader = spoilable.log.scan("orders", UNCOMMITTED, names, read_priority="tiered-first")
    assert reader.read_all().equals(spoilable.before[UNCOMMITTED])
    assert spoilable.log.copies_read(reader).failures == []
    assert spoilable.proxy.struck == 1


@pytest.mark.long
def test_only_what_is_asked_for_crosses_the_network(spoilable: Spoilable) -> None:
    """Read one column of a few entries: no other row group is asked for, and constant columns need none at all."""
    log, proxy = spoilable.log, spoilable.proxy
    log.delete_hot("orders")
    data, first = spoilable.row_group(2, 2)
    everything(log, "orders", UNCOMMITTED)  # footers are remembered from here on
    proxy.requests.clear()

    read = log.scan("orders", UNCOMMITTED, ["value"], start=first, end=first.plus(1)).read_all()
    assert read.num_rows == 1
    ranges = [request.range for request in proxy.requests if request.method == "GET"]
    assert ranges == [(data[0], data[-1])]

    proxy.requests.clear()
    assert log.scan("orders", UNCOMMITTED, ["__entry_id", "__txn_id"]).read_all().num_rows > 20
    assert [request for request in proxy.requests if request.method == "GET"] == []


# Uploads


def is_upload(request: Request) -> bool:
    return request.method == "PUT"


def is_completion(request: Request) -> bool:
    return request.method == "POST" and "uploadId=" in request.path


def is_footer(request: Request) -> bool:
    return request.method == "GET"


UPLOAD_FAULTS = {
    "completion refused": Fault("refuse", is_completion),
    "footer corrupted when it is read back": Fault("corrupt", is_footer),
}


@pytest.mark.parametrize("name", UPLOAD_FAULTS)
def test_offload_that_fails_registers_nothing(log: Log, bucket: Bucket, proxy: Proxy, name: str) -> None:
    """Spoil an upload: one line says so, nothing is registered; when the store works again, the next one cleans up."""
    log.create_topic("orders", offload_uri=bucket.uri_at(proxy.endpoint, max_attempts=1))
    write_ledgers(log, ledgers=1)
    before = everything(log, "orders", UNCOMMITTED)
    proxy.set_fault(UPLOAD_FAULTS[name])
    with pytest.raises(
        StorageWriteError, match=r"^\[TXNLOG_STORAGE_WRITE_FAILED\] s3://\S+ [^\n]*\. Nothing was regist"
    ):
        log.offload("orders")
    assert proxy.struck
    assert tiers_of(log, "orders") == [{"bookkeeper"}]
    assert everything(log, "orders", UNCOMMITTED).equals(before)

    proxy.set_fault(None)
    assert len(log.offload("orders").ledger_ids) == 1
    assert len(bucket.files()) == 2
    log.delete_hot("orders")
    assert everything(log, "orders", UNCOMMITTED).equals(before)


@pytest.mark.parametrize("fault", [Fault("lose", is_completion, times=1), Fault("refuse", is_upload, times=1)])
def test_upload_of_which_one_answer_is_lost(log: Log, bucket: Bucket, proxy: Proxy, fault: Fault) -> None:
    """Lose the answer to an upload's completion, or to a part: in the end one whole object is there and registered."""
    log.create_topic("orders", offload_uri=bucket.uri_at(proxy.endpoint, max_attempts=2))
    write_ledgers(log, ledgers=1)
    before = everything(log, "orders", UNCOMMITTED)
    proxy.set_fault(fault)
    try:
        log.offload("orders")
    except StorageWriteError:
        assert tiers_of(log, "orders") == [{"bookkeeper"}]
        log.offload("orders")
    assert proxy.struck == 1
    assert len(bucket.files()) == 2
    log.delete_hot("orders")
    assert everything(log, "orders", UNCOMMITTED).equals(before)
