"""No request, however bent, ends in anything but an answer or an error of ours, and a refused one changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
from grpc_status import rpc_status
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.reading import eventually
from tests.log.sites import service_over
from tests.metadata.fuzzing import METHODS, Bending, Subject, every_message
from tests.selection import examples
from txn_source import TxnLogError
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol.checks import FIELDS
from txn_source.metadata.service.server import Server
from txn_source.metadata.stub.transport import SERVICE_NAME
from txn_source.model.errors import ERROR_CLASSES

_RANDOMS = st.randoms(use_true_random=False)
_QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
_A_FEW = settings(max_examples=examples(50), deadline=None, database=None, suppress_health_check=_QUIET)


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[Subject]:
    subject = Subject(tmp_path)
    try:
        yield subject
    finally:
        subject.close()


def test_every_field_of_a_request_has_a_rule() -> None:
    """Compare the rules with the descriptors: a field that is added to a request must be given one."""
    messages: dict[str, Any] = {}
    for method in METHODS:
        every_message(method.input_type, messages)
    package = f"{pb.DESCRIPTOR.package}."
    fields = {name.removeprefix(package): {f.name for f in m.fields} for name, m in messages.items()}
    assert {name: set(rules) for name, rules in FIELDS.items()} == fields


def ask(subject: Subject, method: str, request: Any) -> str:
    """Make a call; return "answered", or the code of an error that changed nothing.

    A write also does what is due, as to abort a transaction whose time is up; so what was refused and changed something
    is asked once more.
    """
    for _ in range(2):
        before, refusal = subject.version(), None
        try:
            subject.service.call(method, request)
        except TxnLogError as error:
            refusal = error
        if refusal is None:
            return "answered"
        if unchanged := before == subject.version():
            break
    check_refusal(refusal.code, unchanged, method, request)
    return refusal.code


def check_refusal(code: str, unchanged: bool, method: str, request: Any) -> None:
    """A refusal is an error of ours, none that nobody foresaw, and has changed nothing."""
    assert code in ERROR_CLASSES.keys() - {"INTERNAL"}, f"{method} was answered with {code}: {request!r}"
    assert unchanged, f"{method} was refused and changed the log: {request!r}"


def test_bent_requests_are_refused_or_answered(subject: Subject) -> None:
    """Send requests made of real ones; then use each topic, and look after files that aren't the log's."""

    @_A_FEW
    @given(_RANDOMS)
    def run(random: Random) -> None:
        for _ in range(4):
            ask(subject, *Bending(random, subject).request())

    run()
    subject.check_usable()
    subject.check_reads()


def test_damaged_bytes_are_refused_or_answered(subject: Subject) -> None:
    """Send damaged requests, and any bytes at all, over gRPC: each is answered, or refused in our words."""
    with Server(service_over(subject.root, subject.clock), "127.0.0.1", 0) as server:
        channel = grpc.insecure_channel(server.address)

        @_A_FEW
        @given(_RANDOMS, st.binary(max_size=64))
        def run(random: Random, anything: bytes) -> None:
            bending = Bending(random, subject)
            method, request = bending.request()
            for data in (bending.raw(request), anything):
                before = subject.version()
                with suppress(grpc.RpcError), refusals(method, data, subject, before):
                    channel.unary_unary(f"/{SERVICE_NAME}/{method}")(data, timeout=30)

        run()
        channel.close()
    subject.check_usable()


def test_bent_conversations_end_in_answers(subject: Subject) -> None:
    """Hold conversations of bent requests: each ends by itself, in answers or errors of ours; then use the log."""

    @settings(_A_FEW, max_examples=examples(30))
    @given(_RANDOMS)
    def run(random: Random) -> None:
        said = Bending(random, subject).conversation()
        codes = set()
        try:
            for answer in subject.service.converse("Consume", iter(said)):
                codes.add(answer.receipt.error.code)
        except TxnLogError as error:
            codes.add(error.code)
        assert codes <= {"", *ERROR_CLASSES} - {"INTERNAL"}, said

    before = set(threading.enumerate())
    run()
    subject.check_usable()
    eventually(lambda: not any(t.name == "txnlog-requests" for t in set(threading.enumerate()) - before))


@contextmanager
def refusals(method: str, data: bytes, subject: Subject, before: object) -> Iterator[None]:
    """Check each failure of a call over gRPC."""
    try:
        yield
    except grpc.RpcError as error:
        check_refusal(our_code(error), before == subject.version(), method, data)
        raise


def our_code(error: grpc.RpcError) -> str:
    """Return the code of ours in a failed call."""
    status = rpc_status.from_call(error)
    assert status is not None, error
    message = pb.Error()
    assert status.details[0].Unpack(message), error
    return message.code
