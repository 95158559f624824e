"""``txnlog roots``, and what docs/copies.md shows of it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import txn_source
from tests.log.reading import values

DOCS = Path(__file__).parents[2] / "docs" / "copies.md"


def test_commands_of_the_docs_work(txnlog: Any, log: txn_source.Log, tmp_path: Path) -> None:
    """Run every command and the Python of docs/copies.md, in their order."""
    log.create_topic("orders", partitions=2)
    with log.producer("orders") as producer:
        producer.send(b"1")
    ran = 0
    for language, block in re.findall(r"```(sh|python)\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL):
        if language == "python":
            exec(block, {"log": log})
            continue
        for line in block.splitlines():
            words = shlex.split(re.sub(r"/tmp/(bank)?", lambda at: str(log.root) if at[1] else f"{tmp_path}/", line))
            result = txnlog(*words[1:])
            assert result.exit_code == 0, (line, result.output)
            ran += 1
    assert ran == 12
    assert [root.name for root in log.roots()] == ["main", "b"]
    assert log.policies("orders")["hot_copies"].value == "main,b"
    assert values(log, "orders") == [b"1"]


def test_roots_are_listed_with_what_they_lack(txnlog: Any, log: txn_source.Log, tmp_path: Path) -> None:
    """Lose a root, and list: as a table, and as JSON; stats say where copies are."""
    assert txnlog("roots", "add", "b", str(tmp_path / "b")).exit_code == 0
    log.create_topic("orders", hot_copies="main,b", acknowledge_copies=1)
    (tmp_path / "b").rename(tmp_path / "away")
    with log.producer("orders") as producer:
        producer.send(b"1")
    listed = txnlog("roots", "list")
    assert "not reachable: its txnlog-copies.json is missing" in " ".join(listed.stdout.split())
    found = {root["name"]: root for root in json.loads(txnlog("roots", "list", "--json").stdout)}
    assert (found["b"]["reachable"], found["b"]["short_entries"], found["main"]["segments"]) == (False, 1, 1)
    assert (
        "Hot copies in main,b (set for the topic), acknowledged with 1." in txnlog("topics", "stats", "orders").stdout
    )
    failed = txnlog("maintain")
    assert failed.exit_code == 1
    (tmp_path / "away").rename(tmp_path / "b")
    assert txnlog("maintain").stdout == "Maintenance: copied 1 segment.\n"
    refused = txnlog("roots", "remove", "b")
    assert refused.exit_code == 2
    assert "hot_copies of topic 'orders' names the root 'b'" in refused.output
