"""The service's door: who comes in, and how much it may ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import grpc

from txn_source.metadata.access.addresses import address_of
from txn_source.metadata.access.audit import Audit
from txn_source.metadata.access.counters import Refusals
from txn_source.metadata.access.limits import Limits, Usage
from txn_source.metadata.access.tokens import Identity, NotTaken, Verifier
from txn_source.metadata.protocol.bearer import AUTHORIZATION_KEY
from txn_source.model.errors import LimitExceededError, RateLimitedError
from txn_source.model.roles import EVERYTHING, Roles

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

    @classmethod
    def of(cls, identity: Identity, peer: str) -> Visitor:
        """Return the visitor that a token is of."""
        return cls(identity.name, identity.roles, peer, identity.ends_at)


@dataclass(frozen=True, slots=True)
class Door:
    """Who may come in, how much it may ask for, and where its changes are noted. Without ``verifier`` anybody may."""

    verifier: Verifier | None = None
    usage: Usage = field(default_factory=lambda: Usage(Limits()))
    audit: Audit | None = None
    refusals: Refusals = field(default_factory=Refusals)
    places: tuple[str, ...] = ()
    """Paths and URIs, beside the log's roots, that callers with a token may name for objects and copies."""

    def admit(self, method: str, context: grpc.ServicerContext) -> Visitor:
        """Return who makes a call, or begins a conversation.

        Raises:
            UnauthenticatedError: it has no token, or one that isn't taken.
        """
        peer = context.peer()
        if self.verifier is None:
            return Visitor(_name_of(context, peer), EVERYTHING, peer, known=False)
        try:
            return Visitor.of(self.verifier.verify(_bearer(context)), peer)
        except NotTaken as refusal:
            self.count_failure(refusal, method, peer)
            raise refusal.error from None

    def refused_by_limit(self, error: LimitExceededError, method: str, peer: str) -> None:
        """Count what a limit has refused."""
        reason = "rate" if isinstance(error, RateLimitedError) else "limit"
        self.refusals.count(reason, method, peer, error.fact)

    def count_failure(self, refusal: NotTaken, what: str, peer: str) -> None:
        """Count that somebody has come without a good token."""
        self.refusals.count(refusal.reason, what, peer, refusal.error.fact)


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
    return f"{ANONYMOUS}@{address_of(peer) or peer.partition(':')[0]}"
