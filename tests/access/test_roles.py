"""Each role against each call of the service."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from tests.access.authority import Signer
from tests.access.conftest import Guarded
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.service.requirements import REQUIREMENTS, Need, Of
from txn_source.metadata.service.visible import Sight
from txn_source.metadata.stub.credentials import Credentials
from txn_source.metadata.stub.grpc_transport import GrpcTransport
from txn_source.model.errors import TxnLogError
from txn_source.model.roles import Pattern, Role, Roles
from txn_source.model.topic_name import TopicName

ORDERS, BILLS, ELSEWHERE = (f"persistent://{name}" for name in Guarded.TOPICS)
NOBODY: frozenset[str] = frozenset()
PRODUCE, ADMIN = frozenset({"produce"}), frozenset({"admin"})
CONSUME = frozenset({"consume", "admin"})
ANYBODY = frozenset({"produce", "consume", "admin"})
EVERYBODY = ANYBODY | {"none"}
RPCS = pb.DESCRIPTOR.services_by_name["MetadataService"].methods_by_name


class Places:
    """Ids in the log: a partition of ORDERS and a subscription of it, a producer and a transaction of ``alice``."""

    def __init__(self, guarded: Guarded) -> None:
        self.guarded = guarded
        log = guarded.connect("alice", produce=["bank/*"], consume=["bank/*"], admin=["bank/*"])
        views = log.metadata.get_view([TopicName.parse(name) for name in (ORDERS, BILLS)]).topics
        self.partition, self.other_partition = (view.partitions[0].partition_id for view in views)
        self.topic_id = views[0].topic.topic_id
        log.create_subscription(ORDERS, "billing")
        self.numbers = iter(range(1, 100_000))
        self.alice = self.transport("alice", produce=["bank/*"], consume=["bank/*"], admin=["bank/*"])
        listed = self.alice.call("ListSubscriptions", pb.ListSubscriptionsRequest(topic=ORDERS))
        self.subscription = listed.subscriptions[0].subscription_id
        opened = self.alice.call("OpenProducer", pb.OpenProducerRequest(request_id=self.id(), topic=ORDERS))
        self.producer = opened.producer_id
        bob = self.transport("bob", produce=["bank/*"])
        opened = bob.call("OpenProducer", pb.OpenProducerRequest(request_id=self.id(), topic=ORDERS))
        self.producer_of_bob = opened.producer_id
        self.txn = self.begin()

    def id(self) -> str:
        return f"request-{next(self.numbers)}"

    def begin(self) -> pb.TxnId:
        request = pb.BeginTransactionRequest(request_id=self.id(), timeout_ms=60_000)
        return self.alice.call("BeginTransaction", request).id  # type: ignore[no-any-return]

    def transport(self, subject: str, **roles: list[str]) -> GrpcTransport:
        token = self.guarded.signer.token(subject, **roles)
        return GrpcTransport(self.guarded.server.address, 10.0, Credentials.of(token=token))

    def entry(self, topic_id: int) -> pb.NewEntry:
        """An entry of a file that isn't there: what is allowed is refused for another reason."""
        return pb.NewEntry(partition_id=self.partition, messages=1, segment="nothing", offset=8, length=8)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    folder: Path = tmp_path_factory.mktemp("roles")
    with Guarded(folder / "log", Signer(folder)) as guarded:
        yield Places(guarded)


Make = Callable[[Places], Message]


def scoped(**scope: str) -> pb.PolicyScope:
    return pb.PolicyScope(**scope)


def acknowledged(p: Places) -> list[pb.SubscriptionAcknowledgements]:
    return [pb.SubscriptionAcknowledgements(subscription_id=p.subscription, consumer_id=1)]


