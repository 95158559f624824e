"""The code blocks of README and of the pages in ``docs``: finding them, and running each as its reader would.

A block of Python, shell or SQL is run unless the line before it says why it can't be: ``<!-- not run: reason -->``.
Then Python is only compiled, and the ``txnlog`` commands in a shell's block are only parsed. What a block needs and a
reader doesn't want to see stands before it in ``<!-- setup ... -->``, and what must hold then behind it in
``<!-- check ... -->``; both know the ``Runner`` as ``page``. ``txnlog serve`` is run as a process that serves until the
page ends, on free ports in place of those that it names. A page with ``<!-- fresh -->`` begins without the log and the
session that others find.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
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
_PORTS = {"--port": "6650", "--metrics-port": None}
"""Options of ``serve`` that name ports, and what they are if they aren't given."""


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


class Runner(ExitStack):
    """Runs the blocks of one page, in one namespace, in a folder that takes the place of ``/tmp``.

    ``stands_for``: texts of the page, and what takes their place when it is run. What is entered ends with the page.
    """

    def __init__(self, page: Path, folder: Path, spark: SparkSession, names: dict[str, Any]) -> None:
        super().__init__()
        self._page, self.folder, self._spark, self.names = page, folder, spark, names
        self.environment = os.environ | {"TXNLOG_ROOT": str(folder / "bank")}
        self.stands_for: dict[str, str] = {}
        names["page"] = self
        self.catalog = re.sub(r"\W", "_", page.stem) + "_bank"
        spark.conf.set(f"spark.sql.catalog.{self.catalog}", "io.txnlog.spark.TxnLogCatalog")
        spark.conf.set(f"spark.sql.catalog.{self.catalog}.path", str(folder / "bank"))

    def run(self, block: Block) -> None:
        """Run a block, or look at it if it can't be run."""
        code = block.code
        if block.language not in ("json", "text", ""):
            code = re.sub(r"/tmp/(?=\w)", f"{self.folder}/", code)
            for text, meant in self.stands_for.items():
                code = code.replace(text, meant)
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
            self.environment |= {name: value for name, _, value in variables}
            if "TXNLOG_ENDPOINT" in self.environment:
                self.environment.pop("TXNLOG_ROOT", None)
        elif words[:2] == ["txnlog", "serve"] and not parse_only:
            self.serve(*words[1:])
        elif words[:2] == ["curl", "-s"] and not parse_only:
            with urllib.request.urlopen(words[2], timeout=TIMEOUT_S) as answer:
                assert answer.status == 200, self._page.name
        elif words[:1] == ["txnlog"]:
            arguments = [word for word in words[1:] if word not in ("&",)]
            if parse_only:
                parse(arguments)
                return
            given = self._bash(feeding) if feeding else ""
            ran = CliRunner(env=self.environment).invoke(app, arguments, input=given)
            assert ran.exit_code == 0, f"{self._page.name}: {last}\n{ran.output}"
        elif words and not parse_only:
            self._bash(command)

    def serve(self, *words: str) -> None:
        """Start ``txnlog serve``, and return when it does; from now on its ports are those that the page names."""
        named = {option: words[words.index(option) + 1] for option in _PORTS if option in words}
        named = {option: port for option, port in (_PORTS | named).items() if port is not None}
        rest = [word for at, word in enumerate(words) if word not in named and (not at or words[at - 1] not in named)]
        ports = [word for option in named for word in (option, "0")]
        process = subprocess.Popen(
            [sys.executable, "-m", "txn_source.cli", *rest, *ports], env=self.environment, cwd=self.folder,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.callback(process.communicate, timeout=TIMEOUT_S)
        self.callback(process.terminate)
        assert process.stderr is not None
        for port in named.values():
            line = process.stderr.readline()
            found = re.search(r" (?:serving|metrics) on \S+?:(\d+)\b", line)
            assert found, f"{self._page.name}: {line}{process.stderr.read()}"
            self.stands_for[f":{port}"] = f":{found[1]}"

    def _bash(self, command: str) -> str:
        ran = subprocess.run(
            ["bash", "-ec", command], env=self.environment, cwd=self.folder, capture_output=True, text=True,
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
