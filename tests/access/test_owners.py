"""What belongs to an identity, and what others see of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.access.authority import Signer
from tests.access.conftest import Guarded
from tests.access.test_roles import BILLS, ELSEWHERE, ORDERS
from txn_source import (
    Log,
    PermissionDeniedError,
    TopicNotFoundError,
    TransactionNotFoundError,
    TxnLogError,
    connect,
)
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.client.metadata_tables import metadata_table
from txn_source.metadata.stub.credentials import Credentials
from txn_source.metadata.stub.grpc_transport import GrpcTransport
from txn_source.storage.segment import segment_path

WRITES = {"produce": ["bank/*"], "consume": ["bank/*"]}


def transport(guarded: Guarded, subject: str, **roles: list[str]) -> GrpcTransport:
    token = guarded.signer.token(subject, **roles)
    return GrpcTransport(guarded.server.address, 10.0, Credentials.of(token=token))


def values(log: Log, topic: str) -> list[bytes]:
    return [row["value"] for row in log.scan(topic).read_all().to_pylist()]


def test_transaction_is_ended_by_its_owner(guarded: Guarded) -> None:
    """Begin as alice and write; bob, who may write there too, can't commit, abort or join it, and alice can."""
    alice, bob = (guarded.connect(name, **WRITES) for name in ("alice", "bob"))
    txn = alice.begin_transaction()
    with alice.producer(ORDERS) as producer:
        producer.send(b"hers", txn=txn)
    of_bob = transport(guarded, "bob", **WRITES)
    wire = pb.TxnId(most_sig_bits=txn.id.most_sig_bits, least_sig_bits=txn.id.least_sig_bits)
    for commit in (True, False):
        with pytest.raises(PermissionDeniedError, match=r"Transaction .* belongs to 'alice'.*of 'bob'"):
            of_bob.call("EndTransaction", pb.EndTransactionRequest(id=wire, commit=commit))
    with pytest.raises(PermissionDeniedError, match="no role admin"):
        bob.abort_transaction(txn.id)
    opened = of_bob.call("OpenProducer", pb.OpenProducerRequest(request_id="r1", topic=ORDERS))
    with pytest.raises(PermissionDeniedError, match="belongs to 'alice'"):
        of_bob.call("Append", pb.AppendRequest(producer_id=opened.producer_id, txn=wire))
    txn.commit()
    assert values(bob, ORDERS) == [b"hers"]


def test_producer_says_where_its_own_segments_lie_and_nobody_elses(guarded: Guarded) -> None:
    """Write as alice; bob, who may write there too, can't say in which roots her segments are, nor who has no producer
    at all; she can add some, and only an administrator says that a copy is gone."""
    alice = guarded.connect("alice", **WRITES)
    with alice.producer(ORDERS) as producer:
        producer.send(b"hers")
    of_alice, of_bob = (transport(guarded, name, **WRITES) for name in ("alice", "bob"))
    of_admin = transport(guarded, "carol", admin=["bank/*"])
    [segment] = of_admin.call("ListHotSegments", pb.ListHotSegmentsRequest(topic=ORDERS)).segments

    def change(path: str, added: int = 0, removed: int = 0) -> pb.ChangeSegmentRootsRequest:
        one = pb.ChangeSegmentRootsRequest.Change(path=path, added=added, removed=removed, end=1 << 40)
        return pb.ChangeSegmentRootsRequest(topic=ORDERS, changes=[one])

    refused = [(of_bob, segment.path, 0), (of_alice, segment.path, 1), (of_alice, "nonsense", 0)]
    for who, path, removed in [*refused, (of_alice, segment_path(1, 0, 1, 0), 0)]:
        with pytest.raises(PermissionDeniedError, match="no role admin"):
            who.call("ChangeSegmentRoots", change(path, added=1, removed=removed))
    of_alice.call("ChangeSegmentRoots", change(segment.path, added=1))
    of_admin.call("ChangeSegmentRoots", change(segment.path, removed=1))
    assert values(alice, ORDERS) == [b"hers"]


def test_token_of_the_same_subject_goes_on(guarded: Guarded) -> None:
    """End a transaction by another connection with a newer token of its owner."""
    first, second = (guarded.connect("alice", **WRITES) for _ in range(2))
    txn = first.begin_transaction()
    with first.producer(ORDERS) as producer:
        producer.send(b"a", txn=txn)
    second.abort_transaction(txn.id)
    with pytest.raises(TxnLogError, match="aborted"):
        txn.commit()


