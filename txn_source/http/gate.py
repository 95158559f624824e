"""Who may ask for what over HTTP: the service's tokens, as bearer tokens."""

from __future__ import annotations

from starlette.requests import Request

from txn_source.metadata.access.door import ANONYMOUS, Door, Visitor
from txn_source.metadata.access.tokens import NotTaken
from txn_source.model.errors import LimitExceededError, PermissionDeniedError, TxnLogError, shown
from txn_source.model.roles import EVERYTHING, Role


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

    def admit(self, request: Request, *roles: Role) -> None:
        """Let a request pass.

        Raises:
            Refused: it may not.
        """
        if self._door is None or self._door.verifier is None:
            return
        visitor = visitor_of(self._door, request, "http")
        if not visitor.roles.allow_everything(roles):
            wanted = " or ".join(role.value for role in roles)
            denied = PermissionDeniedError(
                f"The token of {shown(visitor.name)} has no role {wanted} for *.", "Use one that was made with it."
            )
            self._door.refusals.count("denied", request.url.path, visitor.peer, denied.fact)
            raise Refused(403, denied)

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


def visitor_of(door: Door, request: Request, port: str, body_bytes: int = 0) -> Visitor:
    """Return who makes a request; ``port`` names what was asked, for the audit and the log.

    Raises:
        Refused: the request has no token that is taken, or comes too often.
    """
    host, number = request.client if request.client else ("", 0)
    path, peer = request.url.path, f"{port}:{host}:{number}"
    try:
        if door.verifier is None:
            visitor = Visitor(f"{ANONYMOUS}@{host}", EVERYTHING, peer, known=False)
        else:
            visitor = Visitor.of(door.verifier.verify(bearer(request)), peer)
        door.usage.call(visitor.name, body_bytes)
    except NotTaken as refusal:
        door.count_failure(refusal, path, peer)
        raise Refused(401, refusal.error) from None
    except LimitExceededError as limit:
        door.refused_by_limit(limit, path, peer)
        raise Refused(429, limit) from None
    return visitor


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
