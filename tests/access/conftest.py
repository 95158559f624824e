"""A log behind a service that asks for tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.access.authority import Authority, Signer
from txn_source import Log, connect
from txn_source.client.target import Target
from txn_source.metadata.access.audit import Audit
from txn_source.metadata.access.door import Door
from txn_source.metadata.access.keys import Keys
from txn_source.metadata.access.limits import Limits, Usage
from txn_source.metadata.access.tokens import Verifier
from txn_source.metadata.service.server import Server


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROOT", "ENDPOINT", "TOKEN", "TOKEN_FILE", "TLS_CA", "TLS_CERT", "TLS_KEY"):
        monkeypatch.delenv(f"TXNLOG_{name}", raising=False)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class Guarded:
    """A log with a few topics, its service with tokens, and connections of identities. A context manager."""

    TOPICS = ("bank/public/orders", "bank/public/bills", "shop/public/orders")

    def __init__(
        self, root: Path, signer: Signer, limits: Limits | None = None, places: Sequence[str] = (), **server: Any
    ) -> None:
        self.root = root
        self.signer = signer
        self._stack = ExitStack()
        self.audit_file = root.with_name("audit.jsonl")
        with connect(root) as log:
            for name in self.TOPICS:
                log.create_topic(name)
        verifier, audit = Verifier(Keys([signer.public_file])), Audit(self.audit_file)
        self.door = Door(verifier, Usage(limits or Limits()), audit, places=tuple(places))
        self.server = Server(Target.of(root, None).service(), "127.0.0.1", 0, door=self.door, **server)
        self._stack.enter_context(self.server)

    def __enter__(self) -> Guarded:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.door.audit.close()  # type: ignore[union-attr]

    def connect(self, subject: str = "alice", **roles: Sequence[str]) -> Log:
        """Connect as somebody with some roles."""
        return self.open(token=self.signer.token(subject, **roles))

    def open(self, **credentials: Any) -> Log:
        """Connect; it is closed at the end."""
        return self._stack.enter_context(connect(endpoint=self.server.address, timeout=60, **credentials))


@pytest.fixture
def guarded(tmp_path: Path, signer: Signer) -> Iterator[Guarded]:
    with Guarded(tmp_path / "log", signer) as made:
        yield made
