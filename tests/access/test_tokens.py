"""What the service takes for a token, and what it answers to everything else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.access.authority import Signer
from tests.selection import for_each
from txn_source.metadata.access.keys import Keys
from txn_source.metadata.access.tokens import LEEWAY_S, NotTaken, Verifier
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.roles import Role


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def verifier(signer: Signer, clock: Clock) -> Verifier:
    return Verifier(Keys([signer.public_file], clock), clock=clock)


def b64(data: bytes | dict[str, Any]) -> str:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def reason(verifier: Verifier, token: str) -> str:
    """Return why a token isn't taken; neither the error nor what it came from has any of it."""
    with pytest.raises(NotTaken) as caught:
        verifier.verify(token)
    told = f"{caught.value.error!r} {caught.value!r} {caught.value.__cause__!r}"
    assert len(token) < 40 or token[-40:] not in told
    assert caught.value.error.code == "UNAUTHENTICATED"
    return caught.value.reason


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_good_token_is_taken(algorithm: str, tmp_path: Path) -> None:
    """Sign with each kind of key, with and without the key's id."""
    signer = Signer(tmp_path, algorithm)
    verifier = Verifier(Keys([signer.public_file]))
    for headers in ({}, {"kid": None}):
        identity = verifier.verify(signer.sign(signer.claims("bob", consume=["bank/*"]), **headers))
        assert (identity.name, [p.text for p in identity.roles.of(Role.CONSUME)]) == ("bob", ["bank/*"])


def test_token_without_a_signature_is_refused(signer: Signer, verifier: Verifier) -> None:
    """``alg: none`` in all spellings, with and without what looks like a signature."""
    for name in ("none", "None", "NONE", "nOnE", "", None):
        for kid in (signer.kid, None):
            header = {"alg": name, "typ": "JWT"} | ({} if kid is None else {"kid": kid})
            for signature in ("", "AAAA"):
                token = f"{b64(header)}.{b64(signer.claims(admin=['*']))}.{signature}"
                assert reason(verifier, token) in ("algorithm", "malformed")


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_public_key_is_no_secret_of_a_hmac(algorithm: str, tmp_path: Path) -> None:
    """Sign by HMAC with the public key, as PEM and as its bytes: everybody knows it."""
    signer = Signer(tmp_path, algorithm)
    verifier = Verifier(Keys([signer.public_file]))
    for name, digest in (("HS256", hashlib.sha256), ("HS512", hashlib.sha512)):
        for secret in (signer.public_file.read_bytes(), signer.public_file.read_bytes().strip()):
            for kid in (signer.kid, None):
                header = {"alg": name} | ({} if kid is None else {"kid": kid})
                text = f"{b64(header)}.{b64(signer.claims(admin=['*']))}"
                token = f"{text}.{b64(hmac.digest(secret, text.encode(), digest))}"
                assert reason(verifier, token) == "algorithm"


def test_key_id_is_a_name_and_nothing_else(signer: Signer, verifier: Verifier, tmp_path: Path) -> None:
    """Give paths, addresses, and other types for the key's id, and keys in the header."""
    other = Signer(tmp_path, name="other")
    claims = other.claims(admin=["*"])
    for kid in (str(other.public_file), "../../other.pub", "file:///dev/null", "http://127.0.0.1/x", "' OR 1=1", "\0"):
        assert reason(verifier, other.sign(claims, kid=kid)) == "unknown_key"
    key = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(other.private.public_key()))
    for extra in ({"jwk": key}, {"jku": "http://127.0.0.1/keys"}, {"x5u": "file:///etc/passwd"}):
        assert reason(verifier, other.sign(claims, kid=None, **extra)) == "signature"
        assert reason(verifier, other.sign(claims, kid=signer.kid, **extra)) == "signature"
    assert reason(verifier, f"{b64({'alg': 'ES256', 'kid': 7})}.{b64(claims)}.AAAA") == "malformed"
    assert reason(verifier, signer.sign(claims, crit=["exp"], exp=1)) == "malformed"


@pytest.mark.parametrize("part", [0, 1, 2])
def test_changed_token_is_refused(part: int, signer: Signer, verifier: Verifier) -> None:
    """Change each character of each part in turn."""
    parts = signer.token(consume=["bank/*"]).split(".")
    for at in range(0, len(parts[part]) - 1, 7):
        changed = list(parts[part])
        changed[at] = "A" if changed[at] != "A" else "B"
        spoilt = [*parts[:part], "".join(changed), *parts[part + 1 :]]
        assert reason(verifier, ".".join(spoilt)) in ("signature", "malformed", "unknown_key", "algorithm")


