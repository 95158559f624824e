"""Keeps the repository tidy: generated code is current, layers hold, files are small and name no machine.

Everything is judged from the sources (their text, or their syntax tree), but for what an import or a read loads.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.log.sites import Site
from tests.selection import for_each

pytestmark = pytest.mark.xdist_group("sources")  # they share what was parsed

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "txn_source"
CONSOLE_MODULES = PACKAGE / "console" / "static" / "js"
GENERATED = PACKAGE / "_generated"

LAYERS_ABOVE = {
    "model": (),
    "process": ("model.errors",),
    "storage": ("model", "process"),
    "reading": ("model",),
    "foreign": ("model", "storage", "reading"),
    "observing": ("model",),
    "metadata.protocol": ("model", "storage"),
    "metadata.access": ("model", "metadata.protocol", "observing"),
    "metadata.stub": ("model", "process", "storage", "metadata.protocol", "observing"),
    "metadata.store": ("model", "process", "storage"),
    "metadata.delivery": ("model", "process", "storage", "metadata.protocol", "metadata.store", "observing"),
    "metadata.service": ("model", "process", "storage", "metadata", "observing"),
    "http": ("model", "process", "storage", "metadata", "observing"),
    "client": ("model", "process", "storage", "reading", "foreign", "metadata", "observing"),
    "spark": ("model", "storage", "reading", "foreign", "metadata", "client", "importing", "observing"),
    "importing": ("model", "storage", "reading", "foreign", "metadata.stub", "client"),
    "console": ("model", "storage", "reading", "metadata", "http", "client", "observing"),
    "upkeep": ("model", "process", "storage", "metadata", "client", "observing"),
    "cli": (
        *("model", "process", "storage", "reading", "foreign", "metadata", "http", "client", "spark", "importing"),
        *("console", "upkeep", "observing"),
    ),
}
"""What a layer may import besides itself (ARCHITECTURE.md)."""

_RPC = ("google", "grpc", "grpc_health", "grpc_status")
_SQL = ("sqlalchemy", "sqlite3")
_IMPURE = ("io", "os", "pathlib", "random", "secrets", "shutil", "socket", "tempfile", "threading", "time", "uuid")
"""Files, the clock and randomness: the model is given what it needs of them."""

FOREIGN_TO = {
    "model": (*_RPC, *_SQL, *_IMPURE, "pyarrow", "pyspark"),
    "process": (*_RPC, *_SQL, "numpy", "pyarrow", "pyspark"),
    "storage": (*_RPC, *_SQL, "pyspark"),
    "reading": (*_RPC, *_SQL, "pyspark"),
    "foreign": (*_RPC, *_SQL, "pyspark"),
    "observing": (*_RPC, *_SQL, "pyarrow", "pyspark"),
    "metadata.protocol": (*_SQL, "pyspark"),
    "metadata.access": (*_SQL, "pyarrow", "pyspark"),
    "metadata.stub": (*_SQL, "pyspark"),
    "metadata.store": (*_RPC, "pyspark"),
    "metadata.delivery": (*_SQL, "pyspark"),
    "metadata.service": (*_SQL, "pyspark"),
    "http": (*_RPC, *_SQL, "pyarrow", "pyspark"),
    "client": (*_SQL, "pyspark"),
    "spark": (*_RPC, *_SQL),
    "importing": (*_RPC, *_SQL, "pyspark"),
    "console": (*_RPC, *_SQL, "pyspark"),
    "upkeep": (*_RPC, *_SQL, "pyspark"),
    "cli": (*_SQL, "pyspark"),
}
"""Top-level modules that a layer must do without."""

PROTOBUF_RIM = tuple(f"txn_source.metadata.{name}" for name in ("delivery", "protocol", "service", "stub"))
"""The only layers that see generated code; the rest sees model values."""

CLIENTS_RIM = ("metadata.protocol", "metadata.stub", "metadata.service.in_process")
"""What of ``metadata`` clients share with the service, or have for themselves: it needs no database."""

OF_THE_SERVICE = (*_SQL, "txn_source.metadata.service.service")
"""What a client that isn't embedded never loads: it costs every one of Spark's processes more than all the rest."""

LINES_MAX = 500


def module_name(path: Path) -> str:
    """Return the dotted name of a source file; a package's is that of its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_sources(layer: str) -> list[Path]:
    """Return the source files of a layer, whether it is a folder or one module."""
    folder = PACKAGE.joinpath(*layer.split("."))
    return [path for path in (folder.with_suffix(".py"), *sorted(folder.rglob("*.py"))) if path.is_file()]