def test_administrator_of_all_that_it_touched_aborts(guarded: Guarded) -> None:
    """Write to two topics in a transaction: who administers one of them can't abort it, who does both can."""
    alice = guarded.connect("alice", **WRITES)
    txn = alice.begin_transaction()
    with alice.producer(ORDERS) as orders, alice.producer(BILLS) as bills:
        orders.send(b"a", txn=txn)
        bills.send(b"b", txn=txn)
    with pytest.raises(PermissionDeniedError, match="no role admin for a topic of transaction"):
        guarded.connect("clerk", admin=["bank/public/orders"]).abort_transaction(txn.id)
    guarded.connect("chief", admin=["bank/*"]).abort_transaction(txn.id)
    empty = alice.begin_transaction()
    assert empty.id is not None
    with pytest.raises(TransactionNotFoundError):
        guarded.connect("chief", admin=["bank/*"]).abort_transaction(empty.id)
    guarded.connect("root", admin=["*"]).abort_transaction(empty.id)


def test_producer_is_used_by_its_owner(guarded: Guarded) -> None:
    """Append as bob by the id of alice's producer, alone and among other writes: none is made."""
    alice, bob = (transport(guarded, name, **WRITES) for name in ("alice", "bob"))
    of_each = [
        who.call("OpenProducer", pb.OpenProducerRequest(request_id=f"r{n}", topic=ORDERS)).producer_id
        for n, who in enumerate((alice, bob))
    ]
    view = alice.call("GetView", pb.GetViewRequest(topics=[ORDERS])).topics[0]
    entry = pb.NewEntry(partition_id=view.partitions[0].partition_id, messages=1, segment="nothing", offset=8, length=8)
    writes = [pb.WriteAllRequest.Write(append=pb.AppendRequest(producer_id=n, entries=[entry])) for n in of_each]
    for some in (writes, writes[:1]):
        with pytest.raises(PermissionDeniedError, match="belongs to 'alice'"):
            bob.call("WriteAll", pb.WriteAllRequest(writes=some))
    [came] = bob.call("WriteAll", pb.WriteAllRequest(writes=writes[1:])).writes
    assert came.error.code == "INVALID_ARGUMENT"


def test_transactional_id_is_its_owners(guarded: Guarded) -> None:
    """Take over a transactional id: its owner may, an administrator may, another producer may not."""
    alice, bob = (guarded.connect(name, **WRITES) for name in ("alice", "bob"))
    first = alice.producer(ORDERS, transactional_id="teller")
    with pytest.raises(PermissionDeniedError, match="The transactional id 'teller' belongs to 'alice'"):
        bob.producer(ORDERS, transactional_id="teller")
    first.send(b"still hers")
    first.close()
    alice.producer(ORDERS, transactional_id="teller").close()
    chief = guarded.connect("chief", produce=["bank/*"], admin=["bank/*"])
    chief.producer(ORDERS, transactional_id="teller").close()
    with pytest.raises(PermissionDeniedError, match="belongs to 'chief'"):
        alice.producer(ORDERS, transactional_id="teller")


def batch(number: int, topic_id: int, **more: object) -> pb.CommitBatchRequest:
    topics = [pb.CommitBatchRequest.Topic(name=ORDERS, topic_id=topic_id)]
    return pb.CommitBatchRequest(request_id=f"b{number}", producer_name="job", topics=topics, **more)  # type: ignore[arg-type]


def test_queries_and_applications_are_their_owners(guarded: Guarded) -> None:
    """Commit batches of another identity's query or application: its next ones would be dropped as repetitions."""
    alice, bob = (transport(guarded, name, **WRITES) for name in ("alice", "bob"))
    topic_id = alice.call("GetView", pb.GetViewRequest(topics=[ORDERS])).topics[0].topic.topic_id
    alice.call("CommitBatch", batch(1, topic_id, query_id="q", batch_id=1, run_id="r"))
    alice.call("CommitBatch", batch(2, topic_id, app_id="etl", version=1))
    for number, more in enumerate([{"query_id": "q", "batch_id": 9, "run_id": "x"}, {"app_id": "etl", "version": 9}]):
        with pytest.raises(PermissionDeniedError, match="belongs to 'alice'"):
            bob.call("CommitBatch", batch(10 + number, topic_id, **more))
    mallory = transport(guarded, "mallory", produce=["shop/*"], admin=["shop/*"])
    there = mallory.call("GetView", pb.GetViewRequest(topics=[ELSEWHERE])).topics[0].topic.topic_id
    elsewhere = [pb.CommitBatchRequest.Topic(name=ELSEWHERE, topic_id=there)]
    for number, topics in enumerate(([], elsewhere)):  # where she administers, the query isn't
        stolen = pb.CommitBatchRequest(
            request_id=f"m{number}", producer_name="j", topics=topics, query_id="q", batch_id=9, run_id="x"
        )
        with pytest.raises(PermissionDeniedError, match="The query 'q' belongs to 'alice'"):
            mallory.call("CommitBatch", stolen)
        with pytest.raises(PermissionDeniedError, match="no role produce for any topic"):
            transport(guarded, "nobody", consume=["*"]).call("CommitBatch", pb.CommitBatchRequest(request_id="n"))
    assert not alice.call("CommitBatch", batch(3, topic_id, query_id="q", batch_id=2, run_id="r")).repeated_batch
    bob.call("CommitBatch", batch(20, topic_id, app_id="others", version=1))
    root = transport(guarded, "root", produce=["*"], admin=["*"])
    assert not root.call("CommitBatch", batch(30, topic_id, query_id="q", batch_id=3, run_id="r")).repeated_batch