CASES: list[tuple[str, frozenset[str], Make]] = [
    ("GetLog", EVERYBODY, lambda p: pb.GetLogRequest()),
    ("CreateTopic", ADMIN, lambda p: pb.CreateTopicRequest(request_id=p.id(), name=ORDERS, partitions=1)),
    ("UpdateTopic", ADMIN, lambda p: pb.UpdateTopicRequest(request_id=p.id(), name=ORDERS, partitions=1)),
    ("ListTopics", EVERYBODY, lambda p: pb.ListTopicsRequest()),
    ("DeleteTopic", ADMIN, lambda p: pb.DeleteTopicRequest(request_id="", name=ORDERS)),
    ("RollLedger", ADMIN, lambda p: pb.RollLedgerRequest(request_id=p.id(), name=ORDERS)),
    ("OpenProducer", PRODUCE, lambda p: pb.OpenProducerRequest(request_id=p.id(), topic=ORDERS)),
    ("CommitBatch", PRODUCE, lambda p: pb.CommitBatchRequest(
        request_id=p.id(), producer_name="p", topics=[pb.CommitBatchRequest.Topic(name=ORDERS, topic_id=p.topic_id)])),
    ("ImportBatch", PRODUCE, lambda p: pb.ImportBatchRequest(
        request_id=p.id(), topics=[pb.ImportBatchRequest.Topic(
            name=ORDERS, topic_id=p.topic_id, producer_id=p.producer_of_bob)])),
    ("GetImport", PRODUCE, lambda p: pb.GetImportRequest(topic=ORDERS)),
    ("BeginTransaction", frozenset({"produce", "consume"}),
     lambda p: pb.BeginTransactionRequest(request_id=p.id(), timeout_ms=1000)),
    ("GetView", ANYBODY, lambda p: pb.GetViewRequest(topics=[ORDERS])),
    ("FindCut", CONSUME, lambda p: pb.FindCutRequest(bounds={p.partition: 1 << 32})),
    ("FindCut", CONSUME, lambda p: pb.FindCutRequest(bounds={p.partition: 9 << 32}, starts={p.partition: 1 << 32})),
    ("FindPosition", CONSUME, lambda p: pb.FindPositionRequest(partition_ids=[p.partition])),
    ("ListLedgers", CONSUME, lambda p: pb.ListLedgersRequest(partition_id=p.partition, end=1 << 40)),
    ("ListLedgersOfRanges", CONSUME, lambda p: pb.ListLedgersOfRangesRequest(
        ranges=[pb.PartitionRange(partition_id=p.partition, end=1 << 40)])),
    ("SplitRange", CONSUME, lambda p: pb.SplitRangeRequest(partition_id=p.partition, end=1 << 40)),
    ("CountRange", CONSUME, lambda p: pb.CountRangeRequest(partition_id=p.partition, isolation_level=1)),
    ("ReadTable", ANYBODY, lambda p: pb.ReadTableRequest(table="ledgers", topic=ORDERS)),
    ("ReadTable", EVERYBODY, lambda p: pb.ReadTableRequest(table="ledgers")),
    ("ListEntries", CONSUME, lambda p: pb.ListEntriesRequest(partition_id=p.partition, end=1 << 40)),
    ("ListDecisions", CONSUME, lambda p: pb.ListDecisionsRequest(partition_id=p.partition, end=1 << 40)),
    ("ListSegments", NOBODY, lambda p: pb.ListSegmentsRequest()),
    ("CondemnSegments", NOBODY, lambda p: pb.CondemnSegmentsRequest()),
    ("JudgeFiles", NOBODY, lambda p: pb.JudgeFilesRequest()),
    ("AddRoot", NOBODY, lambda p: pb.AddRootRequest(request_id=p.id(), name="b", uri=f"{p.guarded.root}/b")),
    ("RemoveRoot", NOBODY, lambda p: pb.RemoveRootRequest(request_id=p.id(), name="no-such")),
    ("ListHotSegments", PRODUCE | ADMIN, lambda p: pb.ListHotSegmentsRequest(topic=ORDERS)),
    ("ListSegmentEntries", PRODUCE | ADMIN, lambda p: pb.ListSegmentEntriesRequest(topic=ORDERS, path="x")),
    ("ChangeSegmentRoots", PRODUCE | ADMIN, lambda p: pb.ChangeSegmentRootsRequest(topic=ORDERS)),
    ("ListCopies", CONSUME, lambda p: pb.ListCopiesRequest(partition_id=p.partition, end=1 << 40)),
    ("ListOffloadable", ADMIN, lambda p: pb.ListOffloadableRequest(topic=ORDERS)),
    ("BeginOffload", ADMIN, lambda p: pb.BeginOffloadRequest(
        request_id=p.id(), partition_id=p.partition, ledger_id=999, uri="x")),
    ("DeleteCopies", ADMIN, lambda p: pb.DeleteCopiesRequest(request_id=p.id(), topic=ORDERS, tier=1)),
    ("TrimTopic", ADMIN, lambda p: pb.TrimTopicRequest(request_id=p.id(), topic=ORDERS)),
    ("ListDoomedFiles", EVERYBODY, lambda p: pb.ListDoomedFilesRequest()),
    ("ForgetDoomedFiles", EVERYBODY, lambda p: pb.ForgetDoomedFilesRequest()),
    ("ForgetDoomedFiles", NOBODY, lambda p: pb.ForgetDoomedFilesRequest(doomed_ids=[1])),
    ("ChangePolicies", ADMIN, lambda p: pb.ChangePoliciesRequest(request_id=p.id(), scope=scoped(topic=ORDERS))),
    ("ChangePolicies", NOBODY, lambda p: pb.ChangePoliciesRequest(
        request_id=p.id(), scope=scoped(namespace="bank/public"))),
    ("ChangePolicies", NOBODY, lambda p: pb.ChangePoliciesRequest(request_id=p.id())),
    ("GetPolicies", ANYBODY, lambda p: pb.GetPoliciesRequest(scope=scoped(topic=ORDERS))),
    ("GetPolicies", ANYBODY, lambda p: pb.GetPoliciesRequest(scope=scoped(namespace="bank/public"))),
    ("GetPolicies", EVERYBODY, lambda p: pb.GetPoliciesRequest()),
    ("CreateSubscription", CONSUME, lambda p: pb.CreateSubscriptionRequest(
        request_id=p.id(), topic=ORDERS, name="billing", type=1, isolation_level=1)),
    ("ListSubscriptions", CONSUME, lambda p: pb.ListSubscriptionsRequest(topic=ORDERS)),
    ("DeleteSubscription", CONSUME, lambda p: pb.DeleteSubscriptionRequest(
        request_id=p.id(), topic=ORDERS, name="nothing")),
    ("SeekSubscription", CONSUME, lambda p: pb.SeekSubscriptionRequest(
        request_id=p.id(), topic=ORDERS, name="nothing")),
    ("SetSubscriptionIsolationLevel", CONSUME, lambda p: pb.SetSubscriptionIsolationLevelRequest(
        request_id=p.id(), topic=ORDERS, name="nothing", isolation_level=1)),
    ("CountMessages", CONSUME, lambda p: pb.CountMessagesRequest(
        isolation_level=1, points=[pb.MessagePoint(partition_id=p.partition)])),
    ("ListTransactions", ANYBODY, lambda p: pb.ListTransactionsRequest(topic=ORDERS)),
    ("ListTransactions", EVERYBODY, lambda p: pb.ListTransactionsRequest()),
    # What is alice's: of others only an administrator of all it touched, here of the whole log, may abort it.
    ("CloseProducer", NOBODY, lambda p: pb.CloseProducerRequest(producer_id=p.producer)),
    ("Append", NOBODY, lambda p: pb.AppendRequest(producer_id=p.producer, entries=[p.entry(p.topic_id)])),
    ("WriteTransaction", NOBODY, lambda p: pb.WriteTransactionRequest(
        timeout_ms=1000, appends=[pb.WriteTransactionRequest.Append(
            producer_id=p.producer, entries=[p.entry(p.topic_id)])])),
    ("WriteTransaction", CONSUME, lambda p: pb.WriteTransactionRequest(
        timeout_ms=1000, acknowledgements=acknowledged(p))),
    ("CommitBatch", NOBODY, lambda p: pb.CommitBatchRequest(
        request_id=p.id(), producer_name="p", topics=[pb.CommitBatchRequest.Topic(
            name=ORDERS, topic_id=p.topic_id, producer_id=p.producer)])),
    ("ImportBatch", NOBODY, lambda p: pb.ImportBatchRequest(
        request_id=p.id(), topics=[pb.ImportBatchRequest.Topic(
            name=ORDERS, topic_id=p.topic_id, producer_id=p.producer)])),
    ("ImportBatch", NOBODY, lambda p: pb.ImportBatchRequest(request_id=p.id(), kept=[p.txn])),
    ("ImportBatch", NOBODY, lambda p: pb.ImportBatchRequest(
        request_id=p.id(), ends=[pb.ImportBatchRequest.End(txn=pb.ImportBatchRequest.Transaction(id=p.txn))])),
    ("ImportBatch", NOBODY, lambda p: pb.ImportBatchRequest(
        request_id=p.id(), writes=[pb.ImportBatchRequest.Write(txn=pb.ImportBatchRequest.Transaction(id=p.txn))])),
    ("EndTransaction", NOBODY, lambda p: pb.EndTransactionRequest(id=p.txn, commit=True)),
    ("EndTransaction", NOBODY, lambda p: pb.EndTransactionRequest(id=p.txn)),
    ("EndTransaction", NOBODY, lambda p: pb.EndTransactionRequest(id=p.txn, forced=True)),
    ("GetTransaction", NOBODY, lambda p: pb.GetTransactionRequest(id=p.txn)),
]  # fmt: skip
"""Calls about ORDERS, and which roles for it let others than alice make them."""


