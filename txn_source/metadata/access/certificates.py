"""The service's certificate, and whose clients' it takes; read again when the files change, for new connections."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from txn_source.metadata.access.watched_files import WatchedFiles
from txn_source.model.errors import InvalidArgumentError


def server_credentials(cert: Path, key: Path, client_ca: Path | None = None) -> grpc.ServerCredentials:
    """Return what a server takes connections with.

    Args:
        cert: the certificate in PEM, with those between it and the authority behind it.
        key: its private key in PEM, not encrypted.
        client_ca: authorities of clients' certificates, in PEM; then a client needs one. None: it needs none.

    Raises:
        InvalidArgumentError: a file can't be read or isn't what it should be, or the two don't belong together.
    """
    paths = [cert, key] if client_ca is None else [cert, key, client_ca]

    def configuration(contents: Mapping[Path, bytes]) -> Any:
        _check_pair(cert, contents[cert], key, contents[key])
        authorities = None
        if client_ca is not None:
            authorities = contents[client_ca]
            _certificates(client_ca, authorities)
        return grpc.ssl_server_certificate_configuration([(contents[key], contents[cert])], authorities)

    files = WatchedFiles(paths, configuration)
    given = first = files.current()

    def changed() -> Any:
        """Return the configuration for a new connection; None: the one before."""
        nonlocal given
        before, given = given, files.current()
        return None if given is before else given

    return grpc.dynamic_ssl_server_credentials(first, changed, require_client_authentication=client_ca is not None)


def _check_pair(cert: Path, certificate: bytes, key: Path, private: bytes) -> None:
    found = _certificates(cert, certificate)[0]
    try:
        own = load_pem_private_key(private, password=None)
    except (ValueError, TypeError):
        raise InvalidArgumentError(
            f"{key} is no private key in PEM, or an encrypted one.", "Give the certificate's key, not encrypted."
        ) from None
    if own.public_key() != found.public_key():
        raise InvalidArgumentError(f"The key {key} isn't that of the certificate {cert}.", "Give the two of one pair.")


def _certificates(path: Path, data: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError:
        raise InvalidArgumentError(f"{path} has no certificate in PEM.", "Check the file.") from None