@cache
def imported_modules(path: Path, *, when_imported: bool = False) -> list[tuple[int, str]]:
    """Return line and absolute name of all that a file imports, those inside functions and conditions included.

    ``from a import b`` gives ``a.b``, because ``b`` may be a module; the callers look at the first parts only.

    Args:
        path: the file.
        when_imported: leave out what isn't loaded with the file itself: imports in functions, and for type checkers.
    """
    return list(_imports(path, when_imported=when_imported))


def _imports(path: Path, *, when_imported: bool) -> Iterator[tuple[int, str]]:
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    for node in _statements(_parsed(path), when_imported=when_imported):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, node.module] if node.module else base)
            for alias in node.names:
                yield node.lineno, f"{prefix}.{alias.name}"


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), str(path))


def _statements(tree: ast.AST, *, when_imported: bool) -> Iterator[ast.AST]:
    """Yield a module's statements, or those that run when it is imported: none in functions or for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            continue
        if when_imported and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        of: ast.AST = node
        if when_imported and isinstance(node, ast.If) and isinstance(node.test, ast.Name):
            of = ast.Module(node.orelse, []) if node.test.id == "TYPE_CHECKING" else node
        yield node
        yield from _statements(of, when_imported=when_imported)


def way_to(foreign: Iterable[str], module: str, imports: dict[str, list[str]]) -> list[str] | None:
    """Return the modules by which importing one loads a foreign one, from the first to the last; None if it doesn't.

    Args:
        foreign: names of modules and packages.
        module: where to begin.
        imports: of each module of ours, what it imports when it is imported; ``a.b`` may be a name in a module ``a``.
    """
    ways = [[module]]
    seen = {module}
    while ways:
        way = ways.pop(0)
        for name in imports.get(way[-1], ()):
            if any(is_within(name, other) for other in foreign):
                return [*way, name]
            parts = name.split(".")
            for loaded in (".".join(parts[:count]) for count in range(1, len(parts) + 1)):  # packages run first
                if loaded in imports and loaded not in seen:
                    seen.add(loaded)
                    ways.append([*way, loaded])
    return None


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules in which each imports itself by way of the others, sorted.

    Args:
        imports: of each module, what it imports itself.
    """
    reached = {}
    for module in imports:
        found: set[str] = set()
        left = [module]
        while left:
            for name in imports[left.pop()] - found:
                found.add(name)
                left.append(name)
        reached[module] = found
    groups = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in imports
        if module in reached[module]
    }
    return sorted(map(list, groups))


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


@for_each("layer", LAYERS_ABOVE)
def test_layer_imports_only_layers_above_it(layer: str) -> None:
    """Read every import of a layer: inside the package it may name the layer itself, those above it, or the rim's."""
    sources = layer_sources(layer)
    assert sources, f"txn_source.{layer} has no sources"
    allowed = [f"txn_source.{name}" for name in (layer, *LAYERS_ABOVE[layer])]
    if f"txn_source.{layer}" in PROTOBUF_RIM:
        allowed.append("txn_source._generated")
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources
        for line, module in imported_modules(path)
        if is_within(module, "txn_source") or is_within(module, "pyspark_txnlog")
        if not any(is_within(module, name) for name in allowed)
    ]
    assert wrong == []


@for_each("layer", FOREIGN_TO)
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
    modules = [module_name(path) for path in PACKAGE.glob("*/**/*.py") if not path.is_relative_to(GENERATED)]
    layers = [f"txn_source.{layer}" for layer in LAYERS_ABOVE]
    assert [name for name in modules if not any(is_within(name, layer) for layer in layers)] == ["txn_source.metadata"]