def is_denied(transport: GrpcTransport, name: str, request: Message) -> bool:
    """Make a call; return whether it was denied. What the service itself says to it doesn't matter here."""
    try:
        answer = transport.call(name, request)
    except TxnLogError as error:
        if error.code in {"UNAUTHENTICATED", "INTERNAL", "UNAVAILABLE"}:
            raise
        return error.code == "PERMISSION_DENIED" or "that this token has a role for" in error.fact
    return REQUIREMENTS[name].quiet and answer == type(answer)()


@pytest.mark.parametrize(("name", "allowed", "make"), CASES, ids=[name for name, *_ in CASES])
def test_each_role_against_each_call(name: str, allowed: frozenset[str], make: Make, places: Places) -> None:
    """Make the call as bob with one role, and with that role for other topics alone."""
    near = ["bank/public/bills", "bank/public/order", "bank/public/orders2", "bank/publi/*", "shop/*"]
    for role in ("produce", "consume", "admin", "none"):
        for patterns in (["bank/public/orders"], ["bank/public/ord*"]):
            transport = places.transport("bob", **({} if role == "none" else {role: patterns}))
            assert is_denied(transport, name, make(places)) == (role not in allowed), (role, patterns)
        if role != "none" and name not in ("BeginTransaction",):
            transport = places.transport("bob", **{role: near})
            expected = "none" not in allowed
            if name == "GetPolicies" and make(places).scope.HasField("namespace"):  # type: ignore[attr-defined]
                expected = False  # one of the near topics lies in it
            assert is_denied(transport, name, make(places)) == expected, (role, near)


