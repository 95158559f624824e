"""The options of ``txnlog serve`` that say who may call: certificates, tokens, limits, the audit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txn_source.metadata.stub.credentials import is_loopback
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.units import parse_size
from txn_source.storage.allowed_places import AllowedPlaces

if TYPE_CHECKING:
    from txn_source.metadata.access.door import Door

_PANEL = "Who may call"
_LIMITS = "Limits for each identity"


def _option(metavar: str | None, text: str, panel: str = _PANEL, **more: Any) -> Any:
    return typer.Option(metavar=metavar, help=text, rich_help_panel=panel, show_default=False, **more)


TlsCert = Annotated[
    Path | None, _option("FILE", "Certificate of the service in PEM; it speaks TLS alone then. Read again on change.")
]
TlsKey = Annotated[Path | None, _option("FILE", "The certificate's private key.")]
TlsClientCa = Annotated[Path | None, _option("FILE", "Clients need a certificate of an authority in this file.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen in plain text beyond this machine.", rich_help_panel=_PANEL)
]
TokenKeys = Annotated[
    list[Path] | None,
    _option("FILE", "Public keys, PEM or JWKS: calls need a token that one of them signed. Read again on change."),
]
TokenAudience = Annotated[
    str, typer.Option(help="The audience that tokens must be for.", rich_help_panel=_PANEL, metavar="NAME")
]
TokenIssuer = Annotated[str | None, _option("NAME", "The issuer that tokens must be of. Without it: any.")]
AuditLog = Annotated[
    Path | None, _option("FILE", 'A line of JSON for each administrative change; "-": in the log of the service.')
]
Place = Annotated[
    list[str] | None,
    _option(
        "URI",
        "A folder or prefix, with its parameters, that callers with a token may name for objects and copies, beside the"
        " log's own roots.",
    ),
]
MaxCalls = Annotated[float | None, _option("N", "Calls in a second.", _LIMITS, min=0.01)]
MaxAnswers = Annotated[str | None, _option("SIZE", "Bytes of answers in a second, such as 10m.", _LIMITS)]
MaxRequest = Annotated[str | None, _option("SIZE", "Bytes of one request, such as 1m.", _LIMITS)]
MaxConsumers = Annotated[int | None, _option("N", "Consumers connected to this service at once.", _LIMITS, min=1)]
MaxTransactions = Annotated[int | None, _option("N", "Open transactions at once; needs --token-keys.", _LIMITS, min=1)]


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """What was asked for."""

    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    insecure: bool = False
    token_keys: list[Path] | None = None
    token_audience: str = "txnlog"
    token_issuer: str | None = None
    audit_log: Path | None = None
    max_calls: float | None = None
    max_answers: str | None = None
    max_request: str | None = None
    max_consumers: int | None = None
    max_transactions: int | None = None
    places: list[str] | None = None

    def check(self, host: str) -> None:
        """Raise INVALID_ARGUMENT for options that don't go together, before anything starts."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidArgumentError(
                "A certificate comes with its key.", "Give --tls-cert and --tls-key, or neither."
            )
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise InvalidArgumentError(
                "Clients show certificates over TLS only.", "Give --tls-cert and --tls-key, too."
            )
        if self.tls_cert is None and not self.insecure and not is_loopback(host):
            raise InvalidArgumentError(
                f"The service would listen on {host} in plain text, for whoever reaches it.",
                "Give --tls-cert and --tls-key, or --insecure if that is meant.",
            )
        if self.max_transactions is not None and not self.token_keys:
            raise InvalidArgumentError("Without tokens a transaction belongs to nobody.", "Give --token-keys, too.")
        if self.places and not self.token_keys:
            raise InvalidArgumentError("Without tokens any place may be named.", "Give --token-keys, too.")
        AllowedPlaces(self.places or ())

    def tls(self) -> Any:
        """Return what connections are made with; None: plain text."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        with library():
            from txn_source.metadata.access.certificates import server_credentials

        return server_credentials(self.tls_cert, self.tls_key, self.tls_client_ca)

    def door(self) -> Door | None:
        """Return who may come in; None: anybody, and nothing is noted."""
        limited = (self.max_calls, self.max_answers, self.max_request, self.max_consumers, self.max_transactions)
        if not self.token_keys and self.audit_log is None and limited == (None,) * len(limited):
            return None
        with library():
            from txn_source.metadata.access.audit import Audit
            from txn_source.metadata.access.door import Door
            from txn_source.metadata.access.keys import Keys
            from txn_source.metadata.access.limits import Limits, Usage
            from txn_source.metadata.access.tokens import Verifier
        limits = Limits(
            self.max_calls,
            None if self.max_answers is None else parse_size(self.max_answers),
            None if self.max_request is None else parse_size(self.max_request),
            self.max_consumers,
            self.max_transactions,
        )
        verifier = None
        if self.token_keys:
            verifier = Verifier(Keys(self.token_keys), self.token_audience, self.token_issuer)
        audit = None if self.audit_log is None else Audit(None if str(self.audit_log) == "-" else self.audit_log)
        return Door(verifier, Usage(limits), audit, places=tuple(self.places or ()))


@contextmanager
def library() -> Iterator[None]:
    """Say which extra is missing, if what is imported inside needs it."""
    try:
        yield
    except ImportError as error:
        raise InvalidArgumentError(
            f"Certificates, tokens and metrics need the package {error.name}.", "Install txn-source[server]."
        ) from None
