"""Keys, tokens and certificates that tests make: an authority, and what it signs."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from txn_source.metadata.access.issuing import make_keys
from txn_source.metadata.access.keys import algorithm_of, thumbprint

_PEM = serialization.Encoding.PEM


class Signer:
    """A pair of keys in a folder, and tokens of it."""

    def __init__(self, folder: Path, algorithm: str = "ES256", name: str = "signer") -> None:
        self.private_file, self.public_file = folder / f"{name}.key", folder / f"{name}.pub"
        make_keys(algorithm, self.private_file, self.public_file)
        self.private: Any = serialization.load_pem_private_key(self.private_file.read_bytes(), None)

    @property
    def kid(self) -> str:
        return thumbprint(self.private.public_key())

    def claims(self, subject: str = "alice", **roles: Sequence[str]) -> dict[str, Any]:
        """Return good claims, for tests to spoil."""
        return {"sub": subject, "aud": "txnlog", "exp": int(time.time()) + 600, "txnlog": dict(roles)}

    def sign(self, claims: Mapping[str, Any], **headers: Any) -> str:
        """Sign whatever it is."""
        headers = {"kid": self.kid} | headers
        public = self.private.public_key()
        headers = {name: value for name, value in headers.items() if value is not None}
        return jwt.encode(dict(claims), self.private, algorithm=algorithm_of(public), headers=headers)

    def token(self, subject: str = "alice", **roles: Sequence[str]) -> str:
        """Return a good token."""
        return self.sign(self.claims(subject, **roles))


class Authority:
    """Signs certificates; ``ca`` is its own, in a file."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca = folder / f"{name}.pem"
        built = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.ca.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(_PEM))

    def issue(self, name: str, hosts: Sequence[str] = ("127.0.0.1", "localhost"), days: int = 1) -> tuple[Path, Path]:
        """Return the files of a certificate for some hosts, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        built = self._builder(subject, key, days).add_extension(names, critical=False)
        cert, private = self._folder / f"{name}.crt", self._folder / f"{name}.crt.key"
        cert.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(_PEM))
        form = serialization.PrivateFormat.PKCS8
        private.write_bytes(key.private_bytes(_PEM, form, serialization.NoEncryption()))
        return cert, private

    def _builder(self, subject: x509.Name, key: Any, days: int = 1) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + timedelta(days=days))
        )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
