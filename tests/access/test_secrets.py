"""A token is where it is needed, and nowhere else: not in plain text, pickles, texts, logs or errors."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.access.authority import Authority
from tests.access.conftest import Guarded
from tests.access.test_roles import BILLS, ORDERS
from txn_source import InvalidArgumentError, Log, PermissionDeniedError, UnauthenticatedError, connect
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.stub.credentials import Credentials, Secret, is_loopback
from txn_source.metadata.stub.grpc_transport import GrpcTransport


@pytest.mark.parametrize(
    "endpoint", ["10.0.0.1:6650", "log.example:6650", "127.0.0.1:1,log.example:1", "[2001:db8::1]:1"]
)
def test_token_is_not_sent_in_plain_text(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    """Connect to others than this machine without TLS, with a token from each place: nothing is sent."""
    file = tmp_path / "token"
    file.write_text("abc")
    for given in ({"token": "abc"}, {"token_file": file}):
        with pytest.raises(InvalidArgumentError, match="in plain text"):
            connect(endpoint=endpoint, **given)  # type: ignore[arg-type]
    for name, value in (("TXNLOG_TOKEN", "abc"), ("TXNLOG_TOKEN_FILE", str(file))):
        monkeypatch.setenv(name, value)
        with pytest.raises(InvalidArgumentError, match="isn't sent to"):
            connect(endpoint=endpoint)
        monkeypatch.delenv(name)
    GrpcTransport(endpoint, 1.0, Credentials.of(token="abc", tls_ca=authority.ca)).close()
    GrpcTransport(endpoint, 1.0).close()


def test_loopback_is_this_machine() -> None:
    """Hold names and addresses against it."""
    for host in ("localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "[::1]", "::1"):
        assert is_loopback(host)
    for host in ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example", "[2001:db8::1]"):
        assert not is_loopback(host)


def test_token_comes_from_the_environment(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the token, then its file; what is given is stronger than both."""
    address, signer = guarded.server.address, guarded.signer
    bills, orders = (signer.token("a", consume=[f"bank/public/{name}"]) for name in ("bills", "orders"))
    with monkeypatch.context() as patch:
        patch.setenv("TXNLOG_TOKEN", bills)
        with connect(endpoint=address) as log, connect(endpoint=address, token=orders) as other:
            assert (log.topics(), other.topics()) == ([BILLS], [ORDERS])
            patch.setenv("TXNLOG_TOKEN", orders)
            assert log.topics() == [ORDERS]
    file = tmp_path / "token"
    file.write_text(bills)
    monkeypatch.setenv("TXNLOG_TOKEN_FILE", str(file))
    with connect(endpoint=address) as log:
        assert log.topics() == [BILLS]
    with connect(tmp_path / "embedded") as embedded:  # which asks nobody
        assert embedded.topics() == []


def test_credentials_that_do_not_go_together_are_refused(tmp_path: Path, authority: Authority) -> None:
    """Give both kinds of token, a key without its certificate, credentials for an embedded log, and no tokens."""
    for given, said in (
        ({"token": "a", "token_file": "b"}, "Both a token and a token file"),
        ({"tls_cert": "a"}, "A certificate comes with its key"),
        ({"tls_cert": "a", "tls_key": "b"}, "means nothing in plain text"),
        ({"tls_ca": tmp_path / "nothing"}, "can't be read"),
        ({"token_file": tmp_path / "nothing"}, "can't be read"),
        ({"token": "a b"}, "is no token"),
        ({"token": "ä"}, "is no token"),
        ({"token": "a\r\nx-other: 1"}, "is no token"),
        ({"token": " "}, "is no token"),
        ({"token": "x" * 8001}, "too long"),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            connect(endpoint="127.0.0.1:1", timeout=1, **given)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="A log without a service asks for no token"):
        connect(tmp_path / "log", token="a")


def test_secret_is_not_pickled_or_shown(guarded: Guarded, tmp_path: Path) -> None:
    """Pickle, copy and print what has a token; with a file it travels, as the path."""
    token = guarded.signer.token("alice", consume=["bank/*"])
    log = guarded.open(token=token)
    shown = (repr(log), str(log), repr(log.target), str(log.target), repr(log.target.credentials), f"{vars(log)}")
    assert [text for text in shown if token[-30:] in text] == []
    for make in (pickle.dumps, copy.deepcopy):
        with pytest.raises(InvalidArgumentError, match="a secret isn't pickled"):
            make(log)
    assert Secret("a") == Secret("a") != Secret("b")
    file = tmp_path / "token"
    file.write_text(token)
    pickled = pickle.dumps(guarded.open(token_file=file))
    assert token[-30:].encode() not in pickled
    with pickle.loads(pickled) as travelled:
        assert isinstance(travelled, Log)
        assert len(travelled.topics()) == 2


