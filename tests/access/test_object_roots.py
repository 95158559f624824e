"""Tokens and TLS before a log on an object store: clients have an endpoint, a token, and their keys of the store."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import txn_source
from tests.access.authority import Authority, Signer
from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.partition_writer import PartitionWriter
from tests.log.objects import SURROUNDINGS, new_prefix, s3_surroundings
from tests.log.reading import send_each, values
from txn_source.client.target import metadata_url, open_service
from txn_source.importing import import_topics
from txn_source.metadata.access.certificates import server_credentials
from txn_source.metadata.access.door import Door
from txn_source.metadata.access.keys import Keys
from txn_source.metadata.access.limits import Limits, Usage
from txn_source.metadata.access.tokens import Verifier
from txn_source.metadata.service.server import Server
from txn_source.model.errors import PermissionDeniedError, UnauthenticatedError

pytestmark = pytest.mark.usefixtures("s3")

ORDERS = "bank/public/orders"


@pytest.fixture
def shown(tmp_path: Path, authority: Authority, signer: Signer) -> Iterator[dict[str, Any]]:
    """A service with TLS and tokens over a log on an object store: what to connect by, but for the token."""
    with s3_surroundings():
        service = open_service(new_prefix(), metadata_url(tmp_path / "log.db"), create=True)
        door = Door(Verifier(Keys([signer.public_file])), Usage(Limits()), None)
        tls = server_credentials(*authority.issue("service"))
        with Server(service, "127.0.0.1", 0, tls=tls, door=door) as server:
            yield {"endpoint": server.address, "tls_ca": authority.ca}
        service.close()


def token_file(folder: Path, signer: Signer, subject: str, **roles: list[str]) -> Path:
    file = folder / f"{subject}.token"
    file.write_text(signer.token(subject, **roles))
    return file


def test_roles_hold_for_messages_in_objects(shown: dict[str, Any], signer: Signer, tmp_path: Path) -> None:
    """Write, import, read, and collect garbage as who may, and as who may not; a pickle holds no secret of either."""
    ops = token_file(tmp_path, signer, "ops", admin=["*"], produce=["*"])
    loader = token_file(tmp_path, signer, "loader", produce=["bank/*"])
    reader = token_file(tmp_path, signer, "reader", consume=["bank/*"])
    with txn_source.connect(**shown, token_file=ops) as log:
        log.create_topic(ORDERS, partitions=3)
        log.create_topic("shop/public/orders")
    with txn_source.connect(**shown, token_file=loader) as log:
        send_each(log.producer(ORDERS), [b"1", b"2", b"3"])
        with log.begin_transaction() as txn:
            send_each(log.producer(ORDERS), [b"4"], txn=txn)
        with pytest.raises(PermissionDeniedError):
            log.producer("shop/public/orders")
        with pytest.raises(PermissionDeniedError):
            values(log, ORDERS)
    with txn_source.connect(**shown, token_file=reader) as log:
        data = pickle.dumps(log)
        for secret in (reader.read_text(), SURROUNDINGS["AWS_SECRET_ACCESS_KEY"]):
            assert secret.encode() not in data
        with pickle.loads(data) as other:
            assert sorted(values(other, ORDERS)) == [b"1", b"2", b"3", b"4"]
        with pytest.raises(PermissionDeniedError):
            log.producer(ORDERS)
        with pytest.raises(PermissionDeniedError):
            log.collect_garbage()
    writer = PartitionWriter(tmp_path / "kafka")
    writer.send([Record(b"k", b"1")])
    writer.flush()
    with txn_source.connect(**shown, token_file=loader) as log, pytest.raises(PermissionDeniedError):
        import_topics(f"kafka:{tmp_path / 'kafka'}", "t", log, names=["bank/public/t"])
    with txn_source.connect(**shown, token_file=ops) as log:
        assert import_topics(f"kafka:{tmp_path / 'kafka'}", "t", log, names=["bank/public/t"]).messages == 1
    with pytest.raises(UnauthenticatedError):
        txn_source.connect(**shown)
