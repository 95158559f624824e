"""Messages too large for the wire, and a service of a newer release: each ends in words of ours that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.log.sites import Site, service_over
from tests.selection import for_each
from txn_source import InternalError, InvalidArgumentError, Log, LogVersionError, TxnLogError, connect
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.service.server import Server
from txn_source.metadata.stub import transport
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.position import Position, PositionRange
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TransactionState
from txn_source.storage.root import FORMAT_VERSION


def test_request_that_is_too_large_is_refused_before_it_is_sent(remote_site: Site) -> None:
    """Ask with 70 MB: the error says how much it is and how much may be, and the connection goes on."""
    log = remote_site.connect()
    request = pb.CondemnSegmentsRequest(paths=["x" * (70 << 20)])
    with pytest.raises(
        InvalidArgumentError, match=r"CondemnSegments has 73,400,3\d\d bytes, and 67,108,864 is the most"
    ):
        log.metadata.transport.call("CondemnSegments", request)
    assert log.topics() == []


def test_answer_that_is_too_large_says_so(remote_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let little fit on the wire and ask for much."""
    log = remote_site.connect()
    for number in range(20):
        log.create_topic(f"topic-{number}")
    monkeypatch.setattr(transport, "MAX_MESSAGE_BYTES", 200)
    with pytest.raises(InvalidArgumentError, match=r"answer of ListTopics has \d+ bytes, and 200 is the most"):
        log.topics()


