"""Copies that fail, in every way and at any moment: the other one gives the right rows, or one error names them all."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.log import tiers
from tests.log.reading import COMMITTED, UNCOMMITTED, told_by, values
from tests.log.sites import Site
from tests.log.tiers import Damage, everything
from tests.selection import mostly_long
from txn_source import InvalidArgumentError, Log, ReadPriority, SegmentUnreadableError, connect
from txn_source.client.reading import batch_assembly, segment_entries
from txn_source.metadata.store import copies, pages, sealing
from txn_source.model.copies import CopiesRead, Tier
from txn_source.storage import tiered

pytestmark = pytest.mark.also("objects", "copies")

LEVELS = (COMMITTED, UNCOMMITTED)
PRIORITY = {Tier.TIERED: ReadPriority.TIERED_FIRST, Tier.BOOKKEEPER: ReadPriority.BOOKKEEPER_FIRST}
OTHER = {Tier.TIERED: Tier.BOOKKEEPER, Tier.BOOKKEEPER: Tier.TIERED}

OBJECT_DAMAGE: list[tuple[Damage, str]] = [
    (tiers.remove, "it is missing"),
    (tiers.cut_in_half, "it has [0-9]+ bytes where [0-9]+ were written"),
    (tiers.cut_last_byte, "it has [0-9]+ bytes where [0-9]+ were written"),
    (tiers.overwrite, "its footer has checksum"),
    (tiers.replace_by_sibling, "bytes where|its footer has checksum"),
    (tiers.replace_by_folder, "[Dd]irectory|not a regular file"),
    (tiers.flip_in_footer, "its footer has checksum"),
    (tiers.flip_in_row_group(0), "have checksum"),
    (tiers.flip_in_row_group(2), "have checksum"),
]
SEGMENT_DAMAGE: list[tuple[Damage, str]] = [
    (tiers.remove, "it can't be opened"),
    (tiers.cut_in_half, "it is truncated"),
    (tiers.cut_last_byte, "it is truncated"),
    (tiers.overwrite, "its header is damaged"),
    (tiers.replace_by_sibling, "has checksum|it is truncated"),
    (tiers.replace_by_folder, "it can't be opened|can't be read|its header is damaged"),
    (tiers.flip_in_middle, "has checksum [0-9a-f]{8} where [0-9a-f]{8} was written"),
]
CASES = [(Tier.TIERED, *case) for case in OBJECT_DAMAGE] + [(Tier.BOOKKEEPER, *case) for case in SEGMENT_DAMAGE]
IDS = [f"{tier}-{damage.__name__}-{number}" for number, (tier, damage, _) in enumerate(CASES)]


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make row groups, reads of segments and batches a few rows each, so that copies fail after some were read."""
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 5)
    monkeypatch.setattr(segment_entries, "_GROUP_BYTES", 1000)
    monkeypatch.setattr(batch_assembly, "TARGET_ROWS", 4)


class Filled:
    """A topic with three offloaded ledgers, and what was read of it before."""

    def __init__(self, log: Log, expected: dict[str, pa.Table]) -> None:
        self.log = log
        self.root = log.root
        self.expected = expected
        self.ledgers = tiers.closed_ledgers(log, "orders")

    def damage(self, damage: Damage, tier: Tier, number: int) -> None:
        damage(tiers.copy_of(self.root, self.ledgers[number], tier))

    def scan(self, level: str, tier: Tier) -> pa.RecordBatchReader:
        """Begin to read all columns, with the tier's copies first."""
        names = self.expected[level].schema.names
        return self.log.scan("orders", level, names, read_priority=PRIORITY[tier])


def fill(log: Log) -> dict[str, pa.Table]:
    log.create_topic("orders")
    tiers.write_ledgers(log)
    expected = {level: everything(log, "orders", level) for level in LEVELS}
    assert len(log.offload("orders").ledger_ids) == 3
    return expected


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, pa.Table]]:
    """The root of such a log, which each test gets a copy of."""
    root = tmp_path_factory.mktemp("template") / "log"
    with pytest.MonkeyPatch.context() as patch, connect(root) as log:
        patch.setattr(tiered, "ROW_GROUP_ROWS", 5)
        return root, fill(log)


