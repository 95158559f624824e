"""What a client says is checked before anything is stored: no request harms a file, a topic, or another's messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.log.reading import UNCOMMITTED, registered, send_each, values
from tests.log.sites import ManualClock, Site
from tests.metadata.test_retried_append import Writer
from tests.selection import for_each
from txn_source import InvalidArgumentError, Log
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.client.access import Access
from txn_source.client.tiering.deletion import delete_doomed_files
from txn_source.client.writing.bulk_writer import BulkWriter
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.metadata.stub.tiers import DoomedFile
from txn_source.model.spark_commit import Sink
from txn_source.model.topic_name import TopicName

_HEX = "0123456789ab"


def stored(log: Log) -> Any:
    """Return all that an append could change."""
    return [(t, log.stats(t), values(log, t, UNCOMMITTED), values(log, t)) for t in log.topics()]


@pytest.fixture
def log(embedded_site: Site) -> Log:
    """One kind is enough for most: the service checks, whichever way a request comes to it."""
    return embedded_site.connect()


@pytest.fixture
def writer(log: Log) -> Writer:
    """A producer taken apart, of a topic that has a message, beside another topic."""
    for topic in ("orders", "bills"):
        log.create_topic(topic, partitions=2)
        send_each(log.producer(topic), [b"there"], partition=0)
    return Writer(log, "orders")


# Paths


def test_only_a_producers_own_files_can_be_registered(log: Log, writer: Writer) -> None:
    """Register an entry in every file but one's own; then trim and delete, and find the victims where they were."""
    entry = writer.write(0, b"x")
    topic, producer = writer.view.topic.topic_id, writer.identity.producer_id
    victims = [log.root / "metadata.db", log.root / "txnlog.json", log.root.parent / "victim.txt"]
    victims[-1].write_text("mine")
    before = stored(log)
    for path in (
        "",
        "../victim.txt",
        "/etc/passwd",
        "metadata.db",
        "txnlog.json",
        f"{entry.segment}/../../../metadata.db",
        f"/{entry.segment}",
        f"./{entry.segment}",
        f"{entry.segment}.arrow",
        f"{entry.segment}\n",
        f"segments/{topic}/0/1-{producer}-0123456789AB.arrow",
        f"segments/{topic}/00/1-{producer}-0123456789ab.arrow",
        f"segments/{topic}/1/1-{producer}-0123456789ab.arrow",
        f"segments/{topic}/9/1-{producer}-0123456789ab.arrow",
        f"segments/{topic}/0/1-{producer}9-0123456789ab.arrow",
        f"segments/{topic}/0/1-0-0123456789ab.arrow",
        f"segments/{topic + 1}/0/1-{producer}-0123456789ab.arrow",
        f"segments/{topic}/0/1-{producer}-" + "a" * 1_000_000 + ".arrow",
    ):
        with pytest.raises(InvalidArgumentError):
            writer.append([replace(entry, segment=path)])
        assert stored(log) == before, path[:100]
    assert writer.append([entry])
    log.roll_ledger("orders")
    log.trim("orders", older_than=0)
    log.delete_topic("orders")
    assert all(victim.exists() for victim in victims)
    assert values(log, "bills") == [b"there"]


def test_another_topics_file_can_not_be_registered(log: Log, writer: Writer) -> None:
    """Register bytes of a file that is another topic's, or another partition's, and known as such."""
    [foreign] = [p for p in registered(log) if f"segments/{writer.view.topic.topic_id}/" not in p]
    one = writer.write(0, b"x")
    writer.append([one])
    for bent in (
        replace(one, base_sequence=1, segment=foreign, offset=one.offset + 1000),
        replace(one, base_sequence=1, partition_id=writer.view.partitions[1].partition_id, offset=one.offset + 1000),
    ):
        with pytest.raises(InvalidArgumentError, match="may register"):
            writer.append([bent])


