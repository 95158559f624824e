"""A token names no place where the service would go with its own credentials, but those that its operator lists."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.access.authority import Signer
from tests.access.conftest import Guarded
from tests.access.test_roles import ORDERS
from txn_source import Log, PermissionDeniedError

STORE = "s3://bank/cold?endpoint_override=minio.example:9000"
ELSEWHERE = [
    "s3://bank/cold?endpoint_override=evil.example",
    "s3://bank/cold",
    "gs://x/y",
    "../up",
    "/etc",
    "file:///etc",
]
WAYS: dict[str, Callable[[Log, str], object]] = {
    "policy of a topic": lambda log, uri: log.set_policies(ORDERS, offload_uri=uri),
    "policy of all": lambda log, uri: log.set_policies(offload_uri=uri),
    "policy of a new topic": lambda log, uri: log.create_topic("bank/public/new", offload_uri=uri),
    "root": lambda log, uri: log.metadata.add_root("b", uri),
}


@pytest.mark.parametrize("way", WAYS)
def test_place_that_is_not_listed_is_refused(signer: Signer, tmp_path: Path, way: str) -> None:
    """Name it as administrator of everything: nothing is changed, and the audit has it."""
    with Guarded(tmp_path / "log", signer, places=[STORE]) as guarded:
        log = guarded.connect("alice", admin=["*"])
        before = log.topics(), log.policies(ORDERS), log.roots()
        for uri in ELSEWHERE:
            with pytest.raises(PermissionDeniedError, match=r"lies in no place that a token may name.*--place URI"):
                WAYS[way](log, uri)
        assert (log.topics(), log.policies(ORDERS), log.roots()) == before
        lines = [json.loads(line) for line in guarded.audit_file.read_text().splitlines()]
        assert [line["outcome"] for line in lines] == ["PERMISSION_DENIED"] * len(ELSEWHERE)


def test_own_root_and_what_is_listed_may_be_named(signer: Signer, tmp_path: Path) -> None:
    with Guarded(tmp_path / "log", signer, places=[str(tmp_path / "tiered")]) as guarded:
        log = guarded.connect("alice", produce=["bank/*"], consume=["bank/*"], admin=["bank/*"])
        with log.producer(ORDERS) as producer:
            producer.send(b"a")
        for folder in ("cold", str(tmp_path / "tiered" / "orders")):
            log.set_policies(ORDERS, offload_uri=folder)
            log.roll_ledger(ORDERS)
            log.offload(ORDERS)
        assert (tmp_path / "log" / "cold").is_dir()
        assert len(log.scan(ORDERS).read_all()) == 1