def test_answer_of_another_identitys_request_is_not_given(guarded: Guarded) -> None:
    """Repeat alice's request as bob, by its id: it isn't answered as hers."""
    request = pb.OpenProducerRequest(request_id="same", topic=ORDERS)
    transport(guarded, "alice", **WRITES).call("OpenProducer", request)
    with pytest.raises(TxnLogError, match="was used for another call"):
        transport(guarded, "bob", **WRITES).call("OpenProducer", request)


def test_what_nobody_asked_for_belongs_to_nobody(guarded: Guarded) -> None:
    """Open a producer, and begin a transaction, in the embedded log: by their ids no token can use them."""
    with connect(guarded.root) as embedded:
        txn = embedded.begin_transaction()
        producer = embedded.producer(ORDERS, transactional_id="teller")
        producer.send(b"x", txn=txn)
        producer.flush()
        alice = guarded.connect("alice", **WRITES)
        with pytest.raises(PermissionDeniedError, match="no role admin"):
            alice.abort_transaction(txn.id)
        guarded.connect("root", admin=["*"]).abort_transaction(txn.id)
        alice.producer(ORDERS, transactional_id="teller").close()  # a name that is nobody's


def test_owners_survive_a_restart(tmp_path: Path, signer: Signer) -> None:
    """Begin a transaction, start the service anew: it is still alice's."""
    root = tmp_path / "log"
    with Guarded(root, signer) as first:
        txn_id = first.connect("alice", **WRITES).begin_transaction().id
    from txn_source.client.target import Target
    from txn_source.metadata.access.door import Door
    from txn_source.metadata.access.keys import Keys
    from txn_source.metadata.access.tokens import Verifier
    from txn_source.metadata.service.server import Server

    door = Door(Verifier(Keys([signer.public_file])))
    with Server(Target.of(root, None).service(), "127.0.0.1", 0, door=door) as server:
        wire = pb.TxnId(most_sig_bits=txn_id.most_sig_bits, least_sig_bits=txn_id.least_sig_bits)
        for subject, denied in (("bob", True), ("alice", False)):
            credentials = Credentials.of(token=signer.token(subject, **WRITES))
            call = GrpcTransport(server.address, 10.0, credentials).call
            if denied:
                with pytest.raises(TransactionNotFoundError):
                    call("EndTransaction", pb.EndTransactionRequest(id=wire, commit=True))
            else:
                call("EndTransaction", pb.EndTransactionRequest(id=wire, commit=True))


# What one sees


def test_lists_show_what_one_may_see(guarded: Guarded) -> None:
    """List topics, transactions and tables as identities with roles for one tenant, one topic, and none."""
    writer = guarded.connect("alice", produce=["*"])
    txns = [writer.begin_transaction() for _ in range(3)]
    assert len({txn.id for txn in txns}) == 3  # now they have begun, in this order
    with writer.producer(ORDERS) as orders, writer.producer(ELSEWHERE) as elsewhere:
        orders.send(b"a", txn=txns[0])
        orders.send(b"a", txn=txns[1])
        elsewhere.send(b"a", txn=txns[1])
        elsewhere.send(b"a", txn=txns[2])
    bob = guarded.connect("bob", consume=["bank/*"])
    assert bob.topics() == sorted([ORDERS, BILLS])
    seen = {info.id: {part.topic for part in info.partitions} for info in bob.transactions()}
    assert seen == {txns[0].id: {ORDERS}, txns[1].id: {ORDERS}}
    assert bob.metadata.get_transaction(txns[1].id).partitions[0].topic == ORDERS
    with pytest.raises(TransactionNotFoundError):
        bob.metadata.get_transaction(txns[2].id)
    one_page, more = bob.metadata.first_transactions(None, limit=1, oldest_first=True)
    assert [info.id for info in one_page] == [txns[0].id]
    assert more == 2
    none = guarded.connect("none")
    assert (none.topics(), none.transactions()) == ([], [])
    assert {info.id for info in writer.transactions()} == {txn.id for txn in txns}
    own = guarded.connect("alice", produce=["bank/public/nothing"])
    assert [info.partitions for info in own.transactions()] == [(), (), ()]


