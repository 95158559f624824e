"""A log that was restored, and has lost its database then: nothing comes of the time after its backup."""

from __future__ import annotations

from pathlib import Path

import pytest

import txn_source
from tests.log.reading import BY_HAND
from tests.upkeep.histories import LEVELS, without_database, worst
from txn_source.upkeep import backup as module
from txn_source.upkeep.rebuild import rebuild

TOPICS = ("t", "u")


def rows(root: Path) -> dict[str, list[str]]:
    """Return position and value of each message by level."""
    columns = ["__topic", "__partition", "__ledger_id", "__entry_id", "__batch_index", "value"]
    with txn_source.connect(root) as log:
        return {
            level: sorted(str(row) for row in log.scan(list(TOPICS), level, columns=columns).read_all().to_pylist())
            for level in LEVELS
        }


def test_rebuild_brings_nothing_of_the_time_after_the_backup(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write, commit and close while a backup copies segments; restore it, lose the database, and rebuild that."""
    log = txn_source.connect(root)
    for topic in TOPICS:
        log.create_topic(topic, partitions=2)
    producers = [log.producer(topic, batching=BY_HAND) for topic in TOPICS]
    txn = log.begin_transaction(timeout=900)

    def send(value: bytes, **options: txn_source.Transaction) -> None:
        for producer in producers:
            for partition in range(2):
                producer.send(value, partition=partition, **options)
            producer.flush()

    copy, copied = module._Backup._copy_segment, []

    def go_on(self: module._Backup, *of: object) -> bool:
        done = bool(copy(self, *of))  # type: ignore[arg-type]
        copied.append(of)
        if len(copied) == 2:
            send(b"second half", txn=txn)
            txn.commit()
            with log.begin_transaction() as later:
                send(b"later", txn=later)
            send(b"last")
        elif len(copied) == 3:
            for producer in producers:
                producer.close()
        return done

    send(b"plain")
    send(b"first half", txn=txn)
    send(b"behind")
    monkeypatch.setattr(module._Backup, "_copy_segment", go_on)
    txn_source.backup(root, tmp_path / "backup")
    restored = tmp_path / "restored"
    txn_source.restore(tmp_path / "backup", restored)
    before = rows(restored)
    assert [len(before[level]) for level in LEVELS] == [8, 12]
    with txn_source.connect(restored) as again:
        again.maintain()
    rebuilt = without_database(restored, tmp_path / "rebuilt")
    report = rebuild(rebuilt)
    assert (report.undecided, [topic.without_receipt for topic in report.topics]) == ({}, [0, 0])
    assert rows(rebuilt) == before
    assert not worst(rebuilt)