@pytest.mark.parametrize("bytes_", [b"\xff", b"\x0a\x02\xff\xfe", b"\x0a\xff\xff\xff\xff\x0f"], ids=str)
def test_bytes_that_are_no_request_are_refused(remote_site: Site, bytes_: bytes) -> None:
    """Send what can't be read, one of it text that isn't UTF-8, to a call and to a conversation."""
    log = remote_site.connect()
    channel = grpc.insecure_channel(remote_site.endpoint)
    path = f"/{transport.SERVICE_NAME}"
    for call in (
        lambda: channel.unary_unary(f"{path}/DeleteTopic")(bytes_, timeout=60),
        lambda: list(channel.stream_stream(f"{path}/Consume")(iter([bytes_]), timeout=60)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "TXNLOG_INVALID_ARGUMENT" in caught.value.details()
    channel.close()
    assert log.topics() == []


class Newer:
    """A service of a release to come: it answers a call as the test says."""

    def __init__(self, root: Path) -> None:
        self._service = service_over(root)
        self.answers: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def call(self, name: str, request: Any) -> Any:
        if name not in self.answers:
            return self._service.call(name, request)
        found = self.answers[name]
        if isinstance(found, Exception):
            raise found
        return found(request) if callable(found) else found

    def converse(self, name: str, requests: Any) -> Any:
        return self.answers[name](requests)


class OverloadedError(TxnLogError):
    """An error that only the service knows, once it is taken out of the table."""

    code = "OVERLOADED"


@pytest.fixture
def newer(tmp_path: Path) -> Iterator[tuple[Newer, Log]]:
    connect(tmp_path / "log").close()
    service = Newer(tmp_path / "log")
    with Server(service, "127.0.0.1", 0) as server, connect(endpoint=server.address) as log:  # type: ignore[arg-type]
        yield service, log


def test_log_of_a_newer_format_is_left_alone(newer: tuple[Newer, Log]) -> None:
    """Connect to a service that serves a log of the next format: this release can't read or write its segments."""
    service, log = newer
    known = log.metadata.get_log()
    later = FORMAT_VERSION + 1
    service.answers["GetLog"] = pb.GetLogResponse(
        log_id=known.log_id, format_version=later, storage_uri=known.storage_uri
    )
    with pytest.raises(LogVersionError, match=rf"has format version {later}; this release reads up to"):
        log.metadata.get_log()


def test_error_of_a_newer_service_is_told_whole(newer: tuple[Newer, Log]) -> None:
    """Refuse a call, and a request in a conversation, with a code that this release doesn't have."""
    service, log = newer
    service.answers["ListTopics"] = OverloadedError("Too much is going on.", "Come back later.")
    with pytest.raises(InternalError, match=r"Too much is going on\. .*'OVERLOADED'.* Come back later\."):
        log.topics()

    def consume(requests: Iterator[Any]) -> Iterator[Any]:
        for request in requests:
            if request.WhichOneof("what") == "subscribe":
                topic = pb.TopicView(topic=pb.Topic(topic_id=1, name="persistent://public/default/orders"))
                topic.topic.policies.CopyFrom(_LIMITS)
                subscribed = pb.ConsumeResponse.Subscribed(
                    subscription_id=1,
                    consumer_id=1,
                    active=True,
                    isolation_level=pb.ISOLATION_LEVEL_READ_COMMITTED,
                    topic=topic,
                )
                yield pb.ConsumeResponse(subscribed=subscribed)
            elif request.WhichOneof("what") == "seek":
                receipt = pb.ConsumeResponse.Receipt(
                    sequence=request.sequence, error=pb.Error(code="OVERLOADED", fact="Too much.", remedy="Later.")
                )
                yield pb.ConsumeResponse(receipt=receipt)

    service.answers["Consume"] = consume
    log.create_topic("orders")
    with (
        log.subscribe("orders", "booking", isolation_level="read_committed") as consumer,
        pytest.raises(InternalError, match="'OVERLOADED'"),
    ):
        consumer.seek("earliest")


_LIMITS = pb.TopicPolicies(ledger_max_entries=1, ledger_max_bytes=1, ledger_max_age_ms=1)
_ORDERS = TopicName.parse("orders")
_WHOLE = PositionRange(Position(0, 0), Position(9, 0))


@for_each(
    ("method", "answer", "ask"),
    [
        ("ListTransactions", pb.ListTransactionsResponse(transactions=[pb.Transaction(state=9)]), "transactions"),
        ("ListTransactions", pb.ListTransactionsResponse(transactions=[pb.Transaction()]), "transactions"),
        ("GetView", pb.GetViewResponse(), "view"),
        ("ListLedgers", pb.ListLedgersResponse(ledgers=b"no table"), "ledgers"),
        ("ListLedgers", pb.ListLedgersResponse(), "ledgers"),
        ("SplitRange", pb.SplitRangeResponse(cuts=[1, 2]), "split"),
    ],
)
def test_answers_that_make_no_sense_are_errors_of_ours(
    newer: tuple[Newer, Log], method: str, answer: Any, ask: str
) -> None:
    """Answer with an unknown state, without what must be there, and with bytes that are no table."""
    service, log = newer
    service.answers[method] = answer
    stub: MetadataStub = log.metadata
    with pytest.raises(InternalError, match="of the same release"):
        {
            "transactions": lambda: stub.list_transactions(TransactionState.OPEN),
            "view": lambda: stub.get_view([_ORDERS]),
            "ledgers": lambda: stub.list_ledgers(1, _WHOLE),
            "split": lambda: stub.split_range(1, _WHOLE, 10),
        }[ask]()


def test_policies_of_a_newer_service_are_left_out(newer: tuple[Newer, Log]) -> None:
    """Answer with a policy that this release doesn't have: those that it has are told."""
    service, log = newer
    known = pb.GetPoliciesResponse.Effective(name="retention_age", value="5", source="POLICY_SOURCE_TOPIC")
    more = pb.GetPoliciesResponse.Effective(name="colour", value="blue", source="POLICY_SOURCE_TOPIC")
    service.answers["GetPolicies"] = pb.GetPoliciesResponse(effective=[known, more], set={"colour": "blue"})
    assert {name: p.value for name, p in log.policies("orders").items()} == {"retention_age": 5}
    assert log.get_data_read_priority() is None


def test_all_open_transactions_can_be_listed_oldest_first(site: Site) -> None:
    """Open more than a page of transactions: both orders have all of them, and a limit says how many are left."""
    log = site.connect()
    ids = [log.begin_transaction().id for _ in range(7)]
    log.abort_transaction(ids[2])
    wanted = [id for id in ids if id != ids[2]]
    with pytest.MonkeyPatch.context() as small:
        small.setattr("txn_source.metadata.stub.metadata_stub._TRANSACTIONS_AT_ONCE", 2)
        assert [t.id for t in log.transactions(oldest_first=True)] == wanted
        assert [t.id for t in log.transactions()] == wanted[::-1]
        assert [t.id for t in log.transactions(limit=3, oldest_first=True)] == wanted[:3]
        found, more = log.metadata.first_transactions(TransactionState.OPEN, limit=3)
        assert ([t.id for t in found], more) == (wanted[:2:-1], 3)
    with pytest.raises(InvalidArgumentError, match="-1 is not a number of transactions"):
        log.transactions(limit=-1)


def test_bug_in_the_embedded_service_is_an_error_of_ours(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call fail as nobody foresaw: embedded as remote it is an InternalError that names it."""
    monkeypatch.setattr("txn_source.metadata.store.topics.names", lambda *_: 1 // 0)
    with pytest.raises(InternalError, match="ListTopics failed with ZeroDivisionError"):
        log.topics()
