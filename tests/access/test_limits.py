"""How much one identity may ask for, and the audit of what it changed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.access.authority import Signer
from tests.access.conftest import Guarded
from tests.access.test_conversations import Conversation
from tests.access.test_owners import transport
from tests.access.test_roles import BILLS, ORDERS
from tests.log.reading import told_by
from tests.selection import for_each
from txn_source import LimitExceededError, PermissionDeniedError, RateLimitedError, UnauthenticatedError, connect
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.client.target import Target
from txn_source.metadata.access.addresses import place_of
from txn_source.metadata.access.counters import Refusals
from txn_source.metadata.access.door import Door
from txn_source.metadata.access.limits import Limits, Usage
from txn_source.metadata.service.server import Server
from txn_source.metadata.stub import grpc_transport

ALL: dict[str, list[str]] = {role: ["*"] for role in ("produce", "consume", "admin")}
Make = Callable[..., Guarded]


@pytest.fixture
def limited(tmp_path: Path, signer: Signer) -> Iterator[Make]:
    """Makes a log behind a service with limits."""
    made: list[Guarded] = []

    def make(**limits: Any) -> Guarded:
        made.append(Guarded(tmp_path / "log", signer, Limits(**limits)))
        return made[-1]

    yield make
    for each in made:
        each.__exit__()


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


# Buckets


def test_calls_fill_up_with_time() -> None:
    """Ask for ten in a second: twenty at once, then as many as time gives; others have their own."""
    clock = Clock()
    usage = Usage(Limits(calls=10), clock)
    for _ in range(20):
        usage.call("a", 1)
    for name, takes in (("a", False), ("b", True)):
        if takes:
            usage.call(name, 1)
        else:
            with pytest.raises(RateLimitedError, match="'a' asks for more than 10 calls in a second"):
                usage.call(name, 1)
    clock.now += 0.5
    for _ in range(5):
        usage.call("a", 1)
    with pytest.raises(RateLimitedError):
        usage.call("a", 1)
    clock.now += 1e9  # no more is saved up than the burst
    for _ in range(20):
        usage.call("a", 1)
    with pytest.raises(RateLimitedError):
        usage.call("a", 1)
    clock.now -= 50
    with pytest.raises(RateLimitedError):
        usage.call("a", 1)


def test_less_than_one_call_in_a_second() -> None:
    """Allow one call in ten seconds: the first is at once, and the next ten seconds later."""
    clock = Clock()
    usage = Usage(Limits(calls=0.1), clock)
    usage.call("a", 1)
    clock.now += 9.9
    with pytest.raises(RateLimitedError):
        usage.call("a", 1)
    clock.now += 0.2
    usage.call("a", 1)


def test_answers_may_overdraw_once() -> None:
    """Get one answer that is larger than all that was saved up: the next call waits until that is paid."""
    clock = Clock()
    usage = Usage(Limits(answer_bytes=100), clock)
    usage.call("a", 1)
    usage.answered("a", 1_200)
    assert usage.is_overdrawn("a")
    clock.now += 9.9
    with pytest.raises(RateLimitedError, match="100 bytes of answers"):
        usage.call("a", 1)
    clock.now += 0.2
    usage.call("a", 1)
    assert not usage.is_overdrawn("b")


def test_many_identities_take_no_more_room() -> None:
    """Come as more identities than are kept in mind."""
    usage = Usage(Limits(calls=1))
    for number in range(10_100):
        usage.call(f"n{number}", 1)
    assert len(usage._calls) == 10_000


# Who has no token


@for_each(
    ("peer", "place"),
    [
        ("ipv4:192.0.2.7:51312", "192.0.2.7"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:51312", "2001:db8:1:2::/64"),
        ("ipv6:[::ffff:192.0.2.7]:1", "192.0.2.7"),
        ("http:192.0.2.7:1", "192.0.2.7"),
        ("http:2001:db8:1:2::5:1", "2001:db8:1:2::/64"),
        ("unix:", "unix"),
        ("ipv4:nonsense", "ipv4"),
    ],
)
def test_places_are_addresses_and_networks(peer: str, place: str) -> None:
    """Name places of peers: whoever has an IPv6 address has a whole network of them."""
    assert place_of(peer) == place


def test_guessing_keeps_nobody_out(guarded: Guarded) -> None:
    """Call with no token and with wrong ones, again and again: a new token from the same address is taken."""
    for number in range(60):
        with pytest.raises(UnauthenticatedError):
            guarded.open(token=f"x.{number}.z" if number % 2 else None)
    assert guarded.door.refusals.by_reason() == {"missing": 30, "malformed": 30}
    assert guarded.connect("bob", **ALL).topics()


# The service


def test_client_waits_where_it_calls_too_often(limited: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call more often than is allowed: the calls are slower, and all of them are answered."""
    guarded, clock = limited(calls=5), Clock()
    guarded.door.usage._clock = clock
    monkeypatch.setattr(grpc_transport, "time", SimpleNamespace(monotonic=time.monotonic, sleep=clock.advance))
    log = guarded.connect("alice", **ALL)
    for _ in range(14):
        assert log.topics()
    assert guarded.door.refusals.by_reason()["rate"] > 0


