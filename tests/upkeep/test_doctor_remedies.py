"""What the doctor says is to be done is done as it says, and the finding is gone."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import txn_source
from tests.log.reading import BY_HAND, send_each
from tests.log.roots import Roots, log, roots, spoil
from tests.upkeep import faults as f
from tests.upkeep.doctored import codes, fill, look
from txn_source import Log
from txn_source.cli.app import app
from txn_source.metadata.store import sealing
from txn_source.upkeep.doctor.findings import Finding

__all__ = ["log", "roots"]
Remedy = Callable[[Path, Finding], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log that is whole and is copied for each fault, and a backup of it."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "_SEAL_FROM_ROWS", 5)
        fill(folder / "log")
    txn_source.backup(folder / "log", folder / "backup", check=False)
    return folder


def run(root: Path, command: str, *more: str) -> None:
    """Give a command of the log."""
    program, *words = shlex.split(command)
    assert program == "txnlog"
    done = CliRunner().invoke(app, ["--root", str(root), *words, *more], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def told(number: int = 0, *more: str) -> Remedy:
    """Give the command of this number in the remedy, with what it leaves to who gives it."""

    def give(root: Path, one: Finding) -> None:
        run(root, re.findall(r"`(txnlog [^`]*)`", one.remedy)[number], *more)

    return give


def mended_by_the_doctor(root: Path, one: Finding) -> None:
    assert "`txnlog doctor --repair`" in one.remedy
    run(root, "txnlog doctor --repair --yes --checksums all")


def file_from_the_backup(root: Path, one: Finding) -> None:
    assert one.remedy.startswith("Restore the ")
    path = str(one.operands.get("path") or one.operands["uri"])
    shutil.copy(root.parent / "backup" / path, root / path)


def log_from_the_backup(root: Path, one: Finding) -> None:
    """Move the old root away, and restore to its path, as the page about backup says."""
    assert "estore" in one.remedy or "release" in one.remedy
    root.rename(root.with_name("old"))
    txn_source.restore(root.parent / "backup", root, check=False)


def move_away(root: Path, one: Finding) -> None:
    assert "ove it away" in one.remedy or "elete it" in one.remedy
    for name in one.operands["first"]:
        (root / name).rename(root.parent / Path(name).name)


def marker(root: Path, one: Finding) -> None:
    [content] = re.findall(r"`({[^`]*})`", one.remedy)
    (root / "txnlog.json").write_text(content)


def configuration(root: Path, one: Finding) -> None:
    (root / "broker.conf").write_text("")


def receive(root: Path, one: Finding) -> None:
    kind = "shared" if one.operands["subscription"] == "audit" else "exclusive"
    which = one.operands["topic"], one.operands["subscription"]
    with txn_source.connect(root) as log, log.subscribe(*which, kind) as consumer:
        while any(part.backlog for part in log.subscription(*which).partitions):
            message = consumer.receive(timeout=30)
            assert message is not None
            consumer.acknowledge(message)
            consumer.flush()


RETENTION = f.policies(retention_age="1h", offload_after_age="1d")
LAG = f.policies(offload_deletion_lag="1h")
TARGET = f.policies(offload_uri="elsewhere")
CASES: list[tuple[f.Fault, Remedy]] = [
    (f.lose_a_segment, file_from_the_backup),
    (f.cut_a_segment, file_from_the_backup),
    (f.flip_in_a_segment, file_from_the_backup),
    (f.flip_in_a_segment_that_is_offloaded, mended_by_the_doctor),
    (f.lose_the_only_object, file_from_the_backup),
    (f.flip_in_the_only_object, file_from_the_backup),
    (f.lose_an_object, mended_by_the_doctor),
    (f.mistake_an_object_for_another, log_from_the_backup),
    (f.leave_an_unregistered_segment, told()),
    (f.leave_an_unregistered_segment, mended_by_the_doctor),
    (f.put_a_strange_file, move_away),
    (f.leave_an_unfinished_object, move_away),
    (f.leave_files_to_delete, told()),
    (f.kill_an_offload, told()),
    (f.let_a_transaction_hang, told(1)),
    (f.forget_a_transaction, told(0, "orders")),
    (f.fence_without_aborting, told()),
    (f.keep_what_retention_would_trim, receive),
    (f.keep_what_retention_would_trim, told(0)),
    (f.keep_what_retention_would_trim, told(1, "--yes")),
    (f.stand_behind_the_end, told()),
    (f.leave_a_consumer, receive),
    (f.hand_out_to_nobody, told()),
    (RETENTION, told(0, "--offload-after-age", "30m")),
    (RETENTION, told(0, "--retention-age", "7d")),
    (LAG, lambda root, one: run(root, "txnlog topics set-policies events --offload-after-age 1d")),
    (TARGET, lambda root, one: run(root, "txnlog topics set-policies events --offload-after-age 1d")),
    (f.lag_of_what_is_read, lambda root, one: run(root, "txnlog topics set-data-read-priority events tiered-first")),
    (f.acknowledge_more_than_there_are, told()),
    (f.misspell_a_setting, configuration),
    (f.spoil_a_total, log_from_the_backup),
    (f.refer_to_nothing, log_from_the_backup),
    (f.spoil_the_file, log_from_the_backup),
    (f.lose_the_database, log_from_the_backup),
    (f.spoil_the_marker, marker),
    (f.open_by_an_older_release, mended_by_the_doctor),
    (f.open_by_an_older_release, lambda root, one: run(root, "txnlog topics roll orders")),
    (f.open_by_a_newer_release, log_from_the_backup),
]


@pytest.mark.long
@pytest.mark.parametrize(("fault", "remedy"), CASES)
def test_what_the_doctor_says_mends_the_log(whole: Path, tmp_path: Path, fault: f.Fault, remedy: Remedy) -> None:
    """Make a fault, do what its finding says, and look once more."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    root = tmp_path / "log"
    fault(root)
    report = look(root)
    assert report.findings
    for one in report.findings:
        remedy(root, one)
    after = look(root)
    assert set(codes(after)).isdisjoint(codes(report)), after.findings
    assert [one.code for one in after.findings if one.is_open] == []


