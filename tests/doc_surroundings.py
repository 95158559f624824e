"""What pages of the documentation find around them when their blocks are run: brokers' files, stores, keys."""

from __future__ import annotations

import os
from pathlib import Path

from typer.testing import CliRunner

from tests.access.authority import Authority
from tests.doc_blocks import Runner
from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.partition_writer import PartitionWriter
from tests.foreign.pulsar.offload_writer import Frame, Sent, batch, marker, write_ledger
from tests.log.objects import s3_surroundings, shared_bucket, shared_server
from tests.metadata.postgres import server
from txn_source.cli.app import app


def kafka(folder: Path) -> str:
    """Write the log directory of a broker, with topics ``orders`` and ``payments``; return its path."""
    for topic in ("orders", "payments"):
        partition = PartitionWriter(folder, topic)
        partition.send([Record(b"alice", b"plain")])
        for producer, commit in ((7, True), (8, False)):
            partition.send([Record(b"bob", b"x")], producer, transactional=True)
            partition.end_transaction(producer, commit=commit)
        partition.flush()
    return str(folder)


def pulsar(folder: Path, topic: str) -> str:
    """Write a ledger that Pulsar offloaded of a topic, ``tenant/namespace/persistent/name``; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    txn = Frame(txn=(0, 1))
    entries = [batch([Sent(b"plain")]), batch([Sent(b"aborted")], txn), marker((0, 1), commit=False)]
    write_ledger(folder, 12, entries, topic)
    return str(folder)


def pulsar_bucket(page: Runner, topic: str) -> str:
    """Put such a ledger into a bucket, and return its URI."""
    store(page)
    for path in Path(pulsar(page.folder / "offloaded", topic)).iterdir():
        shared_bucket().write(path.name, path.read_bytes())
    return f"s3://{shared_bucket().name}/folder?endpoint_override=http://{shared_server().endpoint}"


def store(page: Runner) -> str:
    """Return the URI of a prefix of an object store that nothing is below; its credentials are found."""
    page.enter_context(s3_surroundings())
    page.environment |= {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return f"s3://{shared_bucket().name}/{page.folder.name}?endpoint_override=http://{shared_server().endpoint}"


def postgres(page: Runner) -> str:
    """Return the URL of an empty database."""
    url = server().new_database(with_tables=False)
    page.callback(server().drop_database, url)
    return url.revealed


def keys(page: Runner, **roles: str) -> None:
    """Make ``signing.key`` and ``signing.pub``, and for each role a token of that name: its option and pattern."""
    _tokens("keygen", "signing.key", "signing.pub")
    for name, role in roles.items():
        option, _, pattern = role.partition(" ")
        given = ["--key", "signing.key", "--subject", name, f"--{option}", pattern, "--expires", "1h"]
        _tokens("create", *given, "--out", f"{name}.token")


def _tokens(*arguments: str) -> None:
    done = CliRunner().invoke(app, ["tokens", *arguments])
    assert done.exit_code == 0, done.output


def certificates(folder: Path) -> None:
    """Make ``ca.crt``, and ``service.crt`` with ``service.key`` of it."""
    authority = Authority(folder)
    authority.ca.rename(folder / "ca.crt")
    _, key = authority.issue("service")
    key.rename(folder / "service.key")