def test_each_call_has_a_case_and_a_row(places: Places) -> None:
    """Walk over the service's calls: a new one needs a row in the table, and a case here."""
    apart = {"CompleteOffload", "AbandonOffload", "WriteAll", "Consume"}  # have tests of their own
    assert {name for name, *_ in CASES} | apart == set(RPCS)
    assert set(REQUIREMENTS) == set(RPCS)
    changes = re.compile("Create|Update|Delete|Roll|Change|Set|Seek|Trim|Add|Remove|Condemn|Judge|BeginOffload")
    assert all(rule.audited is not None for name, rule in REQUIREMENTS.items() if changes.match(name))
    assert {name for name in RPCS if hasattr(Sight, name)} == {name for name, rule in REQUIREMENTS.items() if rule.cut}


HARMLESS = {
    "request_id", "producer_name", "consumer_name", "token", "run_id", "table", "state", "doom", "tier", "schema",
    "expected", "progress", "batch_id", "after_segment_id", "partition", "partitions", "before", "remove",
}  # fmt: skip
"""Fields of texts and ids that name nothing which could be somebody else's: some count, or name parts of a topic."""


def naming(described: Descriptor, path: str = "") -> Iterator[str]:
    """Yield the fields of a message that may name something: texts, and numbers that are called ids."""
    for field in described.fields:
        here = f"{path}{field.name}"
        if field.message_type is not None and field.message_type.name == "TxnId":
            yield here
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from naming(field.message_type, f"{here}.")
        elif field.message_type is not None or field.type == field.TYPE_STRING or re.search("_ids?$", field.name):
            yield here


