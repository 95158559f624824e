"""An import that is stopped anywhere goes on there: nothing twice, nothing left out, the same transactions."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import txn_source
from tests.importing.imported_topics import target_rows, write_shared_transactions
from txn_source import IsolationLevel
from txn_source.importing import batch_writer, feed, import_topics
from txn_source.model.errors import ProducerFencedError, TransactionEndedError

_KILLED = """
import os, signal, sys
import txn_source
from txn_source.importing import batch_writer, feed, import_topics
from txn_source.metadata.stub.metadata_stub import MetadataStub

source, root = sys.argv[1:]
batch_writer.BATCH_ROWS = feed.STEP_ROWS = 10
calls = 0
wrapped = MetadataStub.import_batch

def kill(*arguments):
    global calls
    calls += 1
    answer = wrapped(*arguments)
    if calls == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

MetadataStub.import_batch = kill
with txn_source.connect(root) as log:
    import_topics(f"kafka:{source}", "t", log)
"""


class StoppedError(Exception):
    """Stands for whatever ends a process."""


def stop_at_random(log: txn_source.Log, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have one in some calls raise, before or after it was carried out."""
    for call in ("import_batch", "begin_transaction"):
        wrapped = getattr(log.metadata, call)

        def stop(*arguments: Any, wrapped: Any = wrapped) -> Any:
            chance = rng.random()
            if chance < 0.06:
                raise StoppedError
            answer = wrapped(*arguments)
            if chance > 0.94:
                raise StoppedError
            return answer

        monkeypatch.setattr(log.metadata, call, stop)


def import_with_stops(source: Path, root: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> int:
    """Import a topic, again and again until it comes to its end; return how often it was stopped."""
    for stops in range(1000):
        with txn_source.connect(root) as log, monkeypatch.context() as patched:
            stop_at_random(log, rng, patched)
            try:
                import_topics(f"kafka:{source}", "t", log)
                return stops
            except StoppedError:
                continue
    raise AssertionError


def test_shared_transactions_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transaction over several partitions is one of the target's, however often the import was stopped."""
    monkeypatch.setattr(batch_writer, "BATCH_ROWS", 8)
    monkeypatch.setattr(feed, "STEP_ROWS", 5)
    rng = random.Random(0)
    expected = write_shared_transactions(rng, tmp_path / "kafka")
    stops = import_with_stops(tmp_path / "kafka", tmp_path / "log", rng, monkeypatch)
    assert stops > 0
    with txn_source.connect(tmp_path / "log") as log:
        columns = ["__partition", "key", "value", "__txn_id", "__txn_status"]
        found = log.scan("t", IsolationLevel.READ_UNCOMMITTED, columns, consistent_cut=False).read_all().to_pylist()
        ids: dict[tuple[int, int], set[str]] = {}
        for partition, rows in enumerate(expected):
            mine = [row for row in found if row["__partition"] == partition]
            assert [(row["key"], row["value"]) for row in mine] == [row[:2] for row in rows]
            for row, (_, _, producer, epoch, commit) in zip(mine, rows, strict=True):
                assert row["__txn_status"] == ("committed" if commit else "aborted")
                ids.setdefault((producer, epoch), set()).add(row["__txn_id"])
        assert all(len(of) == 1 for of in ids.values())
        assert len(set.union(*ids.values())) == len(ids)


@pytest.mark.long
def test_killed_import_goes_on(tmp_path: Path) -> None:
    """Kill a process with SIGKILL behind its third batch, and run the import again."""
    source, root = tmp_path / "kafka", tmp_path / "log"
    expected = write_shared_transactions(random.Random(1), source)
    killed = subprocess.run([sys.executable, "-c", _KILLED, source, root], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with txn_source.connect(root) as log:
        report = import_topics(f"kafka:{source}", "t", log)
        assert 0 < report.messages < sum(map(len, expected))
        for partition, rows in enumerate(expected):
            found = target_rows(log, "t", partition, IsolationLevel.READ_UNCOMMITTED)
            assert [row[:2] for row in found] == [row[:2] for row in rows]
        assert import_topics(f"kafka:{source}", "t", log).messages == 0


def test_second_importer_is_fenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another import come to its end in the middle of one: this one is refused, and nothing is there twice."""
    monkeypatch.setattr(batch_writer, "BATCH_ROWS", 10)
    monkeypatch.setattr(feed, "STEP_ROWS", 5)
    expected = write_shared_transactions(random.Random(2), tmp_path / "kafka")
    source, root = f"kafka:{tmp_path / 'kafka'}", tmp_path / "log"
    with txn_source.connect(root) as log, txn_source.connect(root) as other:
        calls = []

        def told(messages: int) -> None:
            calls.append(messages)
            if len(calls) == 2:
                import_topics(source, "t", other)

        with pytest.raises(ProducerFencedError, match="Another import into topic 't'"):
            import_topics(source, "t", log, progress=told)
        assert len(calls) == 2
        assert not [txn for txn in log.transactions("open") if txn.partitions]
        for partition, rows in enumerate(expected):
            found = target_rows(log, "t", partition, IsolationLevel.READ_UNCOMMITTED)
            assert [row[:2] for row in found] == [row[:2] for row in rows]


def test_transaction_that_an_operator_aborted_stops_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the source has committed can't be aborted in the target: the import says so, and doesn't go on."""
    monkeypatch.setattr(batch_writer, "BATCH_ROWS", 10)
    monkeypatch.setattr(feed, "STEP_ROWS", 5)
    write_shared_transactions(random.Random(2), tmp_path / "kafka")

    def told(_: int) -> None:
        if log.transactions("open"):
            raise StoppedError

    with txn_source.connect(tmp_path / "log") as log:
        with pytest.raises(StoppedError):
            import_topics(f"kafka:{tmp_path / 'kafka'}", "t", log, progress=told)
        for txn in log.transactions("open"):
            assert txn.timeout > 6 * 24 * 3600
            log.abort_transaction(txn.id)
        with pytest.raises(TransactionEndedError, match="delete the topics, and import them again"):
            import_topics(f"kafka:{tmp_path / 'kafka'}", "t", log)
