"""PostgreSQL over the network: with a password, with TLS, and with certificates and hosts that are wrong.

A relay stands before the test's server, which listens on a Unix socket and may lack TLS: it takes connections on a
loopback port, does TLS if that is asked for, and hands all else on.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import text

from tests.metadata.postgres import GUARDED, server
from tests.selection import for_each
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.opening import open_database
from txn_source.model.errors import UnavailableError

PASSWORD = "open sesame"
_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104


def write_certificate(folder: Path, address: str) -> tuple[Path, Path]:
    """Write a certificate of an address that has signed itself, and its key; return both paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, address)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    certificate, secret = folder / "server.crt", folder / "server.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, secret


class Relay:
    """Takes connections on a loopback port, by TLS if it has a certificate, and hands them on to a Unix socket."""

    def __init__(self, target: str, certificate: tuple[Path, Path] | None) -> None:
        self._target = target
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.by_tls = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                taken, _ = self._listener.accept()
                threading.Thread(target=self._relay, args=(taken,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as server_side:
            first = client.recv(8, socket.MSG_WAITALL)
            while len(first) == 8 and struct.unpack("!II", first)[1] in (_SSL_REQUEST, _GSS_REQUEST):
                wanted = self._tls if struct.unpack("!II", first)[1] == _SSL_REQUEST else None
                client.sendall(b"N" if wanted is None else b"S")
                if wanted is not None:
                    client = wanted.wrap_socket(client, server_side=True)
                    self.by_tls += 1
                first = client.recv(8)
            server_side.connect(self._target)
            server_side.sendall(first)
            back = threading.Thread(target=_pump, args=(server_side, client), daemon=True)
            back.start()
            _pump(client, server_side)
            back.join()
        client.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, and its key."""
    return write_certificate(tmp_path_factory.mktemp("certificate"), "127.0.0.1")


@pytest.fixture
def account() -> Iterator[str]:
    """A database of an account with a password; the folder of the server's socket is left to the URL."""
    url = server().new_database(with_tables=False)
    name = url.revealed.partition("?")[0].rpartition("/")[2]
    with server().connect() as connection:
        connection.execute(f"DROP ROLE IF EXISTS {GUARDED}".encode())
        connection.execute(f"CREATE ROLE {GUARDED} LOGIN SUPERUSER PASSWORD '{PASSWORD}'".encode())
    yield name
    server().drop_database(url)
    with server().connect() as connection:
        connection.execute(f"DROP ROLE {GUARDED}".encode())


@contextmanager
def relay(certificate: tuple[Path, Path] | None) -> Iterator[Relay]:
    with closing(Relay(server().socket, certificate)) as found:
        yield found


def url_of(port: int, database: str, options: str) -> DatabaseUrl:
    secret = PASSWORD.replace(" ", "%20")
    return DatabaseUrl(f"postgresql://{GUARDED}:{secret}@127.0.0.1:{port}/{database}?{options}")


def answer(url: DatabaseUrl) -> object:
    with closing(open_database(url)) as database, database.read() as connection:
        return connection.execute(text("SELECT 1")).scalar()


def test_password_and_tls(account: str, certificate: tuple[Path, Path]) -> None:
    """Connect with a password in the clear, by TLS, and by TLS to a server whose certificate is checked."""
    with relay(certificate) as there:
        assert answer(url_of(there.port, account, "sslmode=disable")) == 1
        assert there.by_tls == 0
        assert answer(url_of(there.port, account, "sslmode=require")) == 1
        assert answer(url_of(there.port, account, f"sslmode=verify-full&sslrootcert={certificate[0]}")) == 1
        assert there.by_tls == 2


@for_each(
    ("wrong", "fact", "remedy"),
    [
        ("authority", "shows a certificate that is not trusted here", "sslrootcert"),
        ("no authority", "shows a certificate that is not trusted here", "sslrootcert"),
        ("name", "shows a certificate that is not trusted here", "sslrootcert"),
        ("no tls", "takes no TLS connections", "sslmode"),
    ],
)
def test_what_is_wrong_is_told_without_the_password(
    wrong: str, fact: str, remedy: str, account: str, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    """Connect with each of these wrong: one readable line says what it is, and what to do."""
    checked = f"sslmode=verify-full&sslrootcert={certificate[0]}"
    shown = write_certificate(tmp_path / "other", "127.0.0.2") if wrong == "name" else certificate
    if wrong == "name":
        checked = f"sslmode=verify-full&sslrootcert={shown[0]}"
    elif wrong == "authority":
        checked = f"sslmode=verify-full&sslrootcert={write_certificate(tmp_path / 'other', '127.0.0.1')[0]}"
    elif wrong == "no authority":
        checked = f"sslmode=verify-full&sslrootcert={tmp_path / 'missing.crt'}"
    with relay(None if wrong == "no tls" else shown) as there:
        url = url_of(there.port, account, checked)
        with pytest.raises(UnavailableError) as caught:
            answer(url)
    said = str(caught.value)
    assert fact in said
    assert remedy in said
    assert "\n" not in said
    for secret in (PASSWORD, PASSWORD.replace(" ", "%20")):
        assert secret not in said + repr(caught.value) + repr(caught.value.__cause__) + str(url) + repr(url)
    assert os.fspath(tmp_path) not in said or wrong == "no authority"
