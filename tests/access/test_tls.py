"""TLS: who is believed, and that nothing goes in plain text that shouldn't."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.access.authority import Authority, Signer
from tests.access.conftest import Guarded
from tests.access.test_roles import ORDERS
from txn_source import InvalidArgumentError, UnavailableError, connect
from txn_source.metadata.access import watched_files
from txn_source.metadata.access.certificates import server_credentials

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def secured(tmp_path: Path, signer: Signer, authority: Authority) -> Iterator[Guarded]:
    """A log behind a service with TLS and tokens."""
    with Guarded(tmp_path / "log", signer, tls=server_credentials(*authority.issue("service"))) as made:
        yield made


def test_log_works_over_tls(secured: Guarded, authority: Authority) -> None:
    """Write, read and consume over TLS, by the service's address and by its name."""
    token = secured.signer.token("alice", produce=["bank/*"], consume=["bank/*"])
    port = secured.server.port
    for endpoint in (f"127.0.0.1:{port}", f"localhost:{port}"):
        with connect(endpoint=endpoint, tls_ca=authority.ca, token=token) as log, log.producer(ORDERS) as producer:
            producer.send(b"1")
            with log.subscribe(ORDERS, "s", initial_position="earliest") as consumer:
                message = consumer.receive(timeout=30)
                assert message is not None
                consumer.acknowledge(message)


def test_authority_of_another_name_is_not_believed(secured: Guarded, tmp_path: Path) -> None:
    """Expect another authority, and the machine's own list."""
    other = Authority(tmp_path, "other")
    for ca in (other.ca, "system"):
        with pytest.raises(UnavailableError, match="TLS"):
            connect(endpoint=secured.server.address, tls_ca=ca, token="x")


def test_certificate_of_another_host_is_not_believed(tmp_path: Path, signer: Signer, authority: Authority) -> None:
    """Serve with a certificate for another host, and with one that has expired."""
    for cert in (authority.issue("elsewhere", hosts=["elsewhere.example"]), authority.issue("old", days=-1)):
        with (
            Guarded(tmp_path / f"log-{cert[0].stem}", signer, tls=server_credentials(*cert)) as served,
            pytest.raises(UnavailableError, match="TLS"),
        ):
            connect(endpoint=served.server.address, tls_ca=authority.ca, token="x")


def test_plain_and_tls_do_not_mix(secured: Guarded, authority: Authority, tmp_path: Path, signer: Signer) -> None:
    """Speak plain text to a service with TLS, and TLS to one without: an error, never a fallback."""
    with pytest.raises(UnavailableError):
        connect(endpoint=secured.server.address)
    with (
        Guarded(tmp_path / "plain", signer) as plain,
        pytest.raises(UnavailableError, match="TLS"),
    ):
        connect(endpoint=plain.server.address, tls_ca=authority.ca, token="x")


@pytest.fixture
def mutual(tmp_path: Path, signer: Signer, authority: Authority) -> Iterator[Guarded]:
    """A log behind a service that wants certificates of its clients."""
    tls = server_credentials(*authority.issue("service"), authority.ca)
    with Guarded(tmp_path / "log", signer, tls=tls) as made:
        yield made


def test_clients_show_certificates(mutual: Guarded, authority: Authority, tmp_path: Path) -> None:
    """Come with a certificate, without one, and with one of another authority."""
    cert, key = authority.issue("client")
    shown: dict[str, Any] = {"tls_ca": authority.ca, "token": mutual.signer.token("alice", consume=["*"])}
    with connect(endpoint=mutual.server.address, tls_cert=cert, tls_key=key, **shown) as log:
        assert len(log.topics()) == 3
    with pytest.raises(UnavailableError):
        connect(endpoint=mutual.server.address, **shown)
    cert, key = Authority(tmp_path, "other").issue("stranger")
    with pytest.raises(UnavailableError):
        connect(endpoint=mutual.server.address, tls_cert=cert, tls_key=key, **shown)


def test_certificate_is_replaced_while_the_service_runs(
    secured: Guarded, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replace the service's certificate by one of another authority: new connections see it, the old one goes on.

    In between key and certificate don't belong together: what was there stays.
    """
    monkeypatch.setattr(watched_files, "_LOOK_EVERY_S", 0.0)
    token = secured.signer.token("alice", consume=["*"])
    shown: dict[str, Any] = {"endpoint": secured.server.address, "token": token}
    old = secured.open(tls_ca=authority.ca, token=token)
    assert old.topics()
    newer = Authority(tmp_path, "newer")
    cert, key = newer.issue("replacement")
    os.replace(cert, tmp_path / "service.crt")
    with connect(tls_ca=authority.ca, **shown) as log:
        assert log.topics()
    os.replace(key, tmp_path / "service.crt.key")
    with connect(tls_ca=newer.ca, **shown) as log:
        assert log.topics()
    with pytest.raises(UnavailableError):
        connect(tls_ca=authority.ca, **shown)
    assert old.topics()


def test_files_that_are_no_pair_are_refused(authority: Authority, tmp_path: Path) -> None:
    """Give a key of another certificate, an encrypted one, rubbish, and nothing."""
    cert, key = authority.issue("one")
    _, other = authority.issue("two")
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    for given, said in (
        ((cert, other), "isn't that of the certificate"),
        ((cert, rubbish), "is no private key"),
        ((rubbish, key), "has no certificate"),
        ((cert, key, rubbish), "has no certificate"),
        ((cert, key, tmp_path / "nothing"), "can't be read"),
        ((tmp_path, key), "can't be read"),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            server_credentials(*given)