@pytest.mark.parametrize("part", ["client", "spark", "cli", "rim"])
def test_clients_load_no_service_with_their_modules(part: str) -> None:
    """Follow what modules import when they are imported: none may come to SQLAlchemy or to the service.

    An embedded log has both. What opens it imports them then, inside a function.
    """
    files = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    imports = {
        name: [module for _, module in imported_modules(path, when_imported=True)] for name, path in files.items()
    }
    layers = CLIENTS_RIM if part == "rim" else (part,)
    modules = [module_name(path) for layer in layers for path in layer_sources(layer)]
    assert modules
    assert set(modules) <= files.keys()
    ways = [way_to(OF_THE_SERVICE, module, imports) for module in modules]
    assert [" -> ".join(way) for way in ways if way is not None] == []
    server = way_to(OF_THE_SERVICE, "txn_source.metadata.service.server", imports)
    assert server is not None  # the question can be answered so


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Follow all imports of the package, those inside functions and for type checkers, too: none comes back."""
    files = {module_name(path): path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(GENERATED)}
    imports: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for _, imported in imported_modules(path):  # of a name in a module the module is meant
            module = imported if imported in files else imported.rpartition(".")[0]
            if module in files:
                imports[name].add(module)
    assert imports["txn_source.client.log"]
    assert list(circles(imports)) == []


def test_no_module_of_the_console_imports_itself_by_way_of_others() -> None:
    """Follow all imports of the page's modules, those of the pages that are loaded when they are opened, too."""
    files = {path.resolve(): path.read_text(encoding="utf-8") for path in CONSOLE_MODULES.rglob("*.js")}
    imports = {
        path.name: {
            (path.parent / name).resolve().name for name in re.findall(r"(?:from|import) ?[(]?'([./\w]+\.js)'", text)
        }
        for path, text in files.items()
    }
    assert len(imports) == len(files)
    assert {"api.js", "blockers.js"} <= imports["app.js"] <= imports.keys()
    assert circles(imports) == []


def test_circles_are_found() -> None:
    """Ask for the circles of a few modules: a module alone, one of three with two ways through it, and none."""
    imports = {"a": {"a"}, "b": {"c", "d"}, "c": {"b"}, "d": {"c", "e"}, "e": {"f"}, "f": set()}
    assert circles(imports) == [["a"], ["b", "c", "d"]]
    assert circles({"e": {"f"}, "f": set()}) == []


def loaded_by(code: str, *arguments: str) -> list[str]:
    """Run a program in a new process, and return the modules that it has loaded by its end."""
    program = f"{code}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def among(loaded: list[str], unwanted: Iterable[str]) -> list[str]:
    return [module for module in loaded if any(is_within(module, name) for name in unwanted)]


def test_importing_the_package_needs_neither_spark_nor_command_line() -> None:
    """Import txn_source in a new process, and look at what was loaded: a reader without Spark must not load it."""
    loaded = loaded_by("import txn_source")
    assert among(loaded, ("pyspark", "typer", "txn_source.spark", "txn_source.cli")) == []


def test_importing_the_source_loads_neither_service_nor_grpc() -> None:
    """Import the Spark source in a new process, as Spark does often for a query, and look at what was loaded."""
    loaded = loaded_by("import txn_source, txn_source.spark.source")
    unwanted = (*OF_THE_SERVICE, "grpc", "grpc_status", "rich", "txn_source.cli", "txn_source.client.log", "typer")
    assert among(loaded, unwanted) == []


def test_finding_the_source_loads_no_client() -> None:
    """Import what Spark imports to learn the source's name, in a process that does nothing else."""
    loaded = loaded_by("import pyspark_txnlog")
    assert "txn_source.spark.source" in loaded
    unwanted = ("google", "mmh3", "pyarrow.compute", "pyarrow.fs", "pyarrow.parquet", "txn_source.client")
    assert among(loaded, (*unwanted, "txn_source.metadata", "txn_source.storage")) == []


