"""What sentences name is there: commands and their options, metrics, error codes, calls of a log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import txn_source
from tests.selection import for_each
from txn_source.cli.app import app
from txn_source.http.metric_list import METRICS
from txn_source.model.errors import ERROR_CLASSES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE"))]
SOURCES = sorted((ROOT / "txn_source").rglob("*.py"))
COMMAND: Any = typer.main.get_command(app)
OF_OTHERS = {"--all-version", "--jars", "--all", "--packages", "--py-files"}
"""Options of other programs that pages name."""
CODES_OF_OTHERS = {
    *("DATA_SOURCE_NOT_FOUND", "JAVA_GATEWAY_EXITED", "JAVA_HOME", "KEY_VALUE", "LOCAL_DATE_TIME", "PYSPARK_PYTHON"),
}
_FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)


def named(page: Path) -> list[str]:
    """Return what stands between backticks in the sentences of a page."""
    return re.findall(r"`([^`\n]+)`", _FENCE.sub("", page.read_text(encoding="utf-8")))


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def all_options(command: Any = COMMAND) -> set[str]:
    below = (all_options(each) for each in getattr(command, "commands", {}).values())
    return options_of(command).union(*below)


def wrong_words(text: str) -> Iterator[str]:
    """Yield the words of a ``txnlog ...`` that name no command, or no option of it."""
    command = COMMAND
    before = ""
    for word in text.split()[1:]:
        option = word.partition("=")[0].rstrip(".,")
        group = getattr(command, "commands", None)
        if word.startswith("-"):
            if option not in options_of(command) | options_of(COMMAND):
                yield word
        elif group and not before.startswith("--") and re.fullmatch(r"[a-z-]+", word):
            if word not in group:
                yield word
            command = group.get(word, command)
        before = word


@for_each("page", PAGES)
def test_names_in_sentences_are_there(page: Path) -> None:
    """Look each of them up where it must be."""
    metrics = {sample for metric in METRICS.values() for sample in metric.exported} | set(METRICS)
    options, wrong = all_options() | OF_OTHERS, []
    for text in named(page):
        if text.startswith("txnlog "):
            wrong += [f"{text}: {word}" for word in wrong_words(text)]
        wrong += [f"{text}: {name}" for name in re.findall(r"(?<!\S)--[a-z][a-z-]+", text) if name not in options]
        wrong += [
            name for name in re.findall(r"\btxnlog_[a-z_]+\b", text) if name not in metrics and not name.endswith("_")
        ]
        if re.fullmatch(r"[A-Z]+(_[A-Z]+)+", text) and not text.startswith(("TXNLOG_", "AWS_", "OTEL_")):
            wrong += [text] if text not in {*ERROR_CLASSES, *CODES_OF_OTHERS} and not text.endswith("_VERSION") else []
        if call := re.match(r"log\.([a-z_]+)", text):
            wrong += [] if hasattr(txn_source.Log, call[1]) or call[1] in ("dirs", "db") else [text]
    assert wrong == []


def test_commands_that_error_texts_name_are_there() -> None:
    """Look at each command between backticks in the code: a remedy that can't be followed is none."""
    found = [text for path in SOURCES for text in re.findall(r"`(txnlog [^`\"\n{]+)", path.read_text(encoding="utf-8"))]
    assert len(found) > 50
    assert {text: wrong for text in found if (wrong := list(wrong_words(text)))} == {}


def test_wrong_names_are_found() -> None:
    """Break the rule: a command that there isn't, one of a group, and an option of another one."""
    for text, word in (
        ("txnlog topic list", "topic"),
        ("txnlog topics lst", "lst"),
        ("txnlog topics list --dry-run", "--dry-run"),
    ):
        assert word in list(wrong_words(text))
    assert list(wrong_words("txnlog --root kafka:/x topics list")) == []
    assert list(wrong_words("txnlog gc --dry-run")) == []