TOGETHER: dict[str, tuple[f.Fault, Remedy]] = {
    "file-strange": (f.put_a_strange_file, move_away),
    "segment-unreferenced": (f.leave_an_unregistered_segment, told()),
    "doomed-old": (f.leave_files_to_delete, told()),
    "offload-stuck": (f.kill_an_offload, told()),
    "segment-damaged": (f.flip_in_a_segment, file_from_the_backup),
    "transaction-hangs": (f.let_a_transaction_hang, told(1)),
    "deliveries-orphaned": (f.hand_out_to_nobody, told()),
    "policy-trims-first": (RETENTION, told(0, "--retention-age", "7d")),
    "policy-copies": (f.acknowledge_more_than_there_are, told()),
    "configuration-damaged": (f.misspell_a_setting, configuration),
    "marker-damaged": (f.spoil_the_marker, marker),
}


def test_log_with_many_faults_is_mended_by_what_the_doctor_says(whole: Path, tmp_path: Path) -> None:
    """Make many faults, and do what each finding says: those first that keep a log from being opened."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    root = tmp_path / "log"
    for fault, _ in TOGETHER.values():
        fault(root)
    report = look(root)
    assert set(codes(report)) == TOGETHER.keys(), report.findings
    for code, (_, remedy) in reversed(TOGETHER.items()):
        for one in report.findings:
            if one.code == code:
                remedy(root, one)
    assert look(root).findings == ()


# Copies in several roots


@pytest.mark.long
@pytest.mark.parametrize("damage", ["gone", "short", "flipped"])
@pytest.mark.parametrize("name", ["main", "b"])
def test_damaged_copy_is_mended_as_the_doctor_says(log: Log, roots: Roots, name: str, damage: str) -> None:
    """Damage one of three copies, and give the command that is told."""
    send_each(log.producer("t", batching=BY_HAND), [b"%d" % n for n in range(6)])
    spoil(roots.segments(name)[2], damage)
    [one] = look(roots.main).findings
    told()(roots.main, one)
    assert look(roots.main).findings == ()


@pytest.mark.long
def test_lost_root_is_made_anew_as_the_doctor_says(log: Log, roots: Roots) -> None:
    """Lose the disk of a root, and give the two commands that are told."""
    send_each(log.producer("t", batching=BY_HAND), [b"1"])
    shutil.rmtree(roots.b)
    [one] = look(roots.main).findings
    told(0)(roots.main, one)
    told(1)(roots.main, one)
    assert look(roots.main).findings == ()


def test_root_of_another_log_is_removed_as_the_doctor_says(log: Log, roots: Roots) -> None:
    """Have another log's marker in a root: no policy names it any more, what it had is given up, and it is removed."""
    send_each(log.producer("t", batching=BY_HAND), [b"1"])
    (roots.b / "txnlog-copies.json").write_text('{"log_id": "another", "name": "b"}')
    [one] = look(roots.main).findings
    assert one.code == "root-of-another-log"
    log.set_policies("t", hot_copies="main,c")
    with pytest.raises(AssertionError, match="gave up surplus copies of 1 segment"):  # it says that b is another log's
        told(0)(roots.main, one)
    told(1)(roots.main, one)
    assert look(roots.main).findings == ()
