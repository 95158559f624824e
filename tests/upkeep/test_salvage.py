"""``txnlog salvage``: what lies in a log's places and isn't known to it, read from the bytes alone."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import txn_source
from tests.log.objects import new_prefix, s3_surroundings
from tests.log.reading import BY_HAND, UNCOMMITTED, send_each, values
from tests.selection import mostly_long
from tests.upkeep.test_recovery import lose_database
from txn_source import InvalidArgumentError, Log, LogNotFoundError, SalvagedFile, SchemaMismatchError, recover, salvage
from txn_source.cli.app import app
from txn_source.client.tiering.snapshot_making import make_snapshot

LATER = [b"in a transaction", b"aborted", b"plain", b"tail"]


def lose(log: Log, root: Path) -> None:
    """Store something before a snapshot and something after it, of each kind, and lose the database."""
    log.create_topic("t", partitions=2)
    old = log.producer("t", batching=BY_HAND)
    old.send(b"known", partition=1)
    old.flush()
    make_snapshot(log.access, 0.0)
    old.send(b"tail", partition=1)
    old.flush()
    producer = log.producer("t", batching=BY_HAND)
    for commit, value in ((True, b"in a transaction"), (False, b"aborted")):
        transaction = log.begin_transaction()
        producer.send(value, partition=0, txn=transaction)
        producer.flush()
        transaction.commit() if commit else transaction.abort()
    log.roll_ledger("t")
    log.offload("t")
    producer.send(b"plain", partition=0, key=b"k", event_time=1, properties={"a": "b"})
    log.close()
    lose_database(root)


@pytest.fixture
def recovered(root: Path) -> Iterator[Log]:
    lose(txn_source.connect(root), root)
    recover(root)
    with txn_source.connect(root) as log:
        yield log


def rows_in(folder: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(folder.iterdir()) for row in pq.read_table(file).to_pylist()]


def test_all_that_is_unknown_is_read(recovered: Log, root: Path, tmp_path: Path) -> None:
    """Take what was written after the snapshot out: new files, the tail of a known one, an object with the aborted
    rows of its ledger; each row says where it lay, and the places stay as they are."""
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and "metadata" not in path.name}
    found = salvage(recovered, to=tmp_path / "out")
    rows = rows_in(tmp_path / "out")
    assert {row["value"] for row in rows} == {b"known", *LATER}, "an object has its whole ledger"
    assert {row["__topic"] for row in rows} == {"t"}
    assert {(row["value"], row["__partition"]) for row in rows} >= {(b"tail", 1), (b"plain", 0), (b"aborted", 0)}
    assert [row["__properties"] for row in rows if row["value"] == b"plain"] == [[("a", "b")]]
    assert {row["__file"].rpartition(".")[2] for row in rows} == {"arrow", "parquet", "aborted"}
    assert sum(file.rows for file in found) == len(rows)
    [tail] = [file for file in found if file.start]
    assert (tail.rows, tail.damaged) == (1, 0)
    assert {path for path in before if path.exists() and path.read_bytes() == before[path]} == before.keys()
    assert sorted(values(recovered, "t", UNCOMMITTED)) == [b"known"]


def test_rows_are_sent_to_a_topic_together(recovered: Log, root: Path) -> None:
    """Send all, and one file alone; to a typed topic, whose columns are others, nothing."""
    found = salvage(recovered)
    recovered.create_topic("again", partitions=2)
    salvage(recovered, topic="again")
    assert set(values(recovered, "again")) == {b"known", *LATER}
    recovered.create_topic("one")
    [chosen] = [file.uri for file in found if file.start]
    salvage(recovered, topic="one", files=[chosen])
    assert values(recovered, "one") == [b"tail"]
    recovered.create_topic("typed", schema="id bigint not null")
    with pytest.raises(SchemaMismatchError, match=r"Rows of .* don't fit the topic"):
        salvage(recovered, topic="typed")
    assert recovered.count("typed", UNCOMMITTED) == 0
    assert recovered.transactions() == []


def test_command_lists_and_writes(recovered: Log, root: Path, tmp_path: Path) -> None:
    command = CliRunner(env={"TXNLOG_ROOT": str(root), "COLUMNS": "200"})
    listed = command.invoke(app, ["salvage"])
    assert (listed.exit_code, "Nobody knows which of them were committed." in listed.output) == (0, True), listed.output
    told = json.loads(command.invoke(app, ["salvage", "--json"]).output)
    assert {file["uri"] for file in told} == {file.uri for file in salvage(recovered)}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    refused = command.invoke(app, ["salvage", "--to", str(tmp_path / "out")])
    assert (refused.exit_code, "isn't empty" in refused.output) == (2, True), refused.output
    refused = command.invoke(app, ["salvage", "--file", "segments/1/0/other"])
    assert (refused.exit_code, "is no unknown file" in refused.output) == (2, True)
    recovered.delete_unknown(0, recovered=True)
    assert command.invoke(app, ["salvage"]).output == "There is nothing that the log doesn't know.\n"


def test_log_without_any_metadata_is_read(root: Path, tmp_path: Path) -> None:
    """Lose the snapshots, too: all rows of all files are there, and no topic of the log's."""
    lose(txn_source.connect(root), root)
    shutil.rmtree(root / "snapshots")
    command = CliRunner(env={"TXNLOG_ROOT": str(root)})
    done = command.invoke(app, ["salvage", "--to", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert {row["value"] for row in rows_in(tmp_path / "out")} == {b"known", *LATER}
    with pytest.raises(InvalidArgumentError, match="takes no messages"):
        salvage(root, topic="t")
    with pytest.raises(LogNotFoundError):
        salvage(tmp_path / "out")


@pytest.mark.usefixtures("s3")
def test_log_on_an_object_store_is_read(tmp_path: Path) -> None:
    """Do the same with a bucket, whose objects have entries of all partitions."""
    uri, file = new_prefix(), tmp_path / "log.db"
    with s3_surroundings():
        log = txn_source.connect(uri, metadata=file)
        log.create_topic("t", partitions=2)
        send_each(log.producer("t"), [b"known"])
        make_snapshot(log.access, 0.0)
        with log.producer("t", batching=BY_HAND) as producer:
            for partition in range(2):
                producer.send(b"%d" % partition, partition=partition)
        log.close()
        for left in tmp_path.glob("log.db*"):
            left.unlink()
        recover(uri, metadata=file)
        with txn_source.connect(uri, metadata=file) as log:
            [found] = salvage(log, to=tmp_path / "out")
    assert (found.rows, found.partition, found.topic) == (2, None, "t")
    assert sorted(row["value"] for row in rows_in(tmp_path / "out")) == [b"0", b"1"]


@pytest.mark.parametrize("seed", mostly_long(range(4), 3))
def test_damage_costs_what_it_hits(root: Path, seed: int) -> None:
    """Flip bytes, cut, insert and overwrite in a file of many entries, at random: no row appears that wasn't there, and
    entries that weren't hit are."""
    source = random.Random(seed)
    with txn_source.connect(root) as log:
        log.create_topic("t")
        send_each(log.producer("t"), [b"%04d" % number * 50 for number in range(60)])
    [path] = (root / "segments").rglob("*.arrow")
    whole = path.read_bytes()
    lose_database(root)
    for _ in range(40):
        data = bytearray(whole)
        at = source.randrange(len(data))
        match source.randrange(4):
            case 0:
                data[at] ^= 1 << source.randrange(8)
            case 1:
                del data[at:]
            case 2:
                data[at:at] = source.randbytes(8 * source.randrange(1, 9))
            case 3:
                data[at : at + 300] = source.randbytes(300)
        path.write_bytes(data)
        [found] = salvage(root)
        assert isinstance(found, SalvagedFile)
        assert found.rows <= 60
        assert found.damaged <= len(data)
        if at > 2000:  # behind the schema
            assert found.rows >= (at - 2000) // 1000
