"""Aborted messages lie in a file of their own beside the object: read_committed never needs it, read_uncommitted reads
both as one, and it comes, goes and counts with the object."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log import tiers
from tests.log.meddling import Crash, meddling
from tests.log.planning import planned, read
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED
from tests.log.sites import ManualClock, Site
from tests.log.test_offload import purge
from tests.log.tiers import closed_ledgers, everything, objects, second_files
from tests.selection import examples, mostly_long
from txn_source import Log, OnlyCopyError, SegmentUnreadableError, StorageWriteError, connect
from txn_source.client.tiering import offload
from txn_source.storage import tiered

LEVELS = (COMMITTED, UNCOMMITTED)
OLD = Path(__file__).parents[1] / "storage" / "objects" / "format_1.parquet"


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 5)
    monkeypatch.setattr(tiered, "_FOOTERS", tiered._FooterCache())


def filled(log: Log, ledgers: int = 3) -> dict[str, pa.Table]:
    """Write a topic with closed ledgers, each with aborted messages, and return what each level sees."""
    log.create_topic("orders")
    tiers.write_ledgers(log, ledgers=ledgers)
    return {level: everything(log, "orders", level) for level in LEVELS}


# What is where


@given(plan=st.lists(st.tuples(st.sampled_from("pca"), st.integers(1, 7)), min_size=1, max_size=25), data=st.data())
@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_both_files_are_read_as_one(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, int]], data: st.DataObject
) -> None:
    """Write entries of any sizes, plain, committed and aborted in any order; read any range of the tiered copies alone:
    the rows, in the order of the log; and the object has what read_committed sees, the other file the rest."""
    with connect(tmp_path_factory.mktemp("both") / "log") as log:
        log.create_topic("orders")
        transactions = {"c": log.begin_transaction(), "a": log.begin_transaction()}
        with log.producer("orders", batching=BY_HAND) as producer:
            for number, (kind, messages) in enumerate(plan):
                for index in range(messages):
                    producer.send(b"%d-%d" % (number, index), txn=transactions.get(kind))
                producer.flush()
        transactions["c"].commit()
        transactions["a"].abort()
        log.roll_ledger("orders")
        before = {level: everything(log, "orders", level) for level in LEVELS}
        log.offload("orders")
        log.delete_hot("orders")
        for level in LEVELS:
            assert everything(log, "orders", level).equals(before[level])
        keys = list(zip(before[UNCOMMITTED]["__ledger_id"], before[UNCOMMITTED]["__entry_id"], strict=True))
        ledger = keys[0][0].as_py()
        entries = log.stats("orders").ledgers[0].entries
        start, end = sorted(data.draw(st.integers(0, entries)) for _ in range(2))
        for level in LEVELS:
            inside = [start <= entry.as_py() < end for entry in before[level]["__entry_id"]]
            found = everything(log, "orders", level, start=f"{ledger}:{start}", end=f"{ledger}:{end}")
            assert found.equals(before[level].filter(pa.array(inside, pa.bool_())))
        [path] = objects(log.root)
        assert pq.read_table(path)["value"].to_pylist() == before[COMMITTED]["value"].to_pylist()
        hidden = [v for v, s in zip(*(before[UNCOMMITTED][n] for n in ("value", "__txn_status")), strict=True)
                  if s.as_py() == "aborted"]  # fmt: skip
        apart = [value for file in second_files(log.root) for value in pq.ParquetFile(file).read()["value"]]
        assert apart == hidden
        assert len(second_files(log.root)) == bool(hidden)


def test_ledger_of_aborted_messages_alone(log: Log) -> None:
    """Offload a ledger that read_committed sees nothing of: its object has no rows; both levels see what they did."""
    log.create_topic("orders")
    transaction = log.begin_transaction()
    with log.producer("orders", batching=BY_HAND) as producer:
        for number in range(40):
            producer.send(b"%d" % number, txn=transaction)
            producer.flush()
    transaction.abort()
    log.roll_ledger("orders")
    before = {level: everything(log, "orders", level) for level in LEVELS}
    report = log.offload("orders")
    assert (report.messages, log.delete_hot("orders")) == (40, 1)
    assert [pq.read_metadata(path).num_rows for path in objects(log.root)] == [0]
    for level in LEVELS:
        assert everything(log, "orders", level).equals(before[level])


def test_large_runs_of_aborted_messages_are_split_into_tasks(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plan reads of a purged ledger with few committed messages: the aborted ones are not all one task's."""
    monkeypatch.setattr(tiered, "ROW_GROUP_BYTES", 400)
    with Site("embedded", tmp_path / "log", clock) as site:
        log = site.connect()
        log.create_topic("orders")
        transaction = log.begin_transaction(800)
        with log.producer("orders", batching=BY_HAND) as producer:
            for number in range(42):
                producer.send(b"%d" % number, txn=transaction if 0 < number < 41 else None)
                producer.flush()
        transaction.abort()
        log.roll_ledger("orders")
        log.offload("orders")
        purge(log, clock)
        for level, rows in ((COMMITTED, [b"0", b"41"]), (UNCOMMITTED, [b"%d" % i for i in range(42)])):
            pinned = planned(log, "orders", level, max_partition_bytes=1)
            assert len(pinned.tasks) > 5
            assert read(log, pinned, ["value"])["value"].to_pylist() == rows


