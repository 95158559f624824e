"""The service's door: who comes in, and how much it may ask for."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import field
from typing import Any

import grpc

from txn_source.metadata.access.audit import Audit
from txn_source.metadata.access.counters import Refusals
from txn_source.metadata.access.limits import Limits, Usage
from txn_source.metadata.access.tokens import NotTaken, Verifier
from txn_source.metadata.protocol.bearer import AUTHORIZATION_KEY
from txn_source.model.errors import LimitExceededError, RateLimitedError
from txn_source.model.roles import EVERYTHING, Roles
from txn_source.model.values import dataclass

ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who makes a call. ``ends_at`` is when its token ends, in seconds since the epoch.

    ``known``: by a token, so that things can belong to it.
    """

    name: str
    roles: Roles
    peer: str
    ends_at: float = math.inf
    known: bool = True


@dataclass(frozen=True, slots=True)
class Door:
    """Who may come in, how much it may ask for, and where its changes are noted. Without ``verifier`` anybody may."""

    verifier: Verifier | None = None
    usage: Usage = field(default_factory=lambda: Usage(Limits()))
    audit: Audit | None = None
    refusals: Refusals = field(default_factory=Refusals)

    def admit(self, method: str, context: grpc.ServicerContext, request_bytes: int | None = None) -> Visitor:
        """Return who makes a call with a request, or, without one, begins a conversation.

        Raises:
            UnauthenticatedError: it has no token, or one that isn't taken.
            LimitExceededError: it asks for too much, or too often.
        """
        peer = context.peer()
        try:
            visitor = self._visitor(context, peer)
            if request_bytes is not None:
                self.usage.call(visitor.name, request_bytes)
        except NotTaken as refusal:
            self.refusals.count(refusal.reason, method, peer, refusal.error.fact)
            raise refusal.error from None
        except LimitExceededError as error:
            self.refused_by_limit(error, method, peer)
            raise
        return visitor

    def refused_by_limit(self, error: LimitExceededError, method: str, peer: str) -> None:
        """Count what a limit has refused."""
        reason = "rate" if isinstance(error, RateLimitedError) else "limit"
        self.refusals.count(reason, method, peer, error.fact)

    def _visitor(self, context: grpc.ServicerContext, peer: str) -> Visitor:
        if self.verifier is None:
            return Visitor(_name_of(context, peer), EVERYTHING, peer, known=False)
        identity = self.verifier.verify(_bearer(context))
        return Visitor(identity.name, identity.roles, peer, identity.ends_at)


def _bearer(context: grpc.ServicerContext) -> str:
    given = [value for key, value in context.invocation_metadata() or () if key == AUTHORIZATION_KEY]
    if not given:
        raise NotTaken(
            "missing", "The call has no token.", "Give one: token_file=, the option tokenFile, or TXNLOG_TOKEN_FILE."
        )
    if len(given) > 1:
        raise NotTaken("doubled", f"The call has {len(given)} tokens.", "Give one.")
    text = given[0].decode("latin-1") if isinstance(given[0], bytes) else given[0]
    scheme, _, token = text.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise NotTaken("scheme", "The call is authorized by something else than a bearer token.", "Give a token.")
    return token.strip()


def _name_of(context: grpc.ServicerContext, peer: str) -> str:
    """Return a name for whoever has no token: its certificate's, or where it comes from."""
    auth: Any = context.auth_context()
    names = auth.get("x509_common_name") or ()
    if names:
        return str(names[0].decode(errors="replace"))
    kind, _, address = peer.partition(":")
    host = address.rpartition(":")[0].replace("%5B", "[").replace("%5D", "]").strip("[]")
    try:
        return f"{ANONYMOUS}@{ipaddress.ip_address(host)}"
    except ValueError:
        return f"{ANONYMOUS}@{kind}"
