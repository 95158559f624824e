"""No request, however bent, ends in anything but an answer or an error of ours, and a refused one changes nothing."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
from grpc_status import rpc_status
from google.rpc import error_details_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.sites import service_over
from tests.metadata.fuzzing import METHODS, Bending, Subject, every_message
from txn_source import InternalError, TxnLogError
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.checks import FIELDS
from txn_source.metadata.server import Server
from txn_source.metadata.transport import SERVICE_NAME
from txn_source.model.errors import ERROR_CLASSES

_RANDOMS = st.randoms(use_true_random=False)
_QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
_A_FEW = settings(max_examples=150, deadline=None, database=None, suppress_health_check=_QUIET)
_LONG = 300_000
_CHECK_EVERY = 2_000


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
    """Make a call; return "answered", or the code of an error that changed nothing."""
    before = subject.version()
    try:
        getattr(subject.service, method)(request)
    except TxnLogError as error:
        assert not isinstance(error, InternalError), (method, request, error)
        assert subject.version() == before, f"{method} was refused and changed the log: {request}"
        return error.code
    return "answered"


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


@pytest.mark.long
def test_many_bent_requests(subject: Subject) -> None:
    """The same very often, and using the log in between; prints what was answered how often."""
    random, answers = Random(20260101), Counter[str]()
    for number in range(_LONG):
        answers[ask(subject, *Bending(random, subject).request())] += 1
        if number % _CHECK_EVERY == 0:
            subject.check_usable()
            subject.check_reads()
    print(f"{_LONG} requests: {dict(answers)}")


def test_damaged_bytes_are_refused_or_answered(subject: Subject) -> None:
    """Send damaged requests, and any bytes at all, over gRPC: the answer is always one of ours, and none is INTERNAL."""
    with Server(service_over(subject.root, subject.clock), "127.0.0.1", 0) as server:
        with grpc.insecure_channel(server.address) as channel:

            @_A_FEW
            @given(_RANDOMS, st.binary(max_size=64))
            def run(random: Random, anything: bytes) -> None:
                bending = Bending(random, subject)
                method, request = bending.request()
                for data in (bending.raw(request), anything):
                    before = subject.version()
                    try:
                        channel.unary_unary(f"/{SERVICE_NAME}/{method}")(data, timeout=30)
                    except grpc.RpcError as error:
                        assert our_code(error) in ERROR_CLASSES.keys() - {"INTERNAL"}, (method, data, error)
                        assert subject.version() == before

            run()
    subject.check_usable()


def test_bent_conversations_end_in_answers(subject: Subject) -> None:
    """Hold conversations of bent requests: each ends by itself, in answers or errors of ours; then use the log."""

    @settings(_A_FEW, max_examples=60)
    @given(_RANDOMS)
    def run(random: Random) -> None:
        said = Bending(random, subject).conversation()
        try:
            for answer in subject.service.Consume(iter(said)):
                assert answer.receipt.error_code != "INTERNAL", (said, answer)
        except TxnLogError as error:
            assert not isinstance(error, InternalError), (said, error)

    run()
    subject.check_usable()
    assert threading.active_count() < 50, "conversations leave no threads behind"


def our_code(error: grpc.RpcError) -> str:
    """Return the code of ours in a failed call."""
    status = rpc_status.from_call(error)
    assert status is not None, error
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info), error
    return info.reason
