"""What TLS and tokens cost: how long one flush of one message takes, against a service in plain text that asks nobody.

Both services are processes of their own over logs of their own. Writers take turns, a stretch each, so that a slow
moment of the machine hits both.
"""

from __future__ import annotations

import ipaddress
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import txn_source
from benchmarks.harness import Bench, Result
from txn_source.client.log import Log
from txn_source.metadata.access.issuing import make_keys, make_token
from txn_source.model.roles import Role

STRETCHES = 20


def run(bench: Bench) -> Iterator[Result]:
    """Measure flushes and calls of one client."""
    flushes = bench.size(200, 3)
    folder = bench.folder
    cert, key = _certificate(folder)
    with ExitStack() as stack:
        plain = stack.enter_context(served(folder / "plain"))
        logs = [(stack.enter_context(txn_source.connect(endpoint=plain)), "plain")]
        for algorithm in ("ES256", "RS256"):
            private, public, token = (folder / f"{algorithm}.{end}" for end in ("key", "pub", "token"))
            make_keys(algorithm, private, public)
            roles = {role: ["*"] for role in Role}
            token.write_text(make_token(private, "bench", roles, 86_400))
            words = ["--tls-cert", str(cert), "--tls-key", str(key), "--token-keys", str(public)]
            address = stack.enter_context(served(folder / algorithm, *words))
            log = txn_source.connect(endpoint=address, tls_ca=cert, token_file=token)
            logs.append((stack.enter_context(log), algorithm))
        times = _flushes(stack, [log for log, _ in logs], flushes)
        calls = _calls([log for log, _ in logs], flushes)
    for at, (_, name) in enumerate(logs[1:], 1):
        for what, of, target in (("flush", times, ("≤", 1.1)), ("call", calls, None)):
            mid, best = median(of[at]), median(of[0])
            detail = f"median {mid * 1e6:.0f} µs against {best * 1e6:.0f}"
            yield Result(f"a {what} over TLS with a token ({name}) / in plain text", mid / best, "×", target, detail)


def _flushes(stack: ExitStack, logs: Sequence[Log], count: int) -> list[list[float]]:
    producers = []
    for log in logs:
        log.create_topic("t")
        producers.append(stack.enter_context(log.producer("t")))
    found: list[list[float]] = [[] for _ in logs]
    for stretch in range(-1, STRETCHES):
        for producer, times in zip(producers, found, strict=True):
            for _ in range(count):
                began = time.perf_counter()
                producer.send(b"message")
                producer.flush()
                if stretch >= 0:  # the first one only warms up
                    times.append(time.perf_counter() - began)
    return found


def _calls(logs: Sequence[Log], count: int) -> list[list[float]]:
    found: list[list[float]] = [[] for _ in logs]
    for _ in range(STRETCHES):
        for log, times in zip(logs, found, strict=True):
            for _ in range(count):
                began = time.perf_counter()
                log.topics()
                times.append(time.perf_counter() - began)
    return found


@contextmanager
def served(root: Path, *words: str) -> Iterator[str]:
    command = [sys.executable, "-m", "txn_source.cli", "serve", "--root", str(root), "--port", "0", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        found = re.search(r"serving on (\S+),", process.stderr.readline())
        assert found is not None
        yield found[1]
    finally:
        process.terminate()
        process.communicate()


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for this machine that is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")])
    now = datetime.now(UTC)
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    built: Any = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    built = built.add_extension(host, False).add_extension(x509.BasicConstraints(True, None), True)
    cert, private = folder / "bench.crt", folder / "bench.crt.key"
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    cert.write_bytes(built.sign(key, hashes.SHA256()).public_bytes(pem))
    private.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    return cert, private
