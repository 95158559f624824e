"""Fixtures for tests with real object stores: an S3 endpoint for the whole session, and stores of each kind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.sites import Site
from tests.tiers.proxy import Proxy
from tests.tiers.stores import CREDENTIALS, KINDS, PATIENT, Bucket, S3Server, Store, make_store
from txn_source import Log
from txn_source.storage import object_store
from txn_source.storage.s3_client import S3Client


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the SDK credentials as its users do, and keep it from looking for others."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", CREDENTIALS[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CREDENTIALS[1])
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(autouse=True)
def _patient_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in PATIENT.items():
        monkeypatch.setitem(object_store._S3_SECONDS, name, seconds)


@pytest.fixture
def pauses_pass_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pauses between tries of a request to S3 pass at once: a long deadline of a write is over soon, and only
    if the store fails all the time."""
    ahead_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal ahead_s
        ahead_s += seconds

    monkeypatch.setattr(S3Client.__init__, "__defaults__", (lambda: time.monotonic() + ahead_s, sleep))


@pytest.fixture
def log(embedded_site: Site) -> Log:
    """An embedded log: which store it has is the point."""
    return embedded_site.connect()


@pytest.fixture(params=[kind if kind == "s3" else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS])
def store(request: pytest.FixtureRequest, embedded_site: Site, tmp_path: Path, s3: S3Server) -> Store:
    """A store of each kind, set as the target of all offloads by ``log_with_store``."""
    return make_store(request.param, embedded_site.root, tmp_path / "objects", s3 if request.param == "s3" else None)


@pytest.fixture
def log_with_store(log: Log, store: Store) -> Log:
    """A log that offloads to the store."""
    if store.uri is not None:
        log.set_policies(offload_uri=store.uri)
    return log


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """A bucket of its own."""
    return s3.make_bucket()


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[Proxy]:
    """A way to the S3 endpoint that can be made to fail."""
    with Proxy(s3.endpoint) as proxy:
        yield proxy