def test_client_gives_up_after_its_timeout(limited: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow next to nothing: who would wait for longer than its timeout is told why."""
    guarded = limited(calls=0.01)
    monkeypatch.setattr(grpc_transport, "_LIMIT_WAIT_S", 1_000)
    log = guarded.connect("alice", **ALL)
    with pytest.raises(RateLimitedError, match="in a second"):
        log.topics()


def test_large_request_is_refused(limited: Make) -> None:
    """Send a request that is larger than allowed: at once, without a second try."""
    guarded = limited(request_bytes=1_000)
    log = guarded.connect("alice", **ALL)
    with pytest.raises(LimitExceededError, match="1,000 is the most"):
        log.metadata.judge_files(["x" * 100 for _ in range(20)])
    assert log.topics()
    assert guarded.door.refusals.by_reason() == {"limit": 1}


def test_consumers_of_an_identity_are_counted(limited: Make) -> None:
    """Connect as many consumers as allowed, one more, and one more after another was closed."""
    guarded = limited(consumers=2)
    alice, bob = (guarded.connect(name, **ALL) for name in ("alice", "bob"))
    first, second = (alice.subscribe(ORDERS, name) for name in ("one", "two"))
    with pytest.raises(LimitExceededError, match="'alice' has 2 consumers connected to this service"):
        alice.subscribe(ORDERS, "three")
    bob.subscribe(ORDERS, "three").close()
    first.close()
    with alice.subscribe(ORDERS, "three") as third:
        assert third.receive(timeout=0.01) is None
    second.close()
    assert not guarded.door.usage._consumers


def test_open_transactions_of_an_identity_are_counted(limited: Make) -> None:
    """Begin as many transactions as allowed; one that ends makes room. Whole ones are never open."""
    guarded = limited(transactions=2)
    alice, bob = (guarded.connect(name, **ALL) for name in ("alice", "bob"))
    first, second = (alice.begin_transaction() for _ in range(2))
    assert first.id != second.id
    with pytest.raises(LimitExceededError, match="'alice' has 2 open transactions, and 2 is the most"):
        print(alice.begin_transaction().id)
    print(bob.begin_transaction().id)
    with alice.producer(ORDERS) as producer, alice.begin_transaction() as whole:
        producer.send(b"x", txn=whole)
    first.abort()
    print(alice.begin_transaction().id)


def test_consumer_is_held_up_and_not_refused(limited: Make) -> None:
    """Limit calls so that acknowledging one by one exceeds them: all messages come, and all are acknowledged."""
    guarded = limited(calls=200)
    log = guarded.connect("alice", **ALL)
    with log.producer(ORDERS) as producer:
        for _ in range(10):
            producer.send(b"x")
    talk = transport(guarded, "alice", **ALL)
    place = pb.SubscriptionPlace(where=1)
    subscribe = pb.ConsumeRequest.Subscribe(
        topic=ORDERS, name="s", type=1, isolation_level=1, durable=True, consumer_name="c", token="t", place=place
    )
    done = threading.Event()

    def requests() -> Iterator[pb.ConsumeRequest]:
        yield pb.ConsumeRequest(subscribe=subscribe)
        for number in range(1, 260):
            seek = pb.SeekSubscriptionRequest(request_id=f"s{number}", topic=ORDERS, name="s", place=place)
            yield pb.ConsumeRequest(sequence=number, seek=seek)
        done.wait()

    receipts = 0
    for answer in talk.converse("Consume", requests()):
        receipts += answer.HasField("receipt")
        if receipts == 259:
            break
    done.set()
    assert receipts == 259


def test_limits_hold_without_tokens(tmp_path: Path) -> None:
    """Serve without tokens: whoever comes from one address is one identity."""
    connect(tmp_path / "log").close()
    door = Door(usage=Usage(Limits(consumers=1, request_bytes=1_000)))
    with (
        Server(Target.of(tmp_path / "log", None).service(), "127.0.0.1", 0, door=door) as server,
        connect(endpoint=server.address) as log,
    ):
        log.create_topic("orders")
        with (
            log.subscribe("orders", "one"),
            pytest.raises(LimitExceededError, match=r"'anonymous@127\.0\.0\.1' has 1 consumers"),
        ):
            log.subscribe("orders", "two")
        with log.begin_transaction() as txn, log.producer("orders") as producer:
            producer.send(b"x", txn=txn)


def test_refusals_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Refuse many: one line in a second for each reason, which says how many there were."""
    clock = Clock()
    refusals = Refusals(clock)
    for _ in range(1000):
        refusals.count("expired", "Append", "peer", "why")
    clock.now += 2
    refusals.count("expired", "Append", "peer", "why")
    refusals.count("denied", "Append", "peer", "why")
    assert refusals.by_reason() == {"expired": 1001, "denied": 1}
    assert told_by("metadata.access", caplog) == [
        "refused Append from peer, expired: why",
        "refused Append from peer, expired: why (999 more since the last line)",
        "refused Append from peer, denied: why",
    ]


# The audit


def lines(guarded: Guarded) -> list[dict[str, Any]]:
    return [json.loads(line) for line in guarded.audit_file.read_text().splitlines()]


def test_changes_are_noted(guarded: Guarded) -> None:
    """Change what an administrator can; each change is a line with who, what, when, its request and outcome."""
    root = guarded.connect("root", **ALL)
    root.create_topic("new", partitions=2)
    root.update_topic("new", partitions=3)
    root.set_policies("new", retention_age="7d")
    root.roll_ledger("new")
    root.create_subscription("new", "s")
    with root.subscribe("new", "s") as consumer:
        consumer.seek("earliest")
    root.set_subscription_isolation_level("new", "s", "read_uncommitted")
    root.seek("new", "s", "latest")
    root.delete_subscription("new", "s")
    root.trim("new", keep_bytes=0)
    txn = guarded.connect("alice", **ALL).begin_transaction()
    root.abort_transaction(txn.id)
    root.delete_topic("new")
    found = lines(guarded)
    assert [line["call"] for line in found] == [
        *("CreateTopic", "UpdateTopic", "ChangePolicies", "RollLedger", "CreateSubscription", "SeekSubscription"),
        *("SetSubscriptionIsolationLevel", "SeekSubscription", "DeleteSubscription", "TrimTopic", "EndTransaction"),
        "DeleteTopic",
    ]
    assert {(line["who"], line["outcome"]) for line in found} == {("root", "ok")}
    assert found[0]["what"].items() >= {"name": "persistent://public/default/new", "partitions": 2}.items()
    assert all(line["from"].startswith("ipv4:127.0.0.1:") and line["time"].endswith("+00:00") for line in found)
    ids = [line["request_id"] for line in found if line["call"] != "EndTransaction"]
    assert len({*ids} - {None, ""}) == len(found) - 1


def test_refused_changes_are_noted(guarded: Guarded) -> None:
    """Try what isn't allowed, and what the service refuses; calls that change nothing leave no line."""
    bob = guarded.connect("bob", consume=["bank/*"], admin=["bank/public/orders"])
    with pytest.raises(PermissionDeniedError):
        bob.delete_topic(BILLS)
    with pytest.raises(Exception, match="already exists"):
        bob.create_topic(ORDERS)
    assert bob.scan(ORDERS).read_all().num_rows == 0
    assert bob.topics()
    noted = [(line["who"], line["call"], line["outcome"]) for line in lines(guarded)]
    assert noted == [("bob", "DeleteTopic", "PERMISSION_DENIED"), ("bob", "CreateTopic", "TOPIC_EXISTS")]


def test_subscriptions_that_consumers_make_and_takeovers_are_noted(guarded: Guarded) -> None:
    """Connect with a new durable subscription, with it again, without a role, and with one that isn't durable; then
    take over a transactional id, as its owner and as somebody else."""
    alice, bob = guarded.connect("alice", **ALL), guarded.connect("bob", produce=["bank/*"], consume=["shop/*"])
    for _ in range(2):
        alice.subscribe(ORDERS, "made").close()
    with pytest.raises(PermissionDeniedError):
        Conversation(guarded, consume=["shop/*"]).subscribe(ORDERS)
    alice.reader(ORDERS).close()
    for _ in range(2):
        alice.producer(ORDERS, transactional_id="teller").close()
    with pytest.raises(PermissionDeniedError):
        bob.producer(ORDERS, transactional_id="teller")
    guarded.connect("chief", **ALL).producer(ORDERS, transactional_id="teller").close()
    assert [(line["who"], line["call"], line["outcome"]) for line in lines(guarded)] == [
        ("alice", "CreateSubscription", "ok"),
        ("bob", "CreateSubscription", "PERMISSION_DENIED"),
        ("bob", "OpenProducer", "PERMISSION_DENIED"),
        ("chief", "OpenProducer", "ok"),
    ]
    assert "token" not in json.dumps([line["what"] for line in lines(guarded)])


def test_owners_own_end_is_no_administrative_change(guarded: Guarded) -> None:
    """Commit and abort as the owner: no line."""
    alice = guarded.connect("alice", **ALL)
    for end in ("commit", "abort"):
        txn = alice.begin_transaction()
        assert txn.id is not None
        getattr(txn, end)()
    assert lines(guarded) == []


def test_audit_may_be_moved_away(guarded: Guarded) -> None:
    """Rotate the file: the next line begins a new one."""
    root = guarded.connect("root", **ALL)
    root.create_topic("one")
    guarded.audit_file.rename(guarded.audit_file.with_suffix(".1"))
    root.create_topic("two")
    assert [line["what"]["name"] for line in lines(guarded)] == ["persistent://public/default/two"]


def test_audit_line_is_one_line_whatever_is_in_it(guarded: Guarded) -> None:
    """Name topics with line breaks and with very long texts, and change very many policies."""
    root = transport(guarded, "root", **ALL)
    for request in (
        pb.CreateTopicRequest(request_id="a", name="x\n{}\u2028", partitions=1),
        pb.CreateTopicRequest(request_id="b", name="x" * 5_000, partitions=1),
        pb.CreateTopicRequest(request_id="c", name="y", layered_policies={f"p{n}": "v" for n in range(1_000)}),
    ):
        with pytest.raises(Exception, match="TXNLOG_"):
            root.call("CreateTopic", request)
    found = lines(guarded)
    assert [line["request_id"] for line in found] == ["a", "b", "c"]
    assert max(map(len, guarded.audit_file.read_text().splitlines())) < 3_000