@pytest.fixture
def filled(template: tuple[Path, dict[str, pa.Table]], tmp_path: Path) -> Iterator[Filled]:
    """An embedded log with ``Filled``."""
    root, expected = template
    with connect(shutil.copytree(root, tmp_path / "log")) as log:
        yield Filled(log, expected)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return told_by("client.reading", caplog)


# One copy fails


@pytest.mark.parametrize(
    ("tier", "damage", "reason"),
    [
        pytest.param(*case, id=name, marks=pytest.mark.long if number % 3 else ())
        for number, (case, name) in enumerate(zip(CASES, IDS, strict=True))
    ],
)
def test_failed_copy_is_left_for_the_other(
    filled: Filled, caplog: pytest.LogCaptureFixture, tier: Tier, damage: Damage, reason: str
) -> None:
    """Damage the preferred copy of the second of three ledgers: the rows are the same, and log and report name it."""
    filled.damage(damage, tier, 1)
    for level in LEVELS:
        caplog.clear()
        reader = filled.scan(level, tier)
        assert reader.read_all() == filled.expected[level]
        report = filled.log.copies_read(reader)
        [failure] = report.failures
        assert (failure.topic, failure.partition, failure.tier) == ("orders", 0, tier)
        assert failure.ledger_id == failure.position.ledger_id == filled.ledgers[1]
        assert re.search(reason, failure.reason), failure.reason
        assert filled.ledgers[1] in report.ledgers[OTHER[tier]]
        assert {filled.ledgers[0], filled.ledgers[2]} <= report.ledgers[tier]
        [warning] = warnings(caplog)
        assert f"the {tier} copy of ledger {filled.ledgers[1]} failed at {failure.position}" in warning
        assert f"going on with the {OTHER[tier]} copy: {failure.reason}" in warning


@pytest.mark.parametrize(
    ("tier", "damage"),
    [
        (Tier.TIERED, tiers.flip_in_row_group(2)),
        (Tier.TIERED, tiers.in_second_file(tiers.flip_in_row_group(1))),
        (Tier.BOOKKEEPER, tiers.flip_near_end),
        (Tier.BOOKKEEPER, tiers.cut_last_byte),
    ],
)
@pytest.mark.parametrize("handed_out", mostly_long([0, 3], 3))
def test_copy_that_fails_in_the_middle_is_left_where_it_failed(
    filled: Filled, tier: Tier, damage: Damage, handed_out: int
) -> None:
    """Damage a ledger far behind its first entries, some of which were handed out before: nothing comes twice."""
    reader = filled.scan(UNCOMMITTED, tier)
    batches = [reader.read_next_batch() for _ in range(handed_out)]
    filled.damage(damage, tier, 0)
    rest = reader.read_all()
    assert pa.Table.from_batches([*batches, *rest.to_batches()]) == filled.expected[UNCOMMITTED]
    report = filled.log.copies_read(reader)
    [failure] = report.failures
    assert failure.ledger_id == filled.ledgers[0]
    assert failure.position.entry_id > 3
    assert filled.ledgers[0] in report.ledgers[Tier.TIERED] & report.ledgers[Tier.BOOKKEEPER]