def test_each_field_that_names_something_is_judged() -> None:
    """Walk over the fields of all requests: one that names something has a need, or the service checks it itself."""
    for name, method in RPCS.items():
        rule = REQUIREMENTS[name]
        if rule.cut or Need(Of.LOG, roles=(Role.ADMIN,)) in rule.needs:
            continue
        judged = {need.field for need in rule.needs} | set(rule.within)
        for field in naming(method.input_type):
            known = field in judged or any(each.startswith(f"{field}.") for each in judged)
            assert known or field.rpartition(".")[2] in HARMLESS, f"{name}.{field}"


def test_call_without_a_row_is_refused(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a row away: not even who may do everything gets through."""
    rows = {name: rule for name, rule in REQUIREMENTS.items() if name != "ListTopics"}
    monkeypatch.setattr("txn_source.metadata.service.guard.REQUIREMENTS", rows)
    root = places.transport("root", **{role.value: ["*"] for role in Role})
    assert is_denied(root, "ListTopics", pb.ListTopicsRequest())


def test_whole_log_is_for_administrators_of_all(places: Places) -> None:
    """Make the calls about the whole log with ``*`` of each role, and with all tenants one by one."""
    calls = [(name, make) for name, allowed, make in CASES if allowed == NOBODY and name in (
        "ListSegments", "CondemnSegments", "JudgeFiles", "ForgetDoomedFiles", "ChangePolicies", "AddRoot",
        "RemoveRoot")]  # fmt: skip
    assert len(calls) == 8
    for name, make in calls:
        assert not is_denied(places.transport("root", admin=["*"]), name, make(places))
        for roles in ({"consume": ["*"], "produce": ["*"]}, {"admin": ["bank/public/orders", "shop/*", "public/*"]}):
            assert is_denied(places.transport("bob", **roles), name, make(places))
    of_namespace = pb.ChangePoliciesRequest(request_id=places.id(), scope=scoped(namespace="bank/public"))
    for pattern, denied in (
        ("bank/public/*", False),
        ("bank/*", False),
        ("bank/public/o*", True),
        ("bank/publi/*", True),
    ):
        assert is_denied(places.transport("bob", admin=[pattern]), "ChangePolicies", of_namespace) == denied


def test_each_topic_of_a_call_needs_its_role(places: Places) -> None:
    """Name two topics or partitions in one call, of which one isn't allowed."""
    bob = places.transport("bob", consume=["bank/public/orders"], produce=["bank/public/orders"])
    both = [places.partition, places.other_partition]
    bounds = dict.fromkeys(both, 1 << 32)
    points = [pb.MessagePoint(partition_id=each) for each in both]
    topic = pb.CommitBatchRequest.Topic
    for name, request in {
        "GetView": pb.GetViewRequest(topics=[ORDERS, BILLS]),
        "FindCut": pb.FindCutRequest(bounds=bounds),
        "FindPosition": pb.FindPositionRequest(partition_ids=both),
        "ListLedgersOfRanges": pb.ListLedgersOfRangesRequest(
            ranges=[pb.PartitionRange(partition_id=each, end=1 << 40) for each in both]
        ),
        "CountMessages": pb.CountMessagesRequest(isolation_level=1, points=points),
        "CommitBatch": pb.CommitBatchRequest(
            request_id=places.id(), producer_name="p", topics=[topic(name=ORDERS, topic_id=1), topic(name=BILLS)]
        ),
    }.items():
        assert is_denied(bob, name, request), name
    assert not is_denied(bob, "GetView", pb.GetViewRequest(topics=[ORDERS]))


def test_names_in_other_spellings_are_the_same_topic(places: Places) -> None:
    """Spell a topic in the ways that the service takes: the role is asked for the topic that it means."""
    bob = places.transport("bob", consume=["bank/public/orders"])
    for name in ("bank/public/orders", " persistent://bank/public/orders ", ORDERS):
        assert not is_denied(bob, "GetView", pb.GetViewRequest(topics=[name]))
    for name in ("bank/public/bills", " persistent://bank/public/bills\t", BILLS, "orders"):
        assert is_denied(bob, "GetView", pb.GetViewRequest(topics=[name])), name
    for name in ("bank/public/orders/../bills", "bank//orders", "BANK/public/orders", "bank/public/%6frders"):
        with pytest.raises(TxnLogError):
            bob.call("GetView", pb.GetViewRequest(topics=[name]))


def test_topic_that_is_made_again_is_the_same_topic(guarded: Guarded) -> None:
    """Delete a topic and make it again: roles are for names, ids of the old one are for nothing."""
    admin = guarded.connect("root", admin=["*"], produce=["*"])
    bob = guarded.connect("bob", consume=["bank/public/orders"])
    [old] = bob.metadata.get_view([TopicName.parse(ORDERS)]).topics
    admin.delete_topic(ORDERS)
    admin.create_topic(ORDERS)
    with admin.producer(ORDERS) as producer:
        producer.send(b"new")
    [new] = bob.metadata.get_view([TopicName.parse(ORDERS)]).topics
    assert old.topic.topic_id != new.topic.topic_id
    assert bob.scan(ORDERS).read_all().num_rows == 1


def test_patterns_cover_what_they_say() -> None:
    """Hold patterns against names that differ in one character."""
    cases = {
        "*": (["a/b/c", "x/y/z"], []),
        "a/*": (["a/b/c", "a/x/y"], ["aa/b/c", "A/b/c", "b/a/c"]),
        "a/b/*": (["a/b/c", "a/b/d.e"], ["a/bb/c", "a/c/b"]),
        "a/b/c": (["a/b/c"], ["a/b/cc", "a/b/C", "a/b/c-partition-0"]),
        "a/b/c*": (["a/b/c", "a/b/cc", "a/b/c-partition-0"], ["a/b/d", "a/bc/c"]),
    }
    for text, (covered, others) in cases.items():
        pattern = Pattern.parse(text)
        assert [n for n in covered if not pattern.covers(TopicName.parse(n))] == []
        assert [n for n in others if pattern.covers(TopicName.parse(n))] == []
    for text, namespaces in {"*": ["a/b"], "a/*": ["a/b"], "a/b/*": ["a/b"], "a/b/c*": [], "a/bb/*": []}.items():
        assert [n for n in ("a/b",) if Pattern.parse(text).covers_namespace(n)] == namespaces
    assert str(Roles.parse(json.loads('{"admin": ["a/*"], "consume": []}'))) == "admin a/*"
