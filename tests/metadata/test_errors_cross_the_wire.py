"""An error that the service raises is the same error at the client: class, code, fact and remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.log.sites import give_up_after, service_over
from txn_source import InternalError, Log, TxnLogError, connect
from txn_source.metadata.service.server import Server
from txn_source.model.errors import ERROR_CLASSES

pytestmark = pytest.mark.usefixtures("impatient")


class Refusing:
    """A service that answers ``GetLog`` as it should, and every other call with an error."""

    def __init__(self, root: Path) -> None:
        self._service = service_over(root)
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def call(self, name: str, request: Any) -> Any:
        if name == "GetLog":
            return self._service.call(name, request)
        raise self.error or AssertionError(name)


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[tuple[Refusing, Log]]:
    connect(tmp_path / "log").close()
    service = Refusing(tmp_path / "log")
    with Server(service, "127.0.0.1", 0) as server, connect(endpoint=server.address, timeout=60) as log:  # type: ignore[arg-type]
        yield service, log


def test_every_error_crosses_the_wire_whole(refusing: tuple[Refusing, Log]) -> None:
    """Raise each class in the service, with text beyond ASCII and of several lines."""
    service, log = refusing
    for code in sorted(ERROR_CLASSES, key="RATE_LIMITED".__eq__):
        raised = ERROR_CLASSES[code]('Köln\'s ledger "12:40" 日本\n100 % gone.', "Look → there.")
        service.error = raised
        if code == "RATE_LIMITED":
            give_up_after(log, 0.3)  # the client repeats the call until then
        with pytest.raises(TxnLogError) as caught:
            log.topics()
        error = caught.value
        assert type(error) is type(raised)
        assert (error.code, error.fact, error.remedy) == (code, raised.fact, raised.remedy)
        assert str(error) == str(raised)
        assert str(error).startswith(f"[TXNLOG_{code}] ")


def test_long_error_keeps_its_class_and_remedy(refusing: tuple[Refusing, Log]) -> None:
    """Raise an error with more text than gRPC lets through: it is cut, not lost."""
    service, log = refusing
    for length in (1_000, 5_000, 10_000, 100_000):
        service.error = ERROR_CLASSES["TOPIC_EXISTS"]("ü" * length, "Choose another name.")
        with pytest.raises(ERROR_CLASSES["TOPIC_EXISTS"]) as caught:
            log.topics()
        assert caught.value.remedy == "Choose another name."
        assert caught.value.fact.startswith("ü" * 400)


@pytest.mark.filterwarnings("ignore")
def test_bug_in_the_service_is_an_internal_error(refusing: tuple[Refusing, Log]) -> None:
    """Raise something else than an error of ours."""
    service, log = refusing
    service.error = ZeroDivisionError("division by zero")
    with pytest.raises(InternalError, match=r"ListTopics failed with ZeroDivisionError: division by zero"):
        log.topics()
