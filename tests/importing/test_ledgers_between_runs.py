"""Ledgers that come late, or are trimmed, between two runs of an import: nothing is left out silently."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import txn_source
from tests.foreign.pulsar.offload_writer import Frame, Sent, marker, single, write_ledger
from tests.foreign.pulsar.test_stream_traces import offload, trim
from txn_source.importing import import_topics
from txn_source.importing.target_topics import Progress
from txn_source.model.errors import DataLossError
from txn_source.model.position import Position
from txn_source.model.topic_name import TopicName


def values(log: txn_source.Log) -> list[bytes]:
    return log.scan("orders", columns=["value"]).read_all().column(0).to_pylist()


def test_ledger_that_comes_late_is_told(tmp_path: Path) -> None:
    """A ledger below what was imported can't be put in its place any more; the import says so, each time."""
    source = tmp_path / "source"
    source.mkdir()
    with txn_source.connect(tmp_path / "log") as log:
        for ledger in (3, 9):
            offload(source, ledger, b"%d" % ledger)
            import_topics(f"pulsar:{source}", "orders", log)
        offload(source, 6, b"6")
        for _ in range(2):
            with pytest.raises(DataLossError, match=r"has ledger 6 now, which came when its import had come to 9:1"):
                import_topics(f"pulsar:{source}", "orders", log)
        assert values(log) == [b"3", b"9"]


def test_what_was_imported_may_be_trimmed(tmp_path: Path) -> None:
    """Where the broker's numbers tell that nothing lies between, the import goes on; else something was lost."""
    source = tmp_path / "source"
    source.mkdir()
    with txn_source.connect(tmp_path / "log") as log:
        first = offload(source, 3, b"a", index=70)
        import_topics(f"pulsar:{source}", "orders", log)
        trim(first)
        second = offload(source, 8, b"b", index=71)
        assert import_topics(f"pulsar:{source}", "orders", log).messages == 1
        assert import_topics(f"pulsar:{source}", "orders", log).messages == 0
        trim(second)
        offload(source, 12, b"d", index=73)
        with pytest.raises(DataLossError, match=r"begins at 12:0, and its import had come to 8:1"):
            import_topics(f"pulsar:{source}", "orders", log)
        assert values(log) == [b"a", b"b"]


def test_progress_of_an_older_release(tmp_path: Path) -> None:
    """One that notes positions only is taken, and older releases pass over what is noted besides."""
    source = tmp_path / "source"
    source.mkdir()
    with txn_source.connect(tmp_path / "log") as log:
        write_ledger(source, 3, [single(Sent(b"t"), Frame(txn=(0, 1))), marker((0, 1), commit=True)])
        import_topics(f"pulsar:{source}", "orders", log)
        name = TopicName.parse("orders")
        told = json.loads(log.metadata.get_import(name))
        assert told["version"] == 1
        assert told.pop("traces") == {"0": {"ledgers": [3], "complete": True, "end": "log"}}
        assert set(told) == {"version", "of", "at", "open", "with"}
        older = Progress.parse(json.dumps(told), "orders")
        assert (older.positions, older.traces) == ({0: Position(3, 2).key}, {})