@pytest.mark.parametrize(
    "uri",
    [
        "../victim.txt",
        "metadata.db",
        "/etc/passwd",
        "s3://bucket/public/default/orders/0/ledger-{ledger}-0123456789ab.parquet",
        "tiered/../public/default/orders/0/ledger-{ledger}-0123456789ab.parquet",
        "tiered/public/default/bills/0/ledger-{ledger}-0123456789ab.parquet",
        "tiered/public/default/orders/1/ledger-{ledger}-0123456789ab.parquet",
        "tiered/public/default/orders/0/ledger-9-0123456789ab.parquet",
    ],
)
def test_objects_lie_only_in_the_topics_target(site: Site, uri: str) -> None:
    """Begin and abandon an offload to a place that isn't the ledger's: it is refused, and no file goes."""
    log, transport = site.connect(), site.transport()
    log.create_topic("orders")
    send_each(log.producer("orders"), [b"x"])
    [ledger] = log.roll_ledger("orders")
    [partition] = log.metadata.get_view([TopicName.parse("orders")]).topics[0].partitions
    victim = site.root.parent / "victim.txt"
    victim.write_text("mine")
    request = pb.BeginOffloadRequest(request_id="one", partition_id=partition.partition_id, ledger_id=ledger)
    request.uri = uri.format(ledger=ledger)
    with pytest.raises(InvalidArgumentError, match="no place for the object"):
        transport.call("BeginOffload", request)
    request.uri = f"tiered/public/default/orders/0/ledger-{ledger}-{_HEX}.parquet"
    copy_id = transport.call("BeginOffload", request).copy_id
    other = pb.TieredCopy(uri="tiered/other", size=10, footer_bytes=5)
    with pytest.raises(InvalidArgumentError, match="begun for another object"):
        transport.call("CompleteOffload", pb.CompleteOffloadRequest(copy_id=copy_id, copy=other))
    log.maintain()
    assert victim.exists()
    assert log.offload("orders").ledger_ids == (ledger,)


def test_client_deletes_nothing_that_is_not_ours_whatever_the_service_says(tmp_path: Path) -> None:
    """Let a service doom files of others: they stay, and the service isn't told that they went."""
    names = ("victim.txt", "metadata.db", f"segments/1/0/1-1-{_HEX}.arrow", "segments/1/0/x.arrow")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")

    class Lying(MetadataStub):
        forgotten: tuple[int, ...] = ()
        log_id = "a log"

        def list_doomed_files(self) -> list[DoomedFile]:
            uris = [*names, str(tmp_path / "victim.txt"), "../victim.txt", f"../a/b/c/0/ledger-1-{_HEX}.parquet"]
            return [DoomedFile(number, uri) for number, uri in enumerate(uris)]

        def forget_doomed_files(self, doomed_ids: Any) -> None:
            self.forgotten = tuple(doomed_ids)

    lying = Lying(None)  # type: ignore[arg-type]
    assert delete_doomed_files(Access(lying, tmp_path)) == 1
    assert lying.forgotten == (2,)
    assert [name for name in names if not (tmp_path / name).exists()] == [names[2]]


# Numbers


@for_each(
    "bent",
    [
        {"messages": 0},
        {"messages": -1},
        {"messages": (1 << 31) - 1},
        {"length": 0},
        {"length": -1},
        {"length": 1 << 62},
        {"offset": -1},
        {"offset": 0},
        {"offset": (1 << 63) - 1},
        {"base_sequence": -1},
        {"base_sequence": (1 << 63) - 1},
        {"partition_id": -1},
        {"partition_id": 0},
    ],
)
def test_numbers_that_can_not_be_are_refused(log: Log, writer: Writer, bent: dict[str, int]) -> None:
    """Append an entry with one such number: nothing is stored."""
    entry = writer.write(0, b"x")
    before = stored(log)
    [(name, value)] = bent.items()
    with pytest.raises(InvalidArgumentError, match=rf"AppendRequest.entries\[0\].{name} is {value}\. Use "):
        writer.append([replace(entry, **bent)])
    assert stored(log) == before


