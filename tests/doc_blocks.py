"""The code blocks of README and of the pages in ``docs``: finding them, and running each as its reader would.

A block of Python, shell or SQL is run unless the line before it says why it can't be: ``<!-- not run: reason -->``.
Then Python is only compiled, and the ``txnlog`` commands in a shell's block are only parsed. What a block needs and a
reader doesn't want to see stands before it in ``<!-- setup ... -->``, and what must hold then behind it in
``<!-- check ... -->``; both know the ``Runner`` as ``page``. ``txnlog serve`` and ``txnlog console`` are processes that
serve until the page ends, on free ports in place of those that it names. A page with ``<!-- fresh -->`` begins without
the log and the session that others find.

A block behind ``<!-- printed -->`` is what the last command printed, but for numbers, times and sizes.
``make samples`` writes these blocks anew.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.cli.commands import command_of, kept
from txn_source.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = ("python", "sh", "bash", "sql", "json", "text", "ini", "properties", "")
_PART = re.compile(
    r"^<!-- (?:setup|check)\n(?P<setup>.*?)^-->$"
    r"|^ *(?:<!-- (?:not run: (?P<reason>[^\n]+)|(?P<printed>printed)) -->\n)?(?P<indent> *)```(?P<language>[^\n]*)\n"
    r"(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
TIMEOUT_S = 120
WIDTH = 110
"""How long a line of text is at most that is shown of what a command printed."""
_PORTS: dict[str, dict[str, str | None]] = {
    "serve": {"--port": "6650", "--metrics-port": None, "--console-port": None},
    "console": {"--port": "6651"},
}
"""Commands that serve: their options that name ports, in the order of what they print, and what these are if not given.
"""


@dataclass(frozen=True)
class Block:
    """A block of a page; ``line`` is that of its first line of code, ``reason`` why it isn't run.

    ``printed``: it shows what the last command printed.
    """

    line: int
    language: str
    code: str
    reason: str | None
    printed: bool = False


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a page in their order; a setup is a block of Python."""
    for found in _PART.finditer(text):
        setup = found["setup"]
        group = "setup" if setup is not None else "code"
        line = text.count("\n", 0, found.start(group)) + 1
        indent = found["indent"] or ""
        code = "\n".join(each.removeprefix(indent) for each in found[group].splitlines()) + "\n"
        yield Block(
            line,
            "python" if setup is not None else found["language"].strip(),
            code,
            found["reason"],
            bool(found["printed"]),
        )