@pytest.mark.parametrize("table", ["partitions", "ledgers", "subscriptions", "transactions"])
def test_tables_show_what_one_may_see(table: str, guarded: Guarded) -> None:
    """Query the tables about the log as somebody with roles for one tenant."""
    root = guarded.connect("root", produce=["*"], consume=["*"], admin=["*"])
    with root.begin_transaction() as txn:
        for topic in (ORDERS, BILLS, ELSEWHERE):
            root.create_subscription(topic, "s")
            with root.producer(topic) as producer:
                producer.send(b"a", txn=txn)
    for roles, count in (({"admin": ["*"]}, 3), ({"consume": ["bank/*"]}, 2), ({"produce": ["shop/*"]}, 1), ({}, 0)):
        rows = metadata_table(guarded.connect("bob", **roles).metadata, table, None)
        hidden = table == "subscriptions" and "produce" in roles
        assert len(set(rows.column("topic").to_pylist())) == (0 if hidden else count), roles


def test_administrator_of_a_topic_looks_after_it(guarded: Guarded) -> None:
    """Roll, offload, trim and delete a topic with the role for it alone: nothing of it needs the whole log."""
    writer = guarded.connect("alice", produce=["bank/*"])
    with writer.producer(ORDERS) as producer:
        producer.send(b"a")
    admin = guarded.connect("chief", admin=["bank/public/orders"])
    admin.roll_ledger(ORDERS)
    assert len(admin.offload(ORDERS).ledger_ids) == 1
    admin.trim(ORDERS, keep_bytes=0)
    admin.delete_topic(ORDERS)
    for refused in (lambda: admin.create_topic(BILLS), lambda: admin.offload(BILLS), lambda: admin.stats(BILLS)):
        with pytest.raises(PermissionDeniedError):
            refused()


def test_offload_is_ended_by_administrators_of_its_topic(guarded: Guarded) -> None:
    """Complete and abandon an offload that is under way as somebody else's administrator."""
    writer = guarded.connect("alice", produce=["bank/*"])
    with writer.producer(ORDERS) as producer:
        producer.send(b"a")
    guarded.connect("chief", admin=["bank/*"]).roll_ledger(ORDERS)
    chief, other = (transport(guarded, "chief", admin=[each]) for each in ("bank/*", "shop/*"))
    [ledger] = chief.call("ListOffloadable", pb.ListOffloadableRequest(topic=ORDERS)).ledgers
    uri = f"tiered/bank/public/orders/0/ledger-{ledger.ledger_id}-{'a' * 12}.parquet"
    begin = pb.BeginOffloadRequest(
        request_id="o", partition_id=ledger.partition_id, ledger_id=ledger.ledger_id, uri=uri
    )
    with pytest.raises(TopicNotFoundError, match=r"no partition .* has a role for"):
        other.call("BeginOffload", begin)
    copy_id = chief.call("BeginOffload", begin).copy_id
    copy = pb.TieredCopy(uri=uri, size=100, footer_bytes=10)
    complete = pb.CompleteOffloadRequest(copy_id=copy_id, copy=copy)
    writer_only = transport(guarded, "carol", produce=["bank/*"])
    for name, request in (("CompleteOffload", complete), ("AbandonOffload", pb.AbandonOffloadRequest(copy_id=copy_id))):
        other.call(name, request)  # for whom it isn't there
        with pytest.raises(PermissionDeniedError, match="no role admin for bank/public/orders"):
            writer_only.call(name, request)
    assert chief.call("CompleteOffload", complete).accepted


def test_owner_rows_go_with_what_they_are_of(guarded: Guarded) -> None:
    """Delete a topic: its producers' owners are forgotten."""
    alice = guarded.connect("alice", **WRITES)
    alice.producer(ORDERS).close()
    from sqlalchemy import text

    from txn_source.metadata.store.opening import open_database
    from txn_source.storage.root import LogRoot

    database = open_database(LogRoot.at(guarded.root).database_url)
    count = text("SELECT count(*) FROM owners")
    with database.read() as connection:
        assert connection.execute(count).scalar_one() == 1
    guarded.connect("root", admin=["*"]).delete_topic(ORDERS)
    with database.read() as connection:
        assert connection.execute(count).scalar_one() == 0
    database.close()
