"""The keys that tokens are checked with: public ones, from files that are read again when they change.

A file has PEM blocks (``PUBLIC KEY``), one or many, or a JWKS. Each key checks the one algorithm of its kind, whatever
a token says: RSA is RS256, P-256 is ES256, Ed25519 is EdDSA. So neither "none" nor an HMAC with a public key is taken.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWK
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

from txn_source.metadata.access.watched_files import WatchedFiles
from txn_source.model.errors import InvalidArgumentError, TxnLogError, shown

ALGORITHMS = ("RS256", "ES256", "EdDSA")
MAX_KEYS = 32
_MIN_RSA_BITS = 2048
_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_REMEDY = "Give a file with public keys in PEM (`txnlog tokens keygen` makes one), or a JWKS."


@dataclass(frozen=True, slots=True)
class Key:
    """A public key: its id, and the one algorithm that it checks."""

    kid: str
    algorithm: str
    public: Any


class Keys:
    """The keys of some files, as they are now. A change that can't be used is logged, and the keys stay as they are."""

    def __init__(self, paths: Sequence[str | Path], clock: Callable[[], float] = time.monotonic) -> None:
        """Read the files.

        Raises:
            InvalidArgumentError: one can't be read, or has no key that can be used.
        """
        self._files = WatchedFiles([Path(path) for path in paths], _keys_of, clock)

    def current(self) -> Mapping[str, Key]:
        """Return the keys by their ids; another object after a change."""
        return self._files.current()


def _keys_of(contents: Mapping[Path, bytes]) -> Mapping[str, Key]:
    found: dict[str, Key] = {}
    for path, data in contents.items():
        try:
            keys = _jwks(data) if data.lstrip().startswith(b"{") else _pem(data)
        except TxnLogError as error:
            raise InvalidArgumentError(f"{path}: {error.fact}", error.remedy) from None
        for key in keys:
            if found.setdefault(key.kid, key).public != key.public:
                raise InvalidArgumentError(f"{path}: Two keys have the id {shown(key.kid)}.", "Give each its own.")
    if not 0 < len(found) <= MAX_KEYS:
        raise InvalidArgumentError(f"There are {len(found)} keys.", f"Give 1 to {MAX_KEYS}.")
    return found


def _pem(data: bytes) -> list[Key]:
    keys = []
    for block in _PEM.finditer(data):
        if block[1] != b"PUBLIC KEY":
            what = block[1].decode()
            raise InvalidArgumentError(f"A block {what!r} is no public key.", _REMEDY)
        try:
            public = load_pem_public_key(block[0])
        except (ValueError, UnsupportedAlgorithm):
            raise InvalidArgumentError("A public key in it can't be read.", _REMEDY) from None
        keys.append(Key(thumbprint(public), algorithm_of(public), public))
    if not keys:
        raise InvalidArgumentError("It has no key.", _REMEDY)
    return keys


def _jwks(data: bytes) -> list[Key]:
    try:
        listed = json.loads(data)["keys"]
        entries = [dict(each) for each in listed]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidArgumentError("It is no JWKS.", _REMEDY) from None
    keys = []
    for entry in entries:
        if entry.get("use", "sig") != "sig":
            continue
        if entry.get("kty") not in ("RSA", "EC", "OKP"):
            raise InvalidArgumentError(f"A key of kind {shown(entry.get('kty'))} is no public key.", _REMEDY)
        if "d" in entry:
            raise InvalidArgumentError("It has a private key.", "Give the public part alone.")
        try:
            public = PyJWK({name: entry[name] for name in entry if name not in ("alg", "key_ops")}).key
        except (PyJWTError, ValueError, TypeError, KeyError):
            raise InvalidArgumentError(f"The key {shown(entry.get('kid'))} can't be read.", _REMEDY) from None
        algorithm, kid = algorithm_of(public), entry.get("kid", None) or thumbprint(public)
        if entry.get("alg", algorithm) != algorithm or not isinstance(kid, str):
            raise InvalidArgumentError(
                f"The key {shown(kid)} is for {shown(entry.get('alg'))}.", f"Its kind is used with {algorithm} here."
            )
        keys.append(Key(kid, algorithm, public))
    return keys


def algorithm_of(public: Any) -> str:
    """Return the algorithm of a public key, or raise INVALID_ARGUMENT if it has none that is taken here."""
    if isinstance(public, rsa.RSAPublicKey) and public.key_size >= _MIN_RSA_BITS:
        return "RS256"
    if isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1):
        return "ES256"
    if isinstance(public, ed25519.Ed25519PublicKey):
        return "EdDSA"
    raise InvalidArgumentError(
        "A key is of a kind, or a size, that isn't taken.",
        f"Use RSA with {_MIN_RSA_BITS} bits or more, the curve P-256, or Ed25519.",
    )


def thumbprint(public: Any) -> str:
    """Return the id that a key has by its content (RFC 7638)."""
    kind: Any = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}[algorithm_of(public)]
    found = kind.to_jwk(public, as_dict=True)
    members = {name: found[name] for name in ("crv", "e", "kty", "n", "x", "y") if name in found}
    content = json.dumps(members, separators=(",", ":"), sort_keys=True).encode()
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
