"""Who has no role for a topic learns nothing about it: neither its name, nor its writers, nor that an id is there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.access.conftest import Guarded
from tests.access.test_owners import transport
from tests.access.test_roles import BILLS, ORDERS
from txn_source import TxnLogError
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.client.metadata_tables import metadata_table
from txn_source.metadata.protocol import convert
from txn_source.metadata.service.requirements import REQUIREMENTS, Of
from txn_source.metadata.stub.grpc_transport import GrpcTransport
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId

ROLES = {role: ["bank/public/orders"] for role in ("produce", "consume", "admin")}
NAMED = [
    (call, need)
    for call, rule in REQUIREMENTS.items()
    for need in rule.needs
    if need.of in (Of.PARTITION, Of.COPY, Of.SUBSCRIPTION, Of.PRODUCER, Of.TRANSACTION)
]
"""Each field of each call that has an id."""


class Hidden:
    """Ids of a topic for which bob has no role; ``txn`` wrote to one of his topics, too."""

    def __init__(self, guarded: Guarded) -> None:
        self.root = guarded.connect("root", produce=["*"], consume=["*"], admin=["*"])
        with self.root.begin_transaction() as both:
            for topic, name in ((ORDERS, "teller"), (BILLS, "secret-writer")):
                self.root.create_subscription(topic, f"of-{name}")
                with self.root.producer(topic, name=name) as producer:
                    producer.send(b"a", txn=both)
        self.both = both.id
        self.root.roll_ledger(BILLS)
        of_root = transport(guarded, "root", produce=["*"], consume=["*"], admin=["*"])
        [view] = self.root.metadata.get_view([TopicName.parse(BILLS)]).topics
        partition = view.partitions[0].partition_id
        [offloadable] = of_root.call("ListOffloadable", pb.ListOffloadableRequest(topic=BILLS)).ledgers
        uri = f"tiered/bank/public/bills/0/ledger-{offloadable.ledger_id}-{'a' * 12}.parquet"
        begin = pb.BeginOffloadRequest(request_id="o", partition_id=partition, ledger_id=offloadable.ledger_id, uri=uri)
        opened = of_root.call("OpenProducer", pb.OpenProducerRequest(request_id="p", topic=BILLS))
        [listed] = of_root.call("ListSubscriptions", pb.ListSubscriptionsRequest(topic=BILLS)).subscriptions
        alone = self.root.begin_transaction()
        with self.root.producer(BILLS, name="secret-writer") as producer:
            producer.send(b"b", txn=alone)
        self.ids: dict[Of, Any] = {
            Of.PARTITION: partition,
            Of.COPY: of_root.call("BeginOffload", begin).copy_id,
            Of.SUBSCRIPTION: listed.subscription_id,
            Of.PRODUCER: opened.producer_id,
            Of.TRANSACTION: convert.txn_to_wire(alone.id),
        }


def put(message: Any, path: Sequence[str], value: Any) -> None:
    """Set a field of a request, by the parts of its path."""
    name, *rest = path
    field = message.DESCRIPTOR.fields_by_name[name]
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        getattr(message, name)[value] = 1 << 32
    elif kind is None:
        getattr(message, name).append(value) if field.is_repeated else setattr(message, name, value)
    else:
        inner = getattr(message, name)
        inner = inner.add() if field.is_repeated else inner
        inner.SetInParent()
        put(inner, rest, value) if rest else inner.CopyFrom(value)


def outcome(caller: GrpcTransport, call: str, request: Any) -> str:
    """Make a call; return its answer, or its error, as text."""
    try:
        answer = caller.converse(call, iter([request])) if call == "Consume" else caller.call(call, request)
        return str(list(answer) if call == "Consume" else answer)
    except TxnLogError as error:
        return f"{error.code} {error}"


def test_an_id_that_one_may_not_know_is_answered_as_one_that_is_not_there(guarded: Guarded) -> None:
    """Name each kind of id in each field that takes it, as somebody without a role for its topic."""
    hidden = Hidden(guarded)
    bob = transport(guarded, "bob", **ROLES)
    for call, need in NAMED:
        told = []
        for id_ in (hidden.ids[need.of], pb.TxnId(least_sig_bits=99_999) if need.of is Of.TRANSACTION else 99_999):
            request = getattr(pb, f"{call}Request")()
            if need.when == "forced":
                request.forced = True
            put(request, need.field.split("."), id_)
            if need.field.startswith("topics."):
                request.topics[0].name = ORDERS
            shown = str(convert.txn_from_wire(id_)) if need.of is Of.TRANSACTION else str(id_)
            told.append(re.sub(rf"(?<!\d){re.escape(shown)}(?!\d)", "#", outcome(bob, call, request)))
        assert told[0] == told[1], (call, need.field)
        assert "PERMISSION_DENIED" not in told[0], (call, need.field)
        if not REQUIREMENTS[call].quiet:
            assert "NOT_FOUND" in told[0], (call, need.field, told[0])


def test_nothing_tells_of_a_topic_without_a_role_for_it(guarded: Guarded) -> None:
    """Ask for all ids, lists and tables with roles for other topics: no answer has the name of the topic or of its
    producer, though a transaction wrote to both topics."""
    hidden = Hidden(guarded)
    bob = transport(guarded, "bob", **ROLES)
    told = []
    for call, need in NAMED:
        for key in range(1, 8):
            request = getattr(pb, f"{call}Request")()
            put(request, need.field.split("."), pb.TxnId(least_sig_bits=key) if need.of is Of.TRANSACTION else key)
            told.append(outcome(bob, call, request))
    wire = convert.txn_to_wire(hidden.both)
    for call, request in (
        ("GetTransaction", pb.GetTransactionRequest(id=wire)),
        ("EndTransaction", pb.EndTransactionRequest(id=wire)),
        ("EndTransaction", pb.EndTransactionRequest(id=wire, forced=True)),
        ("ListTransactions", pb.ListTransactionsRequest()),
        ("ListDoomedFiles", pb.ListDoomedFilesRequest()),
        ("GetLog", pb.GetLogRequest()),
    ):
        told.append(outcome(bob, call, request))
    stub = guarded.connect("bob", **ROLES).metadata
    tables = ("partitions", "ledgers", "subscriptions", "transactions")
    told += [str(metadata_table(stub, table, None).to_pylist()) for table in tables]
    assert "bank/public/orders" in " ".join(told)
    for secret in ("bills", "secret-writer"):
        assert not [text for text in told if secret in text]
    assert set(hidden.root.transaction(hidden.both).producers) == {"teller", "secret-writer"}


@pytest.mark.parametrize("owned", [True, False])
def test_transaction_of_one_s_own_is_known(owned: bool, guarded: Guarded) -> None:
    """Ask for a transaction that wrote nothing yet, as who began it and as somebody else."""
    alice = guarded.connect("alice", produce=["bank/*"])
    txn: TxnId = alice.begin_transaction().id
    who = transport(guarded, "alice" if owned else "bob", **ROLES)
    told = outcome(who, "GetTransaction", pb.GetTransactionRequest(id=convert.txn_to_wire(txn)))
    assert ("TXN_NOT_FOUND" in told) != owned
