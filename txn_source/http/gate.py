"""Who may ask for what over HTTP: the service's tokens, as bearer tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from txn_source.metadata.access.door import Door
from txn_source.metadata.access.tokens import Identity, NotTaken
from txn_source.model.errors import LimitExceededError, PermissionDeniedError, TxnLogError, shown
from txn_source.model.roles import Role


class Refused(Exception):
    """A request that is refused: HTTP's status, and the error."""

    def __init__(self, status: int, error: TxnLogError) -> None:
        super().__init__(status)
        self.status = status
        self.error = error


class Gate:
    """Lets in who has a token with a role for the whole log; anybody if the service asks for no tokens."""

    def __init__(self, door: Door | None) -> None:
        self._door = door

    @property
    def is_open(self) -> bool:
        """True if nobody needs a token."""
        return self._door is None or self._door.verifier is None

    def admit(self, request: Request, *roles: Role) -> Identity | None:
        """Return who asks; None: anybody.

        Raises:
            Refused: it may not.
        """
        door = self._door
        if door is None or door.verifier is None:
            return None
        path = request.url.path
        peer = f"http:{request.client.host}:{request.client.port}" if request.client else "http"
        with refusing(door, path, peer):
            identity = door.verifier.verify(bearer(request))
        if not identity.roles.allow_everything(roles):
            wanted = " or ".join(role.value for role in roles)
            denied = PermissionDeniedError(
                f"The token of {shown(identity.name)} has no role {wanted} for *.", "Use one that was made with it."
            )
            door.refusals.count("denied", path, peer, denied.fact)
            raise Refused(403, denied)
        with refusing(door, path, peer):
            door.usage.call(identity.name, 0)
        return identity

    def knows(self, request: Request, *roles: Role) -> bool:
        """True if who asks may know all, without a refusal if it may not."""
        if self.is_open:
            return True
        if "authorization" not in request.headers:
            return False
        try:
            self.admit(request, *roles)
        except Refused:
            return False
        return True


@contextmanager
def refusing(door: Door, path: str, peer: str) -> Iterator[None]:
    """Refuse, and count, whoever comes to a path without a good token, or too often.

    Raises:
        Refused: in place of ``NotTaken`` and ``LimitExceededError``.
    """
    try:
        yield
    except NotTaken as refusal:
        door.count_failure(refusal, path, peer)
        raise Refused(401, refusal.error) from None
    except LimitExceededError as limit:
        door.refused_by_limit(limit, path, peer)
        raise Refused(429, limit) from None


def bearer(request: Request) -> str:
    """Return the token that a request shows.

    Raises:
        NotTaken: it shows none, or something else.
    """
    given = request.headers.getlist("authorization")
    if not given:
        raise NotTaken("missing", "The request has no token.", "Give one: Authorization: Bearer ...")
    scheme, _, token = given[0].partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise NotTaken("scheme", "The request is authorized by something else than a bearer token.", "Give a token.")
    return token.strip()
