"""Making keys and tokens, and looking at tokens: what whoever runs a service does beside it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from txn_source.metadata.access.keys import ALGORITHMS, algorithm_of, thumbprint
from txn_source.metadata.access.tokens import CLAIM, DEFAULT_AUDIENCE, MAX_SUBJECT
from txn_source.metadata.access.watched_files import read_file
from txn_source.metadata.protocol.bearer import MAX_TOKEN_BYTES
from txn_source.model.errors import InvalidArgumentError, shown
from txn_source.model.roles import Role, Roles

MAX_LIFETIME_S = 10 * 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class ShownToken:
    """What a token says of itself; nothing of it is verified. Times are in seconds since the epoch."""

    key_id: str | None
    algorithm: str | None
    claims: Mapping[str, Any]


def make_keys(algorithm: str, private: Path, public: Path) -> None:
    """Make a pair of keys, in PEM; only its owner may read the private one.

    Raises:
        InvalidArgumentError: there is no such algorithm, or one of the files is there already or can't be written.
    """
    if algorithm not in ALGORITHMS:
        raise InvalidArgumentError(f"There is no algorithm {shown(algorithm)}.", f"Use one of {', '.join(ALGORITHMS)}.")
    key: Any
    if algorithm == "RS256":
        key = rsa.generate_private_key(public_exponent=65537, key_size=3072)
    elif algorithm == "ES256":
        key = ec.generate_private_key(ec.SECP256R1())
    else:
        key = ed25519.Ed25519PrivateKey.generate()
    for path in (private, public):
        if path.exists():
            raise InvalidArgumentError(f"{path} is there already.", "Choose another name; a key is never written over.")
    pem, nothing = serialization.Encoding.PEM, serialization.NoEncryption()
    write_secret(private, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, nothing))
    data = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_secret(public, data, mode=0o644)


def make_token(
    key: Path,
    subject: str,
    roles: Mapping[Role, Sequence[str]],
    lifetime_s: float,
    *,
    audience: str = DEFAULT_AUDIENCE,
    issuer: str | None = None,
    starts_in_s: float = 0.0,
) -> str:
    """Return a token, signed with a private key.

    Args:
        key: the file of the private key, in PEM.
        subject: whose it is: things belong to it, whatever the token.
        roles: patterns of topics by role.
        lifetime_s: how long it is valid, from its start on.
        audience: the service that it is for.
        issuer: who says so, if the service asks for that.
        starts_in_s: so long it isn't valid yet.

    Raises:
        InvalidArgumentError: a value can't be used, or the key can't be read.
    """
    if not 0 < len(subject) <= MAX_SUBJECT or not subject.isprintable():
        raise InvalidArgumentError(
            f"{shown(subject)} is no subject.", f"Use a text of at most {MAX_SUBJECT} printable characters."
        )
    if not 0 < lifetime_s <= MAX_LIFETIME_S or not 0 <= starts_in_s <= MAX_LIFETIME_S:
        raise InvalidArgumentError("The token would be valid for no time, or for too long.", "Use up to 10 years.")
    claim = {role.value: list(patterns) for role, patterns in roles.items() if patterns}
    Roles.parse(claim)
    private = _private_key(key)
    now = int(time.time() + starts_in_s)
    claims: dict[str, Any] = {"sub": subject, "aud": audience, "iat": int(time.time()), "nbf": now}
    claims |= {"exp": now + max(1, int(lifetime_s)), CLAIM: claim} | ({} if issuer is None else {"iss": issuer})
    public = private.public_key()
    token = jwt.encode(claims, private, algorithm=algorithm_of(public), headers={"kid": thumbprint(public)})
    if len(token) > MAX_TOKEN_BYTES:
        raise InvalidArgumentError(
            f"The token would have {len(token):,} bytes, and {MAX_TOKEN_BYTES:,} is the most.", "Use fewer patterns."
        )
    return token


def look_at(token: str) -> ShownToken:
    """Return what a token says, without a look at its signature.

    Raises:
        InvalidArgumentError: it is no JWT.
    """
    try:
        found = jwt.decode_complete(token.strip(), options={"verify_signature": False})
        return ShownToken(found["header"].get("kid"), found["header"].get("alg"), dict(found["payload"]))
    except Exception:  # whatever foreign bytes lead to; the cause could have a part of the token
        raise InvalidArgumentError("That is no token.", "Give one of `txnlog tokens create`.") from None


def write_secret(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file whole, in place of the one that is there: whoever reads it sees the old one or the new one.

    Raises:
        InvalidArgumentError: it can't be written.
    """
    try:
        handle, made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(made, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(made)
            raise
    except OSError as error:
        raise InvalidArgumentError(f"{path} can't be written: {error.strerror}.", "Check the folder.") from None


def _private_key(path: Path) -> Any:
    data = read_file(path)
    try:
        return serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidArgumentError(
            f"{path} is no private key in PEM, or an encrypted one.", "Make one: `txnlog tokens keygen`."
        ) from None