def test_secret_is_in_no_error_or_log(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    """Be refused in every way, with all that is logged: no line and no traceback has a part of a token."""
    caplog.set_level(logging.DEBUG)
    signer = guarded.signer
    good = signer.token("alice", consume=["bank/*"])
    spoilt = f"{good[:-10]}{'A' * 10}"
    expired = signer.sign(signer.claims() | {"exp": 1})
    tokens = [good, spoilt, expired, good[: len(good) // 2], signer.sign(signer.claims() | {"aud": "x"})]
    texts = []
    for token in tokens:
        try:
            with connect(endpoint=guarded.server.address, token=token) as log:
                log.delete_topic(ORDERS)
        except (UnauthenticatedError, PermissionDeniedError) as error:
            frames = traceback.TracebackException.from_exception(error, capture_locals=False)
            texts.append("".join(frames.format()))
            texts.append(repr(error.args))
    assert len(texts) == 2 * len(tokens)
    for text in (*texts, caplog.text):
        assert [token for token in tokens if token[-30:] in text or token[:60] in text] == []
    assert "refused GetLog from ipv4:127.0.0.1" in caplog.text
    counts = dict(guarded.door.refusals.by_reason())
    assert counts.pop("signature") + counts.pop("malformed") == 2
    assert counts == {"denied": 1, "expired": 1, "audience": 1}


def ask(guarded: Guarded, *metadata: tuple[str, str | bytes]) -> str:
    """Ask for the log with some gRPC metadata; return what is wrong with it."""
    with grpc.insecure_channel(guarded.server.address) as channel:
        call = channel.unary_unary(
            "/txnlog.v1.MetadataService/GetLog", pb.GetLogRequest.SerializeToString, pb.GetLogResponse.FromString
        )
        try:
            call(pb.GetLogRequest(), metadata=metadata, timeout=60)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
        return "taken"


def test_headers_of_all_kinds(guarded: Guarded) -> None:
    """Send the header twice, with other schemes, other spellings, and bytes that are no token."""
    token = guarded.signer.token("alice")
    good = ("authorization", f"Bearer {token}")
    assert ask(guarded, good) == "taken"
    assert ask(guarded, ("authorization", f"bearer {token}")) == "taken"
    for headers, said in (
        ((), "The call has no token"),
        ((good, good), "The call has 2 tokens"),
        ((good, ("authorization", "Bearer x")), "The call has 2 tokens"),
        ((("authorization-bin", f"Bearer {token}".encode()),), "The call has no token"),
        ((("authorization", token),), "by something else than a bearer token"),
        ((("authorization", f"Basic {token}"),), "by something else than a bearer token"),
        ((("authorization", ""),), "by something else than a bearer token"),
        ((("authorization", "Bearer"),), "by something else than a bearer token"),
        ((("authorization", f"Bearer {token},Bearer {token}"),), "is no signed JWT"),
        ((("authorization", f"Bearer {token} {token}"),), "is no signed JWT"),
        ((("authorization", "Bearer ~!@#$%^&*()"),), "is no signed JWT"),
    ):
        told = ask(guarded, *headers)
        assert told.startswith("UNAUTHENTICATED: [TXNLOG_UNAUTHENTICATED]"), told
        assert said in told
    assert ask(guarded, ("authorization", f"Bearer {'x' * 12_000}")) != "taken"
    assert ask(guarded, ("authorization", f"Bearer {'x' * 60_000}")) != "taken"
    assert ask(guarded, good) == "taken"


def test_health_needs_no_token_and_nothing_else_is_served(guarded: Guarded) -> None:
    """Ask for the health, for what services there are, and for a call that there is not."""
    with grpc.insecure_channel(guarded.server.address) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        for path in (
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/grpc.channelz.v1.Channelz/GetServers",
            "/txnlog.v1.MetadataService/getlog",
            "/txnlog.v1.MetadataService/Nothing",
            "//GetLog",
        ):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(path)(b"", timeout=60)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]
