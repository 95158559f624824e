"""Holds ARCHITECTURE.md against the code: its picture against the imports, its rules against modules and tests."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.selection import for_each
from tests.test_repository import GENERATED, PACKAGE, ROOT, imported_modules, module_name

pytestmark = pytest.mark.xdist_group("sources")

TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CLIENTS_SHARE = (
    "access",
    "hot_roots",
    "ledgers",
    "places",
    "policies",
    "segment_copying",
    "stream_offset",
    "target",
    "topic_description",
)
"""Modules of ``client`` that its folders use; the others make the log of them."""


def part_of(module: str) -> str:
    """Return the part of the picture that a module of the package lies in."""
    names = module.split(".")[1:]
    if names[0] == "client" and not (PACKAGE / "client" / names[1]).is_dir():
        return "client.shared" if names[1] in CLIENTS_SHARE else "client.log"
    return ".".join(names[:2]) if names[0] in ("client", "metadata") else names[0]


@cache
def imports_between_parts() -> set[tuple[str, str]]:
    """Return which part imports which other one, imports in functions and for type checkers included."""
    files = {module_name(path): path for path in PACKAGE.glob("*/**/*.py") if not path.is_relative_to(GENERATED)}
    files = {name: path for name, path in files.items() if path.name != "__init__.py"}
    edges = set()
    for module, path in files.items():
        for _, name in imported_modules(path):
            imported = name if name in files else name.rpartition(".")[0]
            if imported in files:
                edges.add((part_of(module), part_of(imported)))
    return {(importer, imported) for importer, imported in edges if importer != imported}


def reached(part: str, edges: set[tuple[str, str]]) -> set[str]:
    """Return the parts that one comes to from a part, by one import or more."""
    found: set[str] = set()
    todo = [part]
    while todo:
        here = todo.pop()
        new = {imported for importer, imported in edges if importer == here} - found
        found |= new
        todo += new
    return found


def without_shortcuts(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Leave out imports of what a part reaches by way of another one, too."""
    return {edge for edge in edges if edge[1] not in reached(edge[0], edges - {edge})}


def drawn() -> set[tuple[str, str]]:
    """Return the arrows of the picture."""
    [picture] = re.findall(r"```mermaid\n(.*?)```", TEXT, re.DOTALL)
    return {(arrow[0], arrow[1]) for arrow in re.findall(r"^ *([\w.]+) --> ([\w.]+)$", picture, re.MULTILINE)}


def test_no_part_imports_itself_by_way_of_others() -> None:
    """Follow the imports between parts: they lead nowhere back."""
    edges = imports_between_parts()
    assert [part for part, _ in sorted(edges) if part in reached(part, edges)] == []


def test_picture_shows_the_imports() -> None:
    """Compare the arrows with the imports; those that follow from others are left out of the picture."""
    assert drawn() == without_shortcuts(imports_between_parts())


def rules() -> list[tuple[str, str, str, str]]:
    """Return the rows of the table of rules: number, rule, modules, tests."""
    return re.findall(r"^\| (\d+) \| (.*) \| (.*) \| (.*) \|$", TEXT, re.MULTILINE)


def test_rules_are_numbered() -> None:
    """Rules are in the order of their numbers; a rule that was given up leaves its number unused."""
    numbers = [int(number) for number, *_ in rules()]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 30


@for_each(("number", "modules", "tests"), [(n, m, t) for n, _, m, t in rules()])
def test_rule_has_its_module_and_test(number: str, modules: str, tests: str) -> None:
    """Look for every module and test that a rule names."""
    for folder, names in ((PACKAGE, modules), (ROOT / "tests", tests)):
        paths = re.findall(r"`([\w/]+\.py)`", names)
        assert paths, f"rule {number} names nothing below {folder.name}"
        assert [path for path in paths if not (folder / path).is_file()] == []


def test_named_modules_are_there() -> None:
    """Look for every module of the package that the text names."""
    paths = re.findall(r"`((?:model|process|storage|metadata|client|spark|cli)/[\w/]+\.py)`", TEXT)
    folders = (PACKAGE, ROOT / "tests")
    assert [path for path in paths if not any((folder / path).is_file() for folder in folders)] == []