def test_failure_behind_the_last_page_of_a_ledger_is_the_next_ledgers(
    embedded_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read hot ledgers whose entries are sealed pages: one that fails at its start blames no other."""
    monkeypatch.setattr(sealing, "_SEAL_FROM_ROWS", 1)
    log = embedded_site.connect()
    filled = Filled(log, fill(log))
    filled.damage(tiers.remove, Tier.TIERED, 0)
    filled.damage(tiers.remove, Tier.BOOKKEEPER, 1)
    for level in LEVELS:
        reader = filled.scan(level, Tier.BOOKKEEPER)
        assert reader.read_all() == filled.expected[level]
        [failure] = filled.log.copies_read(reader).failures
        assert failure.ledger_id == filled.ledgers[1]


# All copies fail


@pytest.mark.parametrize("tier", list(Tier))
def test_error_lists_every_copy_and_its_reason(filled: Filled, tier: Tier) -> None:
    """Damage both copies of one ledger: its neighbours are read, then one error names both copies with reasons."""
    filled.damage(tiers.remove, Tier.TIERED, 1)
    filled.damage(tiers.flip_in_middle, Tier.BOOKKEEPER, 1)
    reader = filled.scan(UNCOMMITTED, tier)
    with pytest.raises(SegmentUnreadableError) as caught:
        reader.read_all()
    text = str(caught.value)
    assert text.startswith(f"[TXNLOG_SEGMENT_UNREADABLE] Ledger {filled.ledgers[1]} of topic 'orders', partition 0, ")
    assert re.search(r"tiered: Object tiered/.*\.parquet is unreadable: it is missing\.", text)
    assert re.search(r"bookkeeper: Segment .*\.arrow is unreadable: entry [0-9]+:[0-9]+ has checksum", text)
    assert [f.tier for f in filled.log.copies_read(reader).failures] == [tier, OTHER[tier]]
    start, end = (f"{filled.ledgers[number]}:0" for number in (1, 2))
    expected = filled.expected[UNCOMMITTED]["value"].to_pylist()
    assert expected[: len(found := values(filled.log, "orders", UNCOMMITTED, end=start))] == found
    assert expected[-len(found := values(filled.log, "orders", UNCOMMITTED, start=end)) :] == found


@pytest.mark.parametrize("gone", list(Tier))
def test_error_of_the_only_copy_is_its_own(filled: Filled, gone: Tier) -> None:
    """Delete one tier by the log's own means and damage the other one: the error speaks of that file alone."""
    if gone is Tier.TIERED:
        assert filled.log.delete_offloaded("orders") == 3
    else:
        assert filled.log.delete_hot("orders") == 3
    filled.damage(tiers.cut_in_half, OTHER[gone], 2)
    with pytest.raises(SegmentUnreadableError, match=r"bytes where|truncated") as caught:
        filled.scan(COMMITTED, gone).read_all()
    assert str(gone) + ":" not in str(caught.value)


# Copies are deleted under a running read


def read_while(filled: Filled, tier: Tier, level: str, happens: Callable[[], object]) -> CopiesRead:
    """Let something happen while a read stands in the middle of the first ledger; check its rows and what it read."""
    reader = filled.scan(level, tier)
    batches = [reader.read_next_batch() for _ in range(3)]
    happens()
    assert pa.Table.from_batches([*batches, *reader.read_all().to_batches()]) == filled.expected[level]
    report = filled.log.copies_read(reader)
    assert filled.ledgers[0] in report.ledgers[tier]
    assert filled.ledgers[2] in report.ledgers[OTHER[tier]]
    return report


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("page_rows", mostly_long([2, 50_000], 2))
def test_hot_copies_can_be_deleted_under_a_read(
    filled: Filled, monkeypatch: pytest.MonkeyPatch, level: str, page_rows: int
) -> None:
    """Delete them in the middle of the first ledger, when the read knows a few entries in advance or all of them."""
    for module in (pages, copies):
        monkeypatch.setattr(module, "PAGE_ROWS", page_rows)
    report = read_while(filled, Tier.BOOKKEEPER, level, lambda: filled.log.delete_hot("orders"))
    assert len(report.failures) == (0 if page_rows == 2 else 1)  # in small steps it asks before it touches a file


@pytest.mark.parametrize("level", LEVELS)
def test_objects_can_be_deleted_under_a_read(filled: Filled, level: str) -> None:
    """Delete them in the middle of the first ledger."""
    report = read_while(filled, Tier.TIERED, level, lambda: filled.log.delete_offloaded("orders"))
    assert tiers.objects(filled.root) == []
    assert {failure.tier for failure in report.failures} == {Tier.TIERED}


def test_ledgers_can_be_offloaded_and_hot_copies_deleted_under_a_read_that_knew_no_object(filled: Filled) -> None:
    """Begin with hot copies alone; then offload and delete them: the read goes on in the objects."""
    filled.log.delete_offloaded("orders")

    def move() -> None:
        filled.log.offload("orders")
        filled.log.delete_hot("orders")

    read_while(filled, Tier.BOOKKEEPER, COMMITTED, move)


def test_copies_of_what_is_no_scan_are_refused(log: Log) -> None:
    """Ask which copies something else has read: a number, and a reader that scan() didn't make."""
    other = pa.RecordBatchReader.from_batches(pa.schema([]), [])
    for wrong in (3, other):
        with pytest.raises(InvalidArgumentError, match="not what scan"):
            log.copies_read(wrong)
