"""The code blocks of README and of the pages in ``docs``: finding them, and running each as its reader would.

A block of Python, shell or SQL is run unless the line before it says why it can't be: ``<!-- not run: reason -->``.
Then Python is only compiled, and the ``txnlog`` commands in a shell's block are only parsed. What a block needs and a
reader doesn't want to see stands before it in ``<!-- setup ... -->``, and what must hold then behind it in
``<!-- check ... -->``. A page with ``<!-- fresh -->`` begins without the log and the session that others find.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from txn_source.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = ("python", "sh", "bash", "sql", "json", "text", "ini", "properties", "")
_PART = re.compile(
    r"^<!-- (?:setup|check)\n(?P<setup>.*?)^-->$"
    r"|^ *(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?(?P<indent> *)```(?P<language>[^\n]*)\n"
    r"(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
TIMEOUT_S = 120


@dataclass(frozen=True)
class Block:
    """A block of a page; ``line`` is that of its first line of code, ``reason`` why it isn't run."""

    line: int
    language: str
    code: str
    reason: str | None


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a page in their order; a setup is a block of Python."""
    for found in _PART.finditer(text):
        setup = found["setup"]
        group = "setup" if setup is not None else "code"
        line = text.count("\n", 0, found.start(group)) + 1
        indent = found["indent"] or ""
        code = "\n".join(each.removeprefix(indent) for each in found[group].splitlines()) + "\n"
        yield Block(line, "python" if setup is not None else found["language"].strip(), code, found["reason"])


class Runner:
    """Runs the blocks of one page, in one namespace, in a folder that takes the place of ``/tmp``."""

    def __init__(self, page: Path, folder: Path, spark: SparkSession, names: dict[str, Any]) -> None:
        self._page, self._folder, self._spark, self.names = page, folder, spark, names
        self._environment = os.environ | {"TXNLOG_ROOT": str(folder / "bank")}
        self.catalog = re.sub(r"\W", "_", page.stem) + "_bank"
        spark.conf.set(f"spark.sql.catalog.{self.catalog}", "io.txnlog.spark.TxnLogCatalog")
        spark.conf.set(f"spark.sql.catalog.{self.catalog}.path", str(folder / "bank"))

    def run(self, block: Block) -> None:
        """Run a block, or look at it if it can't be run."""
        code = block.code
        if block.language not in ("json", "text", ""):
            code = re.sub(r"/tmp/(?=\w)", f"{self._folder}/", code)
            code = re.sub(r"\bbank(?=[.=]\w*\b|=)(?<!/bank)", self.catalog, code)
        match block.language:
            case "python":
                # Lines are those of the page, for tracebacks.
                compiled = compile("\n" * (block.line - 1) + code, str(self._page), "exec")
                if block.reason is None:
                    exec(compiled, self.names)
            case "sh" | "bash":
                for command in _commands(code):
                    self._shell(command, parse_only=block.reason is not None)
            case "sql" if block.reason is None:
                for statement in filter(str.strip, code.split(";\n")):
                    self._spark.sql(statement.rstrip().removesuffix(";")).collect()
            case "json":
                json.loads(code)

    def _shell(self, command: str, *, parse_only: bool) -> None:
        """Run a command: ``txnlog`` in this process, which is many times faster than in one of its own."""
        feeding, _, last = command.rpartition(" | ")
        words = shlex.split(last, comments=True)
        if words[:1] == ["export"]:
            variables = [word.partition("=") for word in words[1:]]
            self._environment |= {name: value for name, _, value in variables}
        elif words[:1] == ["txnlog"]:
            arguments = [word for word in words[1:] if word not in ("&",)]
            if parse_only:
                parse(arguments)
                return
            given = self._bash(feeding) if feeding else ""
            ran = CliRunner(env=self._environment).invoke(app, arguments, input=given)
            assert ran.exit_code == 0, f"{self._page.name}: {last}\n{ran.output}"
        elif words and not parse_only:
            self._bash(command)

    def _bash(self, command: str) -> str:
        ran = subprocess.run(
            ["bash", "-ec", command], env=self._environment, cwd=self._folder, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, f"{self._page.name}: {command}\n{ran.stderr}"
        return ran.stdout


def _commands(code: str) -> list[str]:
    return [line for line in code.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]


def parse(arguments: list[str]) -> None:
    """Parse the arguments of ``txnlog`` without running the command; raise what is wrong with them."""
    command: Any = typer.main.get_command(app)
    context: Any = None
    rest = arguments
    while True:
        context = command.make_context(command.name or "txnlog", list(rest), parent=context, resilient_parsing=False)
        rest = [*getattr(context, "_protected_args", []), *context.args]
        if not getattr(command, "commands", None) or not rest:
            return
        _, command, rest = command.resolve_command(context, rest)
