"""What a client shows a service: certificates and a token. Files by their paths, so that it travels without a secret.

A token file is read again when it has changed, so that a token can be replaced while programs run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from txn_source.metadata.protocol.bearer import AUTHORIZATION_KEY, MAX_TOKEN_BYTES
from txn_source.model.errors import InvalidArgumentError

SYSTEM = "system"
"""In place of a file: the authorities that this machine trusts."""
TOKEN_VARIABLE = "TXNLOG_TOKEN"
_VARIABLES = {
    "tls_ca": "TXNLOG_TLS_CA",
    "tls_cert": "TXNLOG_TLS_CERT",
    "tls_key": "TXNLOG_TLS_KEY",
    "token_file": "TXNLOG_TOKEN_FILE",
}
OPTIONS = {"tls_ca": "tlsCa", "tls_cert": "tlsCert", "tls_key": "tlsKey", "token_file": "tokenFile"}
"""The options of Spark's queries that say the same."""

Header = tuple[tuple[str, str], ...]


class Secret:
    """A text that shows in no ``repr`` and goes into no pickle."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __repr__(self) -> str:
        return "'***'"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> Any:
        raise InvalidArgumentError(
            "The log was connected to with token=, and a secret isn't pickled.",
            "Use token_file=, by a path that the other process has too.",
        )


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client shows.

    ``tls_ca``: a file with the authorities of services' certificates, or ``SYSTEM``; None: plain text. ``tls_cert`` and
    ``tls_key``: the client's own. ``token`` or ``token_file``: who it is.
    """

    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    token_file: str | None = None
    token: Secret | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        *,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        token_file: str | os.PathLike[str] | None = None,
        token: str | None = None,
    ) -> Credentials:
        """Return credentials, with those of the environment for what isn't given.

        ``TXNLOG_TOKEN`` stays where it is: each process reads its own.

        Raises:
            InvalidArgumentError: they don't go together.
        """
        given = {"tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key, "token_file": token_file}
        found = {name: os.environ.get(_VARIABLES[name]) or None if v is None else v for name, v in given.items()}
        if token is not None:
            if token_file is not None:
                raise InvalidArgumentError("Both a token and a token file are given.", "Give one of them.")
            if not isinstance(token, str):
                raise InvalidArgumentError("The token is no text.", "Give it as it was made.")
            found["token_file"] = None
        elif token_file is None and os.environ.get(TOKEN_VARIABLE):
            found["token_file"] = None
        paths = {n: v if v in (None, SYSTEM) else os.path.abspath(os.fspath(v)) for n, v in found.items()}
        if (paths["tls_cert"] is None) != (paths["tls_key"] is None):
            raise InvalidArgumentError("A certificate comes with its key.", "Give tls_cert and tls_key, or neither.")
        if paths["tls_cert"] is not None and paths["tls_ca"] is None:
            raise InvalidArgumentError(
                "A client's certificate means nothing in plain text.", f'Give tls_ca, too: a file, or "{SYSTEM}".'
            )
        return cls(**paths, token=None if token is None else Secret(token))

    def options(self) -> dict[str, str]:
        """Return what Spark's options say the same by; a token that isn't in a file is left out."""
        given = {option: getattr(self, name) for name, option in OPTIONS.items()}
        return {option: value for option, value in given.items() if value is not None}

    @property
    def shows_token(self) -> bool:
        """True if calls have a token."""
        return self.token is not None or self.token_file is not None or bool(os.environ.get(TOKEN_VARIABLE))

    def channel(self) -> Any:
        """Return what gRPC makes a channel with; None: plain text.

        Raises:
            InvalidArgumentError: a file can't be read.
        """
        import grpc

        if self.tls_ca is None:
            return None
        roots = _system_authorities() if self.tls_ca == SYSTEM else _read(self.tls_ca)
        own = [None if path is None else _read(path) for path in (self.tls_key, self.tls_cert)]
        return grpc.ssl_channel_credentials(roots, *own)

    def check_safe(self, address: str) -> None:
        """Raise INVALID_ARGUMENT if a token would go over a network in plain text."""
        if self.tls_ca is None and self.shows_token and not is_loopback(address.rpartition(":")[0]):
            raise InvalidArgumentError(
                f"A token isn't sent to {address} in plain text: who listens on the way could use it.",
                f'Use TLS: tls_ca (the option tlsCa, {_VARIABLES["tls_ca"]}) with a file, or "{SYSTEM}".',
            )


PLAIN = Credentials()


class TokenSource:
    """The token of some credentials, as it is now."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._of_state: tuple[tuple[int, ...], Header] = ((), ())
        """The file's header, as of a state of the file: one value, since threads share it."""

    def header(self) -> Header:
        """Return what goes with a call: nothing, if there is no token.

        Raises:
            InvalidArgumentError: the token file can't be read, or has no token.
        """
        credentials = self._credentials
        if credentials.token is not None:
            return _header(credentials.token.reveal(), "token=")
        if credentials.token_file is not None:
            return self._of_file(credentials.token_file)
        token = os.environ.get(TOKEN_VARIABLE)
        return _header(token, TOKEN_VARIABLE) if token else ()

    def _of_file(self, path: str) -> Header:
        try:
            found = os.stat(path)
        except OSError as error:
            raise _unreadable(path, error) from None
        state = (found.st_ino, found.st_mtime_ns, found.st_size)
        known, header = self._of_state
        if state != known:
            header = _header(_read(path).decode("latin-1"), path)
            self._of_state = state, header
        return header


def _header(token: str, where: str) -> Header:
    text = token.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidArgumentError(f"What {where} has is no token.", "Give one of `txnlog tokens create`.")
    if len(text) > MAX_TOKEN_BYTES:
        raise InvalidArgumentError(f"The token in {where} is too long.", f"Use {MAX_TOKEN_BYTES} bytes at most.")
    return ((AUTHORIZATION_KEY, f"Bearer {text}"),)


def credentials_in(options: Mapping[str, str]) -> dict[str, str]:
    """Return what ``Credentials.of`` takes of some options, whose names may be in any case."""
    names = {option.lower(): name for name, option in OPTIONS.items()}
    return {names[option.lower()]: value for option, value in options.items() if option.lower() in names}


def is_loopback(host: str) -> bool:
    """True if a host is this machine, by its name or address."""
    if host.lower() == "localhost":
        return True
    import ipaddress  # here, as the next one: Spark's processes that only read an embedded log need neither

    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _system_authorities() -> bytes:
    import ssl

    context = ssl.create_default_context()
    found = "".join(ssl.DER_cert_to_PEM_cert(each) for each in context.get_ca_certs(binary_form=True))
    if not found:
        raise InvalidArgumentError("This machine has no list of authorities.", "Give a file with those of the service.")
    return found.encode()


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: OSError) -> InvalidArgumentError:
    return InvalidArgumentError(f"{path} can't be read: {error.strerror}.", "Check the path and its rights.")
