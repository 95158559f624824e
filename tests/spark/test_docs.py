"""Documents keep their word: every code block of README and of each page runs as it is written there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import txn_source
from tests.doc_blocks import LANGUAGES, PAGES, ROOT, Runner, blocks, parse, without_figures

README = ROOT / "README.md"
QUICKSTART = ROOT / "docs" / "quickstart.md"
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
QUICK = (
    *("quickstart", "spark-batch", "writing", "kafka", "tiers"),
    *("backup", "upgrade", "cluster", "sizing"),
)
"""The pages that are run each time; the others are parsed each time, and run in long runs."""


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log that pages go on with: what the quickstart has written, all of it decided."""
    root = tmp_path_factory.mktemp("docs") / "bank"
    with txn_source.connect(root) as log:
        log.create_topic("orders", partitions=2)
        with log.producer("orders") as producer:
            producer.send(b"plain message", key="alice")
            with log.begin_transaction() as txn:
                producer.send(b"debit 10", key="alice", txn=txn)
                producer.send(b"credit 10", key="bob", txn=txn)
            txn = log.begin_transaction()
            producer.send(b"mistake", key="alice", txn=txn)
            producer.flush()
            txn.abort()
    return root


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, without the tables that a page makes in its own catalog."""
    yield spark
    for table in spark.catalog.listTables():
        spark.sql(f"DROP TABLE IF EXISTS {table.name}")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[] if page.stem in QUICK else pytest.mark.long)
        for page in PAGES
        if "```" in TEXTS[page] and page != README
    ],
)
def test_blocks_run_as_written(
    page: Path, session: SparkSession, bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a page's blocks one after the other, in one namespace."""
    for name in ("TXNLOG_ROOT", "TXNLOG_ENDPOINT", "TXNLOG_METADATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    names = {}
    if "<!-- fresh -->" not in TEXTS[page]:
        shutil.copytree(bank, tmp_path / "bank")
        names = {"txn_source": txn_source, "pa": pa, "spark": session, "log": txn_source.connect(tmp_path / "bank")}
    opened = [names.get("log")]
    with Runner(page, tmp_path, session, names) as runner:
        for block in blocks(TEXTS[page]):
            runner.run(block)
        opened.append(names.get("log"))
        for log in opened:
            if isinstance(log, txn_source.Log):
                log.close()
    if os.environ.get("TXNLOG_WRITE_SAMPLES"):
        text = TEXTS[page]
        for shown, printed in runner.samples:
            assert text.count(f"```text\n{shown}```") == 1, shown
            text = text.replace(f"```text\n{shown}```", f"```text\n{printed}```")
        page.write_text(text, encoding="utf-8")
        return
    for shown, printed in runner.samples:
        assert without_figures(shown) == without_figures(printed), f"{page.name}: `make samples` writes it anew"


def test_blocks_of_all_pages_can_be_parsed(session: SparkSession, tmp_path: Path) -> None:
    """Compile all Python and JSON, and parse the arguments of all commands."""
    for page in PAGES:
        with Runner(page, tmp_path, session, {}) as runner:
            for block in blocks(TEXTS[page]):
                runner.run(replace(block, reason="it is parsed only"))


def test_what_differs_between_runs_is_left_out() -> None:
    """A random id is left out whatever it begins and ends with; the words around figures stay."""
    for key in ("vozMsjPJR8c-AykNVWX7xYG65q5nTym2fI05HGfubSs", "--" + "_a" * 20 + "-", "_" + "9-" * 21):
        assert without_figures(f"key id: {key}\ntaken: True") == ["key", "id:", "#", "taken:", "True"]
    names = [
        without_figures(f"segments/1/0/1-3-{end}.arrow") for end in ("bd5fdcf3bb9a", "000000000000", "eeeeeeeeeeee")
    ]
    assert names[0] == names[1] == names[2] == ["segments/#/#/##.arrow"]
    assert without_figures("read 12.5 KiB in 1m 3s at 2026-11-23T07:50:37+00:00") == ["read", "#", "in", "#", "at", "#"]


def test_readme_has_blocks_of_the_quickstart() -> None:
    """What README shows is on the quickstart page, in the same order, and is run there."""
    run = [block.code for block in blocks(TEXTS[README]) if block.reason is None]
    assert len(run) >= 4
    shown = [block.code for block in blocks(TEXTS[QUICKSTART])]
    assert [code for code in shown if code in run] == run


def test_slow_reader_can_go_on(tmp_path: Path) -> None:
    """Let the open transaction of the first block time out before the block about it is run: it runs all the same."""
    python = [block.code for block in blocks(TEXTS[QUICKSTART]) if block.language == "python"]
    names: dict[str, Any] = {}
    exec(python[0].replace("/tmp/bank", str(tmp_path / "bank")), names)
    with names["log"] as log:
        assert log.transactions()
        for txn in log.transactions():
            log.abort_transaction(txn.id)
        about_it = next(code for code in python if "log.transactions()" in code)
        exec(about_it, names)


def test_every_block_has_a_language_that_is_looked_at() -> None:
    """A block in a language that nobody runs would be a gap; so would a fence that isn't found."""
    for page, text in TEXTS.items():
        found = list(blocks(text))
        assert {block.language for block in found} <= set(LANGUAGES), page
        fences = sum(line.strip().startswith("```") for line in text.splitlines())
        setups = text.count("<!-- setup\n") + text.count("<!-- check\n")
        assert 2 * (len(found) - setups) == fences, f"{page}: a fence without its end, or a mark that is misspelt"
        assert text.count("<!-- not run") == sum(block.reason is not None for block in found), page
        assert text.count("<!-- printed -->") == sum(block.printed for block in found), page


def test_commands_are_parsed() -> None:
    """What isn't run is parsed: an option that there isn't is found, in a command of a group, too."""
    parse(["serve", "--root", "/srv/log", "--port", "6650"])
    parse(["topics", "list"])
    for wrong in (["serve", "--rooot", "x"], ["topics", "lst"], ["transactions", "abort"]):
        with pytest.raises(Exception, match=r"No such|Missing"):
            parse(wrong)
