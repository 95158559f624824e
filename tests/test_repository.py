"""Keeps the repository tidy: generated code is current, layers hold, files are small and name no machine.

Everything is judged from the sources (their text, or their syntax tree), so nothing of the package is imported.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "txn_source"
GENERATED = PACKAGE / "_generated"

LAYERS_ABOVE = {
    "model": (),
    "storage": ("model",),
    "metadata": ("model", "storage"),
    "client": ("model", "storage", "metadata"),
    "spark": ("model", "storage", "metadata", "client"),
    "cli": ("model", "storage", "metadata", "client"),
}
"""What a layer may import besides itself (ARCHITECTURE.md)."""

_RPC = ("google", "grpc", "grpc_health", "grpc_status")
_SQL = ("sqlalchemy", "sqlite3")
_IMPURE = ("io", "os", "pathlib", "random", "secrets", "shutil", "socket", "tempfile", "threading", "time", "uuid")
"""Files, the clock and randomness: the model is given what it needs of them."""

FOREIGN_TO = {
    "model": (*_RPC, *_SQL, *_IMPURE, "pyarrow", "pyspark"),
    "storage": (*_RPC, *_SQL, "pyspark"),
    "metadata": ("pyspark",),
    "client": (*_SQL, "pyspark"),
    "spark": (*_RPC, *_SQL),
    "cli": (*_SQL, "pyspark"),
}
"""Top-level modules that a layer must do without."""

PROTOBUF_RIM = {
    f"txn_source.metadata.{name}"
    for name in (
        *("checks", "server", "service", "stub", "tier_service", "tier_stub", "transport", "wire"),
        *("consumer_link", "conversation", "subscription_service", "subscription_stub", "subscription_wire"),
    )
}
"""The only modules that see generated code; the rest sees model values."""

LINES_MAX = 500


def module_name(path: Path) -> str:
    """Return the dotted name of a source file; a package's is that of its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_sources(layer: str) -> list[Path]:
    """Return the source files of a layer, whether it is a folder or one module."""
    return [path for path in (PACKAGE / f"{layer}.py", *sorted((PACKAGE / layer).rglob("*.py"))) if path.is_file()]


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and absolute name of all that a file imports, those inside functions and conditions included.

    ``from a import b`` yields ``a.b``, because ``b`` may be a module; whoever asks looks at the first parts only.
    """
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, node.module] if node.module else base)
            for alias in node.names:
                yield node.lineno, f"{prefix}.{alias.name}"


def is_within(module: str, parent: str) -> bool:
    return module == parent or module.startswith(parent + ".")


def repository_files() -> list[Path]:
    """Return the files of the repository: what git knows or would add, or, without git, the tree less what is made."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        listed = ""
    paths = [ROOT / name for name in listed.split("\0") if name]
    if not paths:
        made = re.compile(r"\.git|\.venv|__pycache__|\..*_cache|\.hypothesis|build|dist|.*\.egg-info|spark-warehouse")
        paths = [
            path for path in ROOT.rglob("*") if not any(made.fullmatch(part) for part in path.relative_to(ROOT).parts)
        ]
    return sorted(path for path in paths if path.is_file())


def test_generated_code_is_current(tmp_path: Path) -> None:
    """Generate the protobuf modules again as `make proto` does, and compare them with those checked in."""
    protos = sorted((ROOT / "proto").rglob("*.proto"))
    assert protos
    names = [f"txn_source/_generated/{path.relative_to(ROOT / 'proto').as_posix()}" for path in protos]
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "grpc_python", "pyi")]
    include = "-Itxn_source/_generated=proto"
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", include, *outputs, *names], cwd=ROOT, check=True)

    def contents(root: Path) -> dict[str, bytes]:
        files = (path for path in root.rglob("*.py*") if path.suffix in (".py", ".pyi"))
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}

    generated, checked_in = contents(tmp_path / "txn_source/_generated"), contents(GENERATED)
    assert generated.keys() == checked_in.keys()
    assert [name for name in generated if generated[name] != checked_in[name]] == [], "run `make proto`"


@pytest.mark.parametrize("layer", LAYERS_ABOVE)
def test_layer_imports_only_layers_above_it(layer: str) -> None:
    """Read every import of a layer: inside the package it may name the layer itself, those above it, or the rim's."""
    sources = layer_sources(layer)
    assert sources, f"txn_source.{layer} has no sources"
    allowed = [f"txn_source.{name}" for name in (layer, *LAYERS_ABOVE[layer])]
    if layer == "metadata":
        allowed.append("txn_source._generated")
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources
        for line, module in imported_modules(path)
        if is_within(module, "txn_source") or is_within(module, "pyspark_txnlog")
        if not any(is_within(module, name) for name in allowed)
    ]
    assert wrong == []


@pytest.mark.parametrize("layer", FOREIGN_TO)
def test_layer_does_without_foreign_libraries(layer: str) -> None:
    """Read every import of a layer: none may name a library that belongs to another layer."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in layer_sources(layer)
        for line, module in imported_modules(path)
        if module.split(".")[0] in FOREIGN_TO[layer]
    ]
    assert wrong == []


def test_every_folder_of_the_package_is_a_layer() -> None:
    """Compare the folders with the table of layers, so that a new one can't escape the tests above."""
    folders = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/**/*.py")}
    assert folders == {*LAYERS_ABOVE, GENERATED.name}


def test_importing_the_package_needs_neither_spark_nor_command_line() -> None:
    """Import txn_source in a new process, and look at what was loaded: a reader without Spark must not load it."""
    heavy = ("pyspark", "typer", "txn_source.spark", "txn_source.cli")
    code = "import sys, txn_source; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert [module for module in loaded.split() if any(is_within(module, name) for name in heavy)] == []


def test_generated_code_is_seen_at_the_rim_only() -> None:
    """Read all imports of both packages: only the modules of the rim may name generated code."""
    sources = [*PACKAGE.rglob("*.py"), *(ROOT / "pyspark_txnlog").rglob("*.py")]
    importers = {
        module_name(path)
        for path in sources
        if not path.is_relative_to(GENERATED)
        if any(is_within(module, "txn_source._generated") for _, module in imported_modules(path))
    }
    assert importers <= PROTOBUF_RIM


def test_files_name_no_machine_and_no_registry() -> None:
    """Search all files for folders of one person's machine and for package registries' hosts."""
    machine = rb"(?<![\w.~$}-])/(?:home|root|work|Users)/[\w.]"
    registry = rb"(?:pypi|pythonhosted|repo1?\.maven|artifactory|conda\.anaconda)[\w.-]*\.(?:org|com|io|net|local)\b"
    option = rb"--(?:extra-)?index-url|--find-link[s]|--trusted-hos[t]"
    named = re.compile(b"|".join((machine, registry, option)), re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode(errors='replace')}"
        for path in repository_files()
        for match in named.finditer(path.read_bytes())
    ]
    assert found == []


def test_no_module_is_too_long() -> None:
    """Count the lines of all Python files that people write."""
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_bytes().splitlines())
        for path in repository_files()
        if path.suffix == ".py" and not path.is_relative_to(GENERATED)
    }
    assert lengths
    assert {name: length for name, length in lengths.items() if length > LINES_MAX} == {}