_PLANNING = """
import sys
from txn_source.spark.source import TxnLogDataSource

source = TxnLogDataSource({"endpoint": sys.argv[1], "topic": "orders"})
assert len(source.reader(source.schema()).partitions()) == 1
"""

_EMBEDDED = """
import sys
from txn_source.spark.source import TxnLogDataSource

source = TxnLogDataSource({"path": sys.argv[1], "topic": "orders"})
reader = source.reader(source.schema())
assert sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task)) == 2
"""

_READING = """
import sys
import txn_source
from txn_source.spark.source import TxnLogDataSource

with txn_source.connect(endpoint=sys.argv[1]) as log:
    assert log.scan("orders").read_all()["value"].to_pylist() == [b"a", b"b"]
source = TxnLogDataSource({"endpoint": sys.argv[1], "topic": "orders"})
reader = source.reader(source.schema())
assert sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task)) == 2
"""


def test_reading_from_a_service_loads_none(remote_site: Site) -> None:
    """Scan a log behind a server in a new process, then plan and read it as Spark's processes do."""
    log = remote_site.connect()
    log.create_topic("orders")
    with log.producer("orders") as producer:
        for value in (b"a", b"b"):
            producer.send(value)
    loaded = loaded_by(_READING, remote_site.endpoint)
    assert "grpc" in loaded
    assert among(loaded, OF_THE_SERVICE) == []


@pytest.mark.long
def test_planning_loads_no_reader(remote_site: Site) -> None:
    """Ask for the schema and plan a read in a new process, as Spark does before any task; nothing is tiered."""
    log = remote_site.connect()
    log.create_topic("orders")
    with log.producer("orders") as producer:
        producer.send(b"a")
    loaded = loaded_by(_PLANNING, remote_site.endpoint)
    assert "txn_source.reading.plan" in loaded
    readers = ("txn_source.client.reading.slice_reader", "txn_source.storage.segment", "txn_source.storage.tiered")
    assert among(loaded, (*readers, "pyarrow.compute", "pyarrow.fs", "pyarrow.parquet")) == []


def test_reading_an_embedded_log_loads_nothing_that_writes(embedded_site: Site) -> None:
    """Plan and read a log in a new process, as Spark does, and look at what was loaded of the service."""
    log = embedded_site.connect()
    log.create_topic("orders")
    with log.producer("orders") as producer:
        for value in (b"a", b"b"):
            producer.send(value)
    loaded = loaded_by(_EMBEDDED, str(embedded_site.root))
    assert "txn_source.metadata.service.read_calls" in loaded
    writes = [f"txn_source.metadata.service.{name}_calls" for name in ("producer", "subscription", "write")]
    writes += ["txn_source.metadata.delivery", "txn_source.metadata.store.appends", "txn_source.client.writing"]
    unneeded = ("grpc", "pyarrow.compute", "pyarrow.fs", "pyarrow.parquet", "sqlalchemy", "txn_source.foreign")
    assert among(loaded, (*writes, *unneeded)) == []


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


def test_properties_are_tried_on_the_same_examples_however_busy_the_machine() -> None:
    """Look at what holds for all tests of properties, and for each that has a list of its own of what it ignores."""
    usual = settings.get_profile("repeatable")
    assert (usual.derandomize, usual.deadline, usual.database) == (True, None, None)
    assert HealthCheck.too_slow in usual.suppress_health_check
    lists = {
        path: re.findall(r"suppress_health_check=(\[[^\]]*\])", path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "tests").rglob("*.py"))
    }
    assert any(lists.values())
    assert [path.name for path, found in lists.items() if any("too_slow" not in each for each in found)] == []


def test_no_module_is_too_long() -> None:
    """Count the lines of all Python files that people write."""
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_bytes().splitlines())
        for path in repository_files()
        if path.suffix == ".py" and not path.is_relative_to(GENERATED)
    }
    assert lengths
    assert {name: length for name, length in lengths.items() if length > LINES_MAX} == {}
