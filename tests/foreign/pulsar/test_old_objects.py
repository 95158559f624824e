"""Ledgers that old brokers wrote, whose metadata doesn't name their topic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.foreign.pulsar.offload_writer import ledger_metadata, map_index, sequence_file, write_ledger
from tests.foreign.pulsar.sample_cases import UNCOMMITTED, log_of, only_topic, rows_of, whole
from tests.foreign.pulsar.test_objects import _A, _B, TOPIC, entries_of, info, values
from txn_source.model.errors import InvalidArgumentError, LogNotFoundError, SegmentUnreadableError


def test_list_names_the_topic(tmp_path: Path) -> None:
    """Ledgers without a name are those of the topic whose list has them, with the same uuid."""
    write_ledger(tmp_path, 3, entries_of(b"a"), managed_ledger="", name=_A)
    write_ledger(tmp_path, 3, entries_of(b"x"), managed_ledger="", name=_B)
    write_ledger(tmp_path, 4, entries_of(b"y"), managed_ledger="", name=_A)
    with pytest.raises(LogNotFoundError, match=r"don't say whose they are.*\(option managedLedgers\)"):
        log_of(tmp_path).partitions()
    assert values(tmp_path, ledgers=info((3, 1, _A))) == [b"a"]
    write_ledger(tmp_path, 5, entries_of(b"b"), name=_A)
    assert values(tmp_path, ledgers=info((3, 1, _A), (5, 1, _A))) == [b"a", b"b"]


def test_ledgers_without_a_name_are_not_passed_over(tmp_path: Path) -> None:
    """A topic without a list is refused where a ledger may be one of its: else that would be lost silently."""
    write_ledger(tmp_path, 3, entries_of(b"a"), managed_ledger="", name=_A)
    write_ledger(tmp_path, 5, entries_of(b"b"))
    with pytest.raises(InvalidArgumentError, match=f"ledger-3 doesn't say whose ledger it has.*{TOPIC}"):
        values(tmp_path)


@pytest.mark.parametrize(
    ("folder", "topic"),
    [
        ("public/default/persistent/a%2Fb+c", "persistent://public/default/a/b c"),
        ("x/y/shop/eu/persistent/t", "persistent://shop/eu/t"),
    ],
)
def test_folder_of_a_map_file_names_the_topic(folder: str, topic: str, tmp_path: Path) -> None:
    """A MapFile lies in its managed ledger's folder."""
    entries = entries_of(b"a", b"b")
    data = tmp_path / folder / f"4-{_A}" / "data"
    data.parent.mkdir(parents=True)
    data.write_bytes(sequence_file([(-1, ledger_metadata("", entries)), *enumerate(entries)]))
    data.with_name("index").write_bytes(map_index(closed=True))
    partition = only_topic(tmp_path)
    assert partition.topic == topic
    assert [row["value"] for row in rows_of(partition, whole(partition), UNCOMMITTED, ("value",))] == [b"a", b"b"]
    data.parent.rename(tmp_path / data.parent.name)
    with pytest.raises(SegmentUnreadableError, match="belongs to None"):
        log_of(tmp_path).partitions()


def test_list_is_json_of_one_topic(tmp_path: Path) -> None:
    """A list without a topic's name tells nothing of ledgers without one."""
    write_ledger(tmp_path, 3, entries_of(b"a"), managed_ledger="", name=_A)
    with pytest.raises(LogNotFoundError, match="by the topics' full names"):
        log_of(tmp_path, ledgers={"": json.loads(info((3, 1, _A))[TOPIC])}).partitions()
