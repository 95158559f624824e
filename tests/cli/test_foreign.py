"""The reading commands over a log that others wrote; the others are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.foreign.kafka import samples as kafka
from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.partition_writer import PartitionWriter
from tests.foreign.pulsar import sample_cases as pulsar


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("foreign")
    case = pulsar.unpack("txn-mix", folder / "pulsar")
    return {"kafka": kafka.unpack("txn", folder) / "log", "pulsar": case.folder / "objects"}


def test_topics_are_listed_and_described(bare: Any, places: dict[str, Path]) -> None:
    """List and describe topics of both formats, for people and for programs."""
    root = "--root", f"kafka:{places['kafka']}"
    assert [line.split()[0] for line in bare(*root, "topics", "list").stdout.splitlines()[2:]] == ["txn", "txn3"]
    listed = json.loads(bare(*root, "topics", "list", "--json").stdout)
    assert [(of["topic"], of["partitions"]) for of in listed] == [("txn", 1), ("txn3", 3)]
    assert "WOgonVTsST6cSWjH7qZHsw" in bare(*root, "topics", "stats", "txn").stdout
    [partition] = json.loads(bare(*root, "topics", "stats", "txn", "--json").stdout)["partitions"]
    assert [partition[bound] for bound in ("log_start", "last_stable", "high_watermark")] == [0, 175, 187]
    root = "--root", f"pulsar:{places['pulsar']}"
    [first, _] = json.loads(bare(*root, "topics", "list", "--json").stdout)
    found = json.loads(bare(*root, "topics", "stats", first["topic"], "--json").stdout)
    assert found["partitions"][0]["last_stable"] == "38:6"


def test_transactions_are_listed(bare: Any, places: dict[str, Path]) -> None:
    """List open transactions, and the first of all aborted ones."""
    root = "--root", f"kafka:{places['kafka']}"
    found = json.loads(bare(*root, "transactions", "list", "--json").stdout)
    assert [(txn["topic"], txn["first"], txn["marker"]) for txn in found] == [("txn3", 96, None), ("txn", 175, None)]
    assert [txn["held_back"] for txn in found][1] == 187 - 175
    assert all(txn["held_back_bytes"] > 0 for txn in found)
    assert "Held back" in bare(*root, "transactions", "list").stdout
    aborted = bare(*root, "transactions", "list", "--state", "aborted", "--limit", "2")
    assert aborted.stdout.count(" aborted ") == 2
    assert "2 are listed, there are " in aborted.stderr


def test_format_is_told_what_it_needs(bare: Any, places: dict[str, Path], tmp_path: Path) -> None:
    """Give options of a format, a wrong one, one that is none, and one for a log of txnlog's own."""
    root = "--root", f"kafka:{places['kafka']}"
    told = bare(*root, "transactions", "list", "--option", "trustTransactionIndexes=false", "--json")
    assert len(json.loads(told.stdout)) == 2
    for option, why in (("trustTransactionIndexes=x", "neither true nor false"), ("x", "is no NAME=VALUE")):
        for command in (("topics", "list"), ("topics", "stats", "txn"), ("consume", "txn")):
            refused = bare(*root, *command, "--option", option)
            assert why in refused.stderr + refused.stdout
    refused = bare("--root", str(tmp_path), "topics", "list", "--option", "a=b")
    assert "for logs that others wrote" in refused.stderr


def test_messages_are_printed(bare: Any, places: dict[str, Path]) -> None:
    """Print values, keys with values, and all that is known as JSON."""
    root = "--root", f"kafka:{places['kafka']}"
    assert bare(*root, "consume", "txn", "--max-messages", "2").stdout == "a1 value 0\na1 value 1\n"
    assert len(bare(*root, "consume", "txn", "--format", "json").stdout.splitlines()) == 78
    some = bare(*root, "consume", "txn", "--start", "166", "--max-messages", "1", "--key-separator", "|")
    assert some.stdout == "fenced-new-committed-k0|fenced-new-committed value 0\n"
    level = "--isolation-level", "read_uncommitted"
    lines = bare(*root, "consume", "txn", *level, "--format", "json", "--end", "3").stdout.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [0, 1, 2]
    root = "--root", f"pulsar:{places['pulsar']}"
    topic = "persistent://lab/txn/txn-mix-a"
    [line] = bare(*root, "consume", topic, "--format", "json", "--max-messages", "1").stdout.splitlines()
    assert json.loads(line)["__properties"] == {}
    within = "--start", "(38,2,-1,1)", "--end", "38:2:-1:2"
    lines = bare(*root, "consume", topic, "--format", "json", *within).stdout.splitlines()
    assert [json.loads(line)["__batch_index"] for line in lines] == [1]


def test_what_writes_is_refused(bare: Any, places: dict[str, Path]) -> None:
    """Call commands that a log that others wrote doesn't have."""
    root = "--root", f"kafka:{places['kafka']}"
    for command in (["topics", "create", "new"], ["topics", "delete", "txn", "--yes"], ["maintain"], ["gc"]):
        refused = bare(*root, *command)
        assert refused.exit_code == 2
        assert "is only read" in refused.stderr
    assert bare(*root, "consume", "nope").exit_code == 1
    assert "logs of txnlog's own" in bare(*root, "consume", "txn", "--subscription", "s").stderr


def test_what_cannot_be_imported_or_served_is_refused_before_a_log_is_made(
    bare: Any, places: dict[str, Path], tmp_path: Path
) -> None:
    """Import a topic that isn't there, or to what others wrote, and serve that: nothing is made."""
    source, target = f"kafka:{places['kafka']}", tmp_path / "log"
    for status, *line in (
        (1, "import", source, "nope", "--to", str(target)),
        (2, "import", source, "txn", "--to", f"kafka:{target}"),
        (2, "serve", "--root", f"kafka:{target}", "--port", "0"),
    ):
        refused = bare(*line)
        assert refused.exit_code == status
        assert "[TXNLOG_" in refused.stderr
    assert not list(tmp_path.iterdir())


def test_lists_show_the_other_topics(bare: Any, tmp_path: Path) -> None:
    """Have a topic of another format: the lists show the others, and why it isn't there."""
    for topic in ("sound", "broken"):
        writer = PartitionWriter(tmp_path, topic)
        writer.send([Record(b"k", b"0")], 1, transactional=True)
        writer.close()
    [path] = (tmp_path / "broken-0").glob("*.log")
    data = path.read_bytes()
    path.write_bytes(data[:16] + b"\3" + data[17:])
    root = "--root", f"kafka:{tmp_path}"
    listed = bare(*root, "topics", "list")
    assert listed.exit_code == 1
    assert [line.split()[0] for line in listed.stdout.splitlines()[2:]] == ["sound", "broken"]
    assert "format 3" in listed.stderr
    rows = json.loads(bare(*root, "topics", "list", "--json").stdout)
    assert [(row["topic"], "error" in row) for row in rows] == [("sound", False), ("broken", True)]
    assert "sound" in bare(*root, "transactions", "list").stdout