@for_each(
    ("change", "expected"),
    [
        ({"exp": None}, "claim_exp"),
        ({"exp": "2099"}, "claim_exp"),
        ({"exp": True}, "claim_exp"),
        ({"exp": float("inf")}, "claim_exp"),
        ({"exp": float("nan")}, "claim_exp"),
        ({"exp": 10**30}, "claim_exp"),
        ({"exp": -1}, "claim_exp"),
        ({"exp": [1]}, "claim_exp"),
        ({"exp": 0}, "expired"),
        ({"nbf": "now"}, "claim_nbf"),
        ({"nbf": None}, "claim_nbf"),
        ({"sub": None}, "claim_sub"),
        ({"sub": ""}, "claim_sub"),
        ({"sub": 7}, "claim_sub"),
        ({"sub": "a\nb"}, "claim_sub"),
        ({"sub": "x" * 201}, "claim_sub"),
        ({"aud": None}, "claim_aud"),
        ({"aud": "other"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": ["txnlog", 7]}, "claim_aud"),
        ({"aud": {"txnlog": 1}}, "claim_aud"),
        ({"aud": "txnlogx"}, "audience"),
        ({"txnlog": None}, "roles"),
        ({"txnlog": ["admin"]}, "roles"),
        ({"txnlog": "admin"}, "roles"),
        ({"txnlog": {"root": ["*"]}}, "roles"),
        ({"txnlog": {"admin": "*"}}, "roles"),
        ({"txnlog": {"admin": ["**"]}}, "roles"),
        ({"txnlog": {"admin": [7]}}, "roles"),
        ({"txnlog": {"admin": ["*"] * 101}}, "roles"),
        ({"txnlog": {"consume": ["orders"]}}, "roles"),
        ({"txnlog": {"consume": ["persistent://bank/public/orders"]}}, "roles"),
        ({"txnlog": {"consume": ["*/public/orders"]}}, "roles"),
        ({"txnlog": {"consume": ["bank/../orders"]}}, "roles"),
        ({"txnlog": {"consume": ["bank/public/örders"]}}, "roles"),
        ({"txnlog": {"consume": ["bank/public/%6frders"]}}, "roles"),
    ],
)
def test_claims_of_other_forms_are_refused(
    change: dict[str, Any], expected: str, signer: Signer, verifier: Verifier
) -> None:
    """Leave out or spoil one claim of a token that is signed as it should be."""
    assert reason(verifier, signer.sign(signer.claims(consume=["bank/*"]) | change)) == expected


def test_missing_roles_are_none(signer: Signer, verifier: Verifier) -> None:
    """A token says who somebody is, even if it may do nothing."""
    claims = signer.claims()
    del claims["txnlog"]
    assert verifier.verify(signer.sign(claims)).roles.of(*Role) == []


@for_each(
    "token",
    ["", ".", "..", "a.b.c", "a.b.c.d.e", "é.é.é", "\0", "Bearer", "x" * 7999, f"{'[' * 3000}.{'[' * 3000}.x"],
)
def test_what_is_no_token_is_refused(token: str, verifier: Verifier) -> None:
    """Send what no signer made: the answer is the same, whatever it is."""
    assert reason(verifier, token) == "malformed"


def test_payload_of_any_shape_is_refused(signer: Signer, verifier: Verifier) -> None:
    """Sign what isn't an object of claims: a list, a number, deep nesting, no JSON."""
    from jwt.api_jws import PyJWS

    for payload in (b"[]", b"7", b"null", b"{", b"\xff\xfe", b"[" * 2000, b'{"a":' * 700 + b"1" + b"}" * 700):
        token = PyJWS().encode(payload, signer.private, algorithm="ES256", headers={"kid": signer.kid})
        assert reason(verifier, token) in ("malformed", "claim_aud")


def test_huge_token_is_not_read(signer: Signer, verifier: Verifier) -> None:
    """Sign a good token that is too long."""
    assert reason(verifier, signer.sign(signer.claims() | {"more": "x" * 8000})) == "too_long"


def test_token_ends_and_begins(signer: Signer, clock: Clock, verifier: Verifier) -> None:
    """Set the clock around the ends, which clocks that differ a little don't move."""
    now = int(clock.now)
    token = signer.sign(signer.claims() | {"nbf": now + 100, "exp": now + 200})
    for at, expected in (
        (0, "not_yet"),
        (100 - LEEWAY_S - 1, "not_yet"),
        (200 + LEEWAY_S, "expired"),
        (999, "expired"),
    ):
        clock.now = now + at
        assert reason(verifier, token) == expected
    for at in (100 - LEEWAY_S, 150, 200, 200 + LEEWAY_S - 1):
        clock.now = now + at
        assert verifier.verify(token).name == "alice"
    clock.now = now + 200 + LEEWAY_S
    assert reason(verifier, token) == "expired"  # though it was known


def test_issuer_counts_where_one_is_asked_for(signer: Signer) -> None:
    """Sign with and without an issuer."""
    verifier = Verifier(Keys([signer.public_file]), issuer="https://id")
    assert verifier.verify(signer.sign(signer.claims() | {"iss": "https://id"})).name == "alice"
    for issuer in ("https://id/", "", " https://id"):
        assert reason(verifier, signer.sign(signer.claims() | {"iss": issuer})) == "issuer"
    assert reason(verifier, signer.token()) == "issuer"


# Keys


def test_key_is_replaced_while_the_service_runs(tmp_path: Path, clock: Clock) -> None:
    """Add a new key, then take the old one away: tokens of either are taken as long as its key is there."""
    old, new = Signer(tmp_path, name="old"), Signer(tmp_path, "EdDSA", name="new")
    keys = tmp_path / "keys.pem"
    keys.write_bytes(old.public_file.read_bytes())
    verifier = Verifier(Keys([keys], clock), clock=clock)
    assert verifier.verify(old.token("a")).name == "a"
    assert reason(verifier, new.token("b")) == "unknown_key"
    clock.now += 2
    keys.write_bytes(old.public_file.read_bytes() + new.public_file.read_bytes())
    assert (verifier.verify(old.token("a")).name, verifier.verify(new.token("b")).name) == ("a", "b")
    known = old.token("a")
    verifier.verify(known)
    clock.now += 2
    keys.write_bytes(new.public_file.read_bytes())
    assert reason(verifier, known) == "unknown_key"
    assert verifier.verify(new.token("b")).name == "b"


def test_spoilt_key_file_leaves_the_keys(tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Write rubbish into the file, then delete it: the keys stay, and each is told once."""
    signer = Signer(tmp_path)
    keys = tmp_path / "keys.pem"
    keys.write_bytes(signer.public_file.read_bytes())
    verifier = Verifier(Keys([keys], clock), clock=clock)
    for spoil in (lambda: keys.write_text("rubbish"), keys.unlink):
        spoil()
        caplog.clear()
        for _ in range(3):
            clock.now += 2
            assert verifier.verify(signer.token()).name == "alice"
        told = [record for record in caplog.records if record.name.endswith("watched_files")]
        assert [record.levelname for record in told] == ["ERROR"]


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def as_jwk(signer: Signer) -> dict[str, Any]:
    return dict(jwt.algorithms.ECAlgorithm.to_jwk(signer.private.public_key(), as_dict=True))


def test_jwks_is_taken(signer: Signer, tmp_path: Path) -> None:
    """Name keys in a JWKS, with ids of their own, one of them for something else."""
    file = tmp_path / "keys.json"
    one = as_jwk(signer)
    file.write_bytes(
        jwks({**one, "kid": "2026", "use": "sig", "alg": "ES256"}, {"kty": "oct", "k": "AAAA", "use": "enc"})
    )
    verifier = Verifier(Keys([file]))
    assert verifier.verify(signer.sign(signer.claims(), kid="2026")).name == "alice"
    assert reason(verifier, signer.token()) == "unknown_key"


@for_each(
    ("content", "said"),
    [
        (lambda s: b"", "has no key"),
        (lambda s: b"{}", "is no JWKS"),
        (lambda s: b'{"keys": 7}', "is no JWKS"),
        (lambda s: b'{"keys": []}', "There are 0 keys"),
        (lambda s: s.private_file.read_bytes(), "is no public key"),
        (lambda s: s.public_file.read_bytes()[:90] + b"\n-----END PUBLIC KEY-----", "can't be read"),
        (lambda s: jwks({"kty": "oct", "k": "c2VjcmV0"}), "'oct' is no public key"),
        (lambda s: jwks(as_jwk(s) | {"alg": "HS256"}), "is for 'HS256'"),
        (lambda s: jwks(as_jwk(s) | {"d": "AAAA"}), "private key"),
        (lambda s: jwks(as_jwk(s) | {"x": "AAAA"}), "can't be read"),
        (lambda s: jwks(as_jwk(s) | {"kid": 7}), "is for"),
        (lambda s: b"\0" * ((1 << 20) + 1), "more than"),
    ],
)
def test_files_that_are_no_public_keys_are_refused(
    content: Callable[[Signer], bytes], said: str, signer: Signer, tmp_path: Path
) -> None:
    """Name files with private keys, secrets of a HMAC, or rubbish: nothing starts with them."""
    file = tmp_path / "keys"
    file.write_bytes(content(signer))
    with pytest.raises(InvalidArgumentError, match=said):
        Keys([file])
    with pytest.raises(InvalidArgumentError, match="can't be read"):
        Keys([tmp_path / "nothing"])


def test_weak_keys_are_refused(tmp_path: Path) -> None:
    """Give an RSA key of 1,024 bits, and another curve."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    file = tmp_path / "keys"
    for key in (rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP384R1())):
        public: Any = key.public_key()
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        file.write_bytes(public.public_bytes(serialization.Encoding.PEM, form))
        with pytest.raises(InvalidArgumentError, match="kind, or a size"):
            Keys([file])