class Runner(ExitStack):
    """Runs the blocks of one page, in one namespace, in a folder that takes the place of ``/tmp``.

    ``stands_for``: texts of the page, and what takes their place when it is run. What is entered ends with the page.
    ``printed``: what the last command printed, or a setup says. ``status``: what the next command ends with.
    """

    def __init__(self, page: Path, folder: Path, spark: SparkSession, names: dict[str, Any]) -> None:
        super().__init__()
        self.enter_context(kept())
        self._page, self.folder, self._spark, self.names = page, folder, spark, names
        self.environment = os.environ | {"TXNLOG_ROOT": str(folder / "bank")}
        self.stands_for: dict[str, str] = {}
        self.printed, self.status = "", 0
        self.samples: list[tuple[str, str]] = []
        """What the page shows of what commands print, and what they print."""
        names["page"] = self
        self.catalog = re.sub(r"\W", "_", page.stem) + "_bank"
        spark.conf.set(f"spark.sql.catalog.{self.catalog}", "io.txnlog.spark.TxnLogCatalog")
        spark.conf.set(f"spark.sql.catalog.{self.catalog}.path", str(folder / "bank"))

    def run(self, block: Block) -> None:
        """Run a block, or look at it if it can't be run."""
        code = block.code
        if block.printed:
            self.samples.append((code, self._as_shown(self.printed)))
            return
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
        elif words[:1] == ["txnlog"] and words[1] in _PORTS and not parse_only:
            self.serve(*words[1:])
        elif words[:2] == ["curl", "-s"] and not parse_only:
            self.printed = _answer(words[2])
        elif feeding.startswith("curl -s ") and words[:1] == ["grep"] and not parse_only:
            lines = _answer(feeding.split()[2]).splitlines()
            self.printed = "\n".join(line for line in lines if re.search(words[1], line))
        elif words[:1] == ["txnlog"]:
            arguments = [word for word in words[1:] if word not in ("&",)]
            if parse_only:
                parse(arguments)
                return
            given = self._bash(feeding) if feeding else ""
            ran = CliRunner(env=self.environment).invoke(app, arguments, input=given)
            expected, self.status, self.printed = self.status, 0, ran.output
            assert ran.exit_code == expected, f"{self._page.name}: {last}\n{ran.output}"
        elif words and not parse_only:
            self._bash(command)

    def _as_shown(self, printed: str) -> str:
        """Return what was printed with the page's folders and ports, and without blanks at the ends of lines."""
        stand_for = {shown: meant for shown, meant in self.stands_for.items() if shown.startswith((":", "/"))}
        for shown, meant in (stand_for | {"/tmp/": f"{self.folder}/"}).items():
            printed = re.sub(re.escape(meant) + r"(\S*)", _as_wide(shown, meant), printed)
        lines = [part for line in _narrowed(printed.strip().splitlines()) for part in _wrapped(line.rstrip())]
        return "\n".join(lines) + "\n"

    def serve(self, *words: str) -> subprocess.Popen[str]:
        """Start what serves, and return when it does; from now on its ports are those that the page names."""
        ports_of = _PORTS[words[0]]
        given = {option: words[words.index(option) + 1] for option in ports_of if option in words}
        named = {option: port for option, port in (ports_of | given).items() if port is not None}
        rest = [word for at, word in enumerate(words) if word not in named and (not at or words[at - 1] not in named)]
        ports = [word for option in named for word in (option, "0")]
        process = subprocess.Popen(
            [sys.executable, "-m", "txn_source.cli", *rest, *ports], env=self.environment, cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.callback(process.communicate, timeout=TIMEOUT_S)
        self.callback(process.kill)  # which is quicker; how they stop is tested elsewhere
        assert process.stdout is not None
        for port in named.values():
            line = process.stdout.readline()
            found = re.search(r" (?:(?:serving|metrics|console) on|is at) (?:http://)?[\w.]+:(\d+)\b", line)
            assert found, f"{self._page.name}: {line}{process.stdout.read()}"
            self.stands_for[f":{port}"] = f":{found[1]}"
        return process

    def _bash(self, command: str) -> str:
        ran = subprocess.run(
            ["bash", "-ec", command], env=self.environment, cwd=self.folder, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, f"{self._page.name}: {command}\n{ran.stderr}"
        return ran.stdout


def _answer(address: str) -> str:
    """Return what curl would print, whatever the status is."""
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return str(error.read().decode())


def _as_wide(shown: str, meant: str) -> Callable[[re.Match[str]], str]:
    """Return what puts one text for another; in a table's cell with blanks behind it, so that others stay in place."""

    def put(found: re.Match[str]) -> str:
        in_cell = found.string.startswith("  ", found.end())
        return shown + found[1] + " " * (len(meant) - len(shown) if in_cell else 0)

    return put


def _narrowed(lines: list[str]) -> list[str]:
    """Return the lines without columns that are blank in all lines of a table, but two between its columns."""
    parts, table = [], []
    for line in [*lines, ""]:
        table.append(line)
        if not line.strip():
            ruled = [each for each in table if "───" not in each]
            wide = [each.ljust(max(map(len, table))) for each in table]
            blank = [
                len(ruled) < len(table) and all(not each[at : at + 1].strip() for each in ruled)
                for at in range(len(wide[0]))
            ]
            kept = [at for at in range(len(blank)) if not all(blank[at : at + 3]) or at + 3 > len(blank)]
            parts += ["".join(each[at] for at in kept) for each in wide]
            table = []
    return parts[:-1]


def _wrapped(line: str) -> list[str]:
    """Return a line that is text, and too long for a page, as several."""
    if len(line) <= WIDTH or "───" in line or "   " in line.strip():
        return [line]
    return textwrap.wrap(line, WIDTH, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False)


def without_figures(text: str) -> list[str]:
    """Return the words of what a command printed without what differs from run to run: numbers, times and sizes."""
    figures = re.sub(r"─+|\b[0-9a-f]{12,}\b|(?<![\w-])[\w-]{40,}(?![\w-])", "#", text)
    figures = re.sub(r"\d[\d,.:TZe+-]*(?:\s?(?:[KMG]?i?B|ms|[smhd])\b)?", "#", figures)
    return re.sub(r"(?:#\s+)+", "# ", figures).split()


def _commands(code: str) -> list[str]:
    return [line for line in code.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]


def parse(arguments: list[str]) -> None:
    """Parse the arguments of ``txnlog`` without running the command; raise what is wrong with them."""
    command: Any = command_of(app)
    context: Any = None
    rest = arguments
    while True:
        context = command.make_context(command.name or "txnlog", list(rest), parent=context, resilient_parsing=False)
        rest = [*getattr(context, "_protected_args", []), *context.args]
        if not getattr(command, "commands", None) or not rest:
            return
        _, command, rest = command.resolve_command(context, rest)