def test_objects_of_format_1_are_read(embedded_site: Site) -> None:
    """Put an object of the older form, which has all messages in one file, in an object's place: both levels see what
    they did, aborted messages among the others or not."""
    log = embedded_site.connect()
    log.create_topic("orders")
    tiers.write_ledgers(log, ledgers=1, value=lambda source: b"%d" % source.randrange(1000))
    before = {level: everything(log, "orders", level) for level in LEVELS}
    log.offload("orders")
    log.delete_hot("orders")
    [path], [second] = objects(log.root), second_files(log.root)
    shutil.copy(OLD, path)
    second.unlink()
    with closing(sqlite3.connect(log.root / "metadata.db")) as raw:
        raw.execute("UPDATE copies SET size = 15984, footer_bytes = 10762, footer_crc32c = 3540395458")
        raw.commit()
    names = [name for name in before[COMMITTED].column_names if name != "__publish_time"]
    for level in LEVELS:
        assert everything(log, "orders", level).select(names).equals(before[level].select(names))


# Damage


@pytest.mark.parametrize(
    "damage",
    mostly_long(
        [tiers.remove, tiers.cut_in_half, tiers.overwrite, tiers.flip_in_footer, tiers.replace_by_sibling],
        tiers.remove,
        tiers.replace_by_sibling,
    ),
)
def test_damaged_second_file_matters_to_read_uncommitted_alone(log: Log, damage: tiers.Damage) -> None:
    """Damage the second file of a ledger: read_committed notices nothing, read_uncommitted takes the hot copy, and says
    what is wrong once that is gone; the hot copy isn't deleted while it is the only whole one."""
    before = filled(log)
    log.offload("orders")
    second = second_files(log.root)[1]
    sound = second.read_bytes()
    damage(second)
    for level, failures in ((COMMITTED, 0), (UNCOMMITTED, 1)):
        reader = log.scan("orders", level, before[level].schema.names, read_priority="tiered-first")
        assert reader.read_all().equals(before[level])
        assert len(log.copies_read(reader).failures) == failures
    with pytest.raises(OnlyCopyError, match=rf"{second.name} is unreadable"):
        log.delete_hot("orders")
    second.write_bytes(sound)
    assert log.delete_hot("orders") == 3
    damage(second)
    tiered._FOOTERS = tiered._FooterCache()
    assert everything(log, "orders", COMMITTED).equals(before[COMMITTED])
    with pytest.raises(SegmentUnreadableError, match=rf"Object \S+/{second.name} is unreadable: "):
        everything(log, "orders", UNCOMMITTED)


def test_columns_that_are_constant_in_entries_need_no_second_file(log: Log) -> None:
    """Lose the second files, and read positions and transactions at read_uncommitted: footers have them."""
    before = filled(log)
    log.offload("orders")
    log.delete_hot("orders")
    for path in second_files(log.root):
        path.unlink()
    names = ["__entry_id", "__txn_id", "__txn_status"]
    assert log.scan("orders", UNCOMMITTED, names).read_all().equals(before[UNCOMMITTED].select(names))


# Crashes and deletion


@pytest.mark.parametrize("call", mostly_long([1, 2], 1))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_crash_between_the_files_leaves_none_that_nobody_knows(
    clocked_site: Site, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, call: int, moment: str
) -> None:
    """Die before or after the write of either file, as a killed process does: the lease takes what was left."""
    log = clocked_site.connect()
    before = filled(log, 1)
    write, calls = offload.write_tiered, 0

    def dying(*args: object) -> object:
        nonlocal calls
        calls += 1
        if (calls, moment) == (call, "before"):
            raise Crash
        written = write(*args)  # type: ignore[arg-type]
        if (calls, moment) == (call, "after"):
            raise Crash
        return written

    dead, way = meddling(clocked_site)
    for method in ("AbandonOffload", "DeleteCopies"):
        way.before[method] = way.crash  # a dead process tidies nothing up
    with monkeypatch.context() as patch:
        patch.setattr(offload, "write_tiered", dying)
        patch.setattr(offload.ObjectStore, "delete", lambda *args: None)
        with pytest.raises(Crash):
            dead.offload("orders")
    assert len(second_files(log.root)) == ((call, moment) != (1, "before"))
    assert everything(log, "orders", UNCOMMITTED).equals(before[UNCOMMITTED])
    clock.advance(3601)
    assert log.maintain().files_deleted == 1
    assert (objects(log.root), second_files(log.root)) == ([], [])
    assert len(log.offload("orders").ledger_ids) == 1
    assert len(second_files(log.root)) == 1


def test_failed_object_takes_its_second_file_along(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the second of the two writes be refused: nothing is left, at once."""
    filled(log, 1)
    write = offload.write_tiered

    def refusing(store: object, uri: str, *args: object) -> object:
        if uri.endswith(".parquet"):
            raise StorageWriteError("The disk is full.", "Make room.")
        return write(store, uri, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(offload, "write_tiered", refusing)
    with pytest.raises(StorageWriteError):
        log.offload("orders")
    assert (objects(log.root), second_files(log.root)) == ([], [])


def test_second_files_go_with_their_objects(log: Log) -> None:
    """Delete the tiered copies, trim, and delete the topic: no file stays in any case."""
    filled(log)
    for _ in range(2):
        log.offload("orders")
        assert len(second_files(log.root)) == 3
        log.delete_offloaded("orders")
        assert second_files(log.root) == []
    log.offload("orders")
    log.trim("orders", before=f"{closed_ledgers(log, 'orders')[1]}:0")
    assert len(second_files(log.root)) == 2
    log.delete_topic("orders")
    assert (objects(log.root), second_files(log.root)) == ([], [])
    assert [file.uri for file in log.metadata.list_doomed_files()] == ["segments/1"], "for somebody who still writes"
