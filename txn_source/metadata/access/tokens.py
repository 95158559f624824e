"""Bearer tokens: who somebody is and what it may do, signed by whom the service trusts.

A token is a JWT with ``sub`` (who), ``exp``, ``aud``, and the roles in ``txnlog`` (``model/roles.py``); ``nbf``,
``iat`` and ``iss`` where they are given. Whatever is wrong with one, the answer says it without the token.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import jwt

from txn_source.metadata.access.keys import Key, Keys
from txn_source.metadata.protocol.bearer import MAX_TOKEN_BYTES
from txn_source.model.errors import InvalidArgumentError, UnauthenticatedError, shown
from txn_source.model.roles import Roles

CLAIM = "txnlog"
DEFAULT_AUDIENCE = "txnlog"
LEEWAY_S = 10.0
"""So far the clocks of who signs and who checks may be apart."""
MAX_SUBJECT = 200
_LATEST = 253_402_300_799.0  # the end of the year 9999
_KNOWN = 1000


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a valid token is of. ``ends_at`` is when it isn't taken any more, in seconds since the epoch."""

    name: str
    roles: Roles
    ends_at: float


class NotTaken(Exception):
    """A token that isn't taken: a word for counters, and the error for whoever sent it."""

    def __init__(self, reason: str, fact: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = UnauthenticatedError(fact, remedy)


class Verifier:
    """Checks tokens. One that was found valid is known, by its hash, until it ends or the keys change."""

    def __init__(
        self,
        keys: Keys,
        audience: str = DEFAULT_AUDIENCE,
        issuer: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._audience = audience
        self._issuer = issuer
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, Identity] = OrderedDict()
        self._known_by: Mapping[str, Key] = {}

    def verify(self, token: str) -> Identity:
        """Return whose a token is.

        Raises:
            NotTaken: it isn't valid now.
        """
        keys, digest = self._keys.current(), hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            if keys is not self._known_by:
                self._known, self._known_by = OrderedDict(), keys
            identity = self._known.get(digest)
        if identity is None:
            identity = self._checked(token, keys)
            with self._lock:
                if keys is self._known_by:
                    self._known[digest] = identity
                    if len(self._known) > _KNOWN:
                        self._known.popitem(last=False)
        if self._clock() >= identity.ends_at:
            raise expired(identity)
        return identity

    def _checked(self, token: str, keys: Mapping[str, Key]) -> Identity:
        if len(token) > MAX_TOKEN_BYTES:
            raise NotTaken(
                "too_long", f"The token has {len(token):,} characters.", f"Use one of {MAX_TOKEN_BYTES:,} at most."
            )
        claims = _signed_claims(token, keys)
        self._check_for_us(claims)
        name = claims.get("sub")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_SUBJECT or not name.isprintable():
            raise _wrong("sub", f"a text of at most {MAX_SUBJECT} printable characters")
        try:
            roles = Roles.parse(claims.get(CLAIM, {}))
        except InvalidArgumentError as error:
            raise NotTaken(
                "roles", f"The roles in the token of {shown(name)} can't be used: {error.fact}", error.remedy
            ) from None
        identity = Identity(name, roles, _time(claims, "exp") + LEEWAY_S)
        if "nbf" in claims and self._clock() < _time(claims, "nbf") - LEEWAY_S:
            raise NotTaken(
                "not_yet",
                f"The token of {shown(name)} isn't valid before {_shown_time(_time(claims, 'nbf'))}.",
                "Use it then; check the clocks if that has passed.",
            )
        return identity

    def _check_for_us(self, claims: Mapping[str, Any]) -> None:
        audiences = claims.get("aud")
        audiences = [audiences] if isinstance(audiences, str) else audiences
        if not isinstance(audiences, list) or not all(isinstance(each, str) for each in audiences):
            raise _wrong("aud", "a text or a list of texts")
        if self._audience not in audiences:
            raise NotTaken(
                "audience",
                f"The token is for {shown(', '.join(audiences))}, and this service is {shown(self._audience)}.",
                "Use a token that was made for this service.",
            )
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise NotTaken(
                "issuer",
                f"The token's issuer is {shown(claims.get('iss'))}, and this service takes {shown(self._issuer)}.",
                "Use a token of that issuer.",
            )


def _signed_claims(token: str, keys: Mapping[str, Key]) -> Mapping[str, Any]:
    """Return what a token says, after its signature was found to be of one of our keys."""
    try:
        header = jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if "crit" in header:  # says that whoever doesn't understand an extension must not take it
            raise ValueError
    except Exception:  # whatever it is made of: a reader of foreign bytes may fail in any way
        raise _malformed() from None
    if kid is not None and not isinstance(kid, str):
        raise _malformed()
    if kid is None:
        fitting = [key for key in keys.values() if key.algorithm == algorithm]
    else:
        fitting = [keys[kid]] if kid in keys else []
        if not fitting:
            raise NotTaken(
                "unknown_key",
                "The token is signed by a key that this service doesn't have.",
                "Give the service the public key (--token-keys), or use a token of a key that it has.",
            )
    if not any(key.algorithm == algorithm for key in fitting):
        raise NotTaken(
            "algorithm",
            f"The token is signed by {shown(algorithm)}, which isn't what this service's keys are for.",
            "Use RS256, ES256 or EdDSA with a key that the service has.",
        )
    for key in fitting:
        try:
            claims = jwt.decode(token, key.public, algorithms=[key.algorithm], options=_SIGNATURE_ALONE)
        except jwt.InvalidSignatureError:
            continue
        except Exception:
            raise _malformed() from None
        return claims
    raise NotTaken(
        "signature", "The token's signature is wrong.", "Use a token as it was made, of a key that the service has."
    )


_SIGNATURE_ALONE: Any = {
    "verify_signature": True,
    **dict.fromkeys((f"verify_{name}" for name in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")), False),
}
"""The claims are checked here, so that each mistake has its own answer, and no value of a wrong type another one."""


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST:
        raise _wrong(name, "a time in seconds since 1970")
    return float(value)


def expired(identity: Identity) -> NotTaken:
    """Return what says that a token has ended."""
    return NotTaken(
        "expired",
        f"The token of {shown(identity.name)} has expired at {_shown_time(identity.ends_at - LEEWAY_S)}.",
        "Use a new one; a client reads its token file again by itself when it changes.",
    )


def _wrong(name: str, wanted: str) -> NotTaken:
    return NotTaken(
        f"claim_{name}", f"The token's claim {name!r} is missing or of another form.", f"Sign one with {wanted}."
    )


def _malformed() -> NotTaken:
    return NotTaken("malformed", "What came as a token is no signed JWT.", "Use one of `txnlog tokens create`.")


def _shown_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