def test_totals_stay_within_their_bounds(log: Log, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim the largest lengths until the partition has as much as it takes: the log still works."""
    monkeypatch.setattr("txn_source.metadata.store.appends.MAX_TOTAL", 3 << 36)
    claimed = replace(writer.write(0, b"x"), length=1 << 36)
    for number in range(2):
        path = claimed.segment.replace(claimed.segment[-18:], f"{number:012x}.arrow")
        writer.append([replace(claimed, base_sequence=number, segment=path)])
    with pytest.raises(InvalidArgumentError, match="more are too many"):
        writer.append([replace(claimed, base_sequence=2)])
    log.stats("orders")
    log.roll_ledger("orders")
    send_each(log.producer("orders"), [b"after"], partition=1)


@for_each("data", [b"", b"no schema", b"\xff" * 100, "truncated", "unsigned", "reserved"])
def test_schema_that_no_client_could_read_is_refused(site: Site, data: Any) -> None:
    """Create a topic with bytes that are no schema, or one that no topic can have; every topic still works."""
    schemas = {"unsigned": pa.schema([("n", pa.uint8())]), "reserved": pa.schema([("__n", pa.int8())])}
    if data == "truncated":
        data = pa.schema([("n", pa.int8())]).serialize().to_pybytes()[:40]
    elif isinstance(data, str):
        data = schemas[data].serialize().to_pybytes()
    limits = pb.TopicPolicies(ledger_max_entries=10, ledger_max_bytes=1 << 20, ledger_max_age_ms=1 << 30)
    request = pb.CreateTopicRequest(request_id="one", name="bad", partitions=1, schema=data, policies=limits)
    with pytest.raises(InvalidArgumentError):
        site.transport().call("CreateTopic", request)
    assert site.connect().topics() == []


@for_each(
    ("method", "request_", "field"),
    [
        ("EndTransaction", pb.EndTransactionRequest(commit=True), "id"),
        ("GetTransaction", pb.GetTransactionRequest(), "id"),
        ("ListTransactions", pb.ListTransactionsRequest(state=9), "state"),
        ("ListTransactions", pb.ListTransactionsRequest(limit=-1), "limit"),
        ("ListLedgers", pb.ListLedgersRequest(partition_id=1, start=2, end=1), "end"),
        ("FindCut", pb.FindCutRequest(bounds={1: 5}, upward=True), "starts"),
        ("OpenProducer", pb.OpenProducerRequest(request_id="1", topic="orders", producer_name="a\nb"), "producer_name"),
        ("BeginTransaction", pb.BeginTransactionRequest(request_id="x" * 1000, timeout_ms=1000), "request_id"),
        ("TrimTopic", pb.TrimTopicRequest(request_id="1", topic="orders", older_than_ms=-(1 << 63)), "older_than_ms"),
        ("ForgetDoomedFiles", pb.ForgetDoomedFilesRequest(doomed_ids=[0]), r"doomed_ids\[0\]"),
        ("CondemnSegments", pb.CondemnSegmentsRequest(paths=["x"] * 10_001), "paths"),
    ],
)
def test_refusal_names_field_and_bounds(site: Site, method: str, request_: Any, field: str) -> None:
    """Send one wrong field each: the error names it and what is allowed."""
    with pytest.raises(InvalidArgumentError, match=rf"{type(request_).__name__}\.{field} is .*\. Use "):
        site.transport().call(method, request_)


# Repetitions


@pytest.mark.parametrize(
    ("what", "bend"),
    [
        ("checksum", lambda e: replace(e, crc32c=e.crc32c ^ 1)),
        ("length", lambda e: replace(e, length=e.length + 8)),
        ("offset", lambda e: replace(e, offset=e.offset + 8)),
        ("messages", lambda e: replace(e, messages=2)),
        ("segment", lambda e: replace(e, segment=e.segment.replace(e.segment[-18:-6], _HEX))),
    ],
)
def test_repetition_with_other_content_is_refused(log: Log, writer: Writer, what: str, bend: Any) -> None:
    """Repeat a stored sequence with one thing changed: it isn't answered as if that were stored."""
    entry = writer.write(0, b"x")
    first = writer.append([entry])
    before = stored(log)
    with pytest.raises(InvalidArgumentError, match=rf"with other content: another {what}"):
        writer.append([bend(entry)])
    assert stored(log) == before
    assert writer.append([entry]) == first


def test_repetition_in_another_transaction_is_refused(log: Log, writer: Writer) -> None:
    """Repeat a plain message under a transaction, and the other way round."""
    txn = log.begin_transaction()
    plain, under = writer.write(0, b"plain"), writer.write(1, b"under")
    writer.append([plain])
    writer.append([under], txn.id)
    for entry, other in ((plain, txn.id), (under, None)):
        with pytest.raises(InvalidArgumentError, match="another transaction"):
            writer.append([entry], other)
    txn.commit()
    assert sorted(values(log, "orders")) == [b"plain", b"there", b"under"]


@pytest.mark.parametrize("sequence", [0, 1, 2, 3])
def test_sequences_never_overlap(log: Log, writer: Writer, sequence: int) -> None:
    """Store sequences 1 to 3 as one entry; then come with one that begins before, in, or at it."""
    entry = replace(writer.write(1, b"x"), messages=3)
    writer.append([entry])
    other = replace(writer.write(sequence, b"y"), messages=2)
    with pytest.raises(InvalidArgumentError, match=r"stored already|inside a stored entry"):
        writer.append([other])
    writer.append([replace(other, base_sequence=4)])


def test_one_append_has_each_sequence_and_byte_once(log: Log, writer: Writer) -> None:
    """Give a sequence twice, an overlapping one, and the same bytes twice, in one append and in two."""
    one, two = writer.write(0, b"x"), writer.write(1, b"y")
    before = stored(log)
    for entries in ([one, replace(two, base_sequence=0)], [replace(one, messages=2), two]):
        with pytest.raises(InvalidArgumentError, match="more than once"):
            writer.append(entries)
    with pytest.raises(InvalidArgumentError, match="are another entry already"):
        writer.append([one, replace(one, base_sequence=1)])
    assert stored(log) == before
    writer.append([two])
    for offset in (two.offset, two.offset - 8, two.offset + 8):
        with pytest.raises(InvalidArgumentError, match="are another entry already"):
            writer.append([replace(two, base_sequence=7, offset=offset)])
    writer.append([replace(one, base_sequence=8)])  # bytes before them, registered late, are nobody's yet
    assert values(log, "orders") == [b"there", b"y", b"x"]


def test_jobs_file_is_registered_once(log: Log) -> None:
    """Commit a job's files under another key, as another batch: they are no new messages."""
    log.create_topic("orders")
    bulk = BulkWriter(log.access, TopicName.parse("orders"))
    bulk.write(pa.record_batch({"value": [b"x"]}))
    batch = bulk.finish()
    log.metadata.commit_batch(Sink("query", 0, "spark", None), [batch], "one")
    for sink in (Sink("query", 1, "spark", None), Sink(None, 0, "spark", None)):
        with pytest.raises(InvalidArgumentError, match="has been registered before"):
            log.metadata.commit_batch(sink, [batch], f"two {sink.query_id}")
    assert values(log, "orders") == [b"x"]


def test_request_id_belongs_to_one_request(site: Site) -> None:
    """Use an id again for another call, and for other content: neither gets the first one's answer."""
    log, transport = site.connect(), site.transport()
    for topic in ("orders", "bills"):
        log.create_topic(topic)
    begun = pb.BeginTransactionRequest(request_id="one", timeout_ms=10_000)
    first = transport.call("BeginTransaction", begun)
    for method, request in (
        ("DeleteTopic", pb.DeleteTopicRequest(request_id="one", name="orders")),
        ("BeginTransaction", pb.BeginTransactionRequest(request_id="one", timeout_ms=9_000)),
    ):
        with pytest.raises(InvalidArgumentError, match="request id 'one' was used for another call"):
            transport.call(method, request)
    assert transport.call("BeginTransaction", begun) == first
    assert log.topics() == ["bills", "orders"]


def test_purged_sequences_can_not_be_compared_and_are_refused(clocked_site: Site, clock: ManualClock) -> None:
    """Repeat what has left the database, and a message that lay inside an entry that has: the error says so."""
    log = clocked_site.connect()
    log.create_topic("orders")
    writer = Writer(log, "orders")
    entry = replace(writer.write(0, b"x"), messages=3)
    writer.append([entry])
    log.roll_ledger("orders")
    log.trim("orders", before=None, keep_bytes=0)
    for sequence in (0, 2):
        with pytest.raises(InvalidArgumentError, match="neither their positions nor what they were are known"):
            writer.append([replace(entry, base_sequence=sequence)])


def test_epoch_is_the_producers_own(log: Log, writer: Writer) -> None:
    """Append with an epoch that the producer doesn't have: nobody gets past a fence by counting up."""
    entry = writer.write(0, b"x")
    writer.identity = replace(writer.identity, epoch=7)
    with pytest.raises(InvalidArgumentError, match="has epoch 0, not 7"):
        writer.append([entry])


# Subscriptions


def test_no_epoch_uses_up_all_others(site: Site) -> None:
    """Seek with the largest epoch: refused, and the subscription can still be moved."""
    log, transport = site.connect(), site.transport()
    log.create_topic("orders")
    log.create_subscription("orders", "booking", "exclusive", "read_committed", "earliest")
    request = pb.SeekSubscriptionRequest(request_id="one", topic="orders", name="booking", epoch=1 << 62)
    request.place.where = pb.TOPIC_END_LATEST
    with pytest.raises(InvalidArgumentError, match="later seeks need the rest"):
        transport.call("SeekSubscription", request)
    log.seek("orders", "booking", "latest")


def test_acknowledgement_beyond_the_end_is_refused(log: Log) -> None:
    """Acknowledge up to the largest place, as a broken consumer might: what comes later is still delivered."""
    log.create_topic("orders")
    producer = log.producer("orders")
    send_each(producer, [b"one"])
    [partition] = log.metadata.get_view([TopicName.parse("orders")]).topics[0].partitions
    with log.subscribe("orders", "booking", "exclusive", "read_committed", "earliest") as consumer:
        message = consumer.receive(timeout=30)
        assert message is not None
        [subscription] = log.metadata.list_subscriptions(TopicName.parse("orders"))
        ack = pb.SubscriptionAcknowledgements(subscription_id=subscription.subscription_id, epoch=subscription.epoch)
        ack.consumer_id = subscription.consumers[0].consumer_id
        ack.partitions.add(partition_id=partition.partition_id).up_to.CopyFrom(
            pb.MessagePoint(partition_id=partition.partition_id, position=(1 << 63) - 1)
        )
        txn = log.begin_transaction()
        end = pb.EndTransactionRequest(commit=True, acknowledgements=[ack])
        end.id.CopyFrom(pb.TxnId(least_sig_bits=txn.id.least_sig_bits))
        with pytest.raises(InvalidArgumentError, match="which ends at"):
            log.metadata.transport.call("EndTransaction", end)
        txn.abort()
        send_each(producer, [b"two"])
        later = consumer.receive(timeout=30)
        assert later is not None
        assert later.value == b"two"
