"""The Python page: what the package gives, and every class that one gets back from it."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Any

import txn_source
import txn_source.importing
import txn_source.metrics
import txn_source.spark
import txn_source.spark.progress
import txn_source.tracing
from docs.tools.docstrings import as_markdown, signature
from txn_source.client.access import Access
from txn_source.client.consuming.messages import Receiver
from txn_source.client.target import Target
from txn_source.foreign.read_only_log import ReadOnlyLog
from txn_source.foreign.target import ForeignTarget
from txn_source.metadata.stub.metadata_stub import MetadataStub

MODULES = (txn_source.spark, txn_source.spark.progress, txn_source.importing, txn_source.metrics, txn_source.tracing)
INNER = (Access, ForeignTarget, MetadataStub, Receiver, Target)
"""What public objects hold for their own use."""


def python() -> str:
    """Return the page."""
    return "".join(_page())


def named() -> dict[str, Any]:
    """Return what has a public name, in the order of the page."""
    own = [name for name in txn_source.__all__ if not name.endswith("Error")]
    first = ["connect", "Log"]
    found = {name: getattr(txn_source, name) for name in [*first, *(name for name in own if name not in first)]}
    for module in MODULES:
        prefix = module.__name__.removeprefix("txn_source.")
        found |= {f"{prefix}.{name}": getattr(module, name) for name in module.__all__}
    return found


def given() -> dict[str, type]:
    """Return the classes without a name in the package that one gets from those that have one, directly or not."""
    public = [*named().values(), ReadOnlyLog]
    todo, found = list(public), {ReadOnlyLog.__name__: ReadOnlyLog}
    while todo:
        for cls in _classes_of(todo.pop(0)):
            if cls not in public and cls not in found.values() and cls not in INNER and not issubclass(cls, Exception):
                assert cls.__name__ not in found, cls
                found[cls.__name__] = cls
                todo.append(cls)
    return dict(sorted(found.items()))


def _page() -> Iterator[str]:
    yield (
        "# Python\n\nWhat `import txn_source` gives. A bound is exclusive unless a text says otherwise. The errors have"
        " a [page of their own](errors.md). Classes without a module before their name, at the end, are what others"
        " return.\n\n"
    )
    for name, thing in [*named().items(), *given().items()]:
        yield from _class(name, thing) if inspect.isclass(thing) else _function(name, thing, "##")


def _function(name: str, function: Any, level: str) -> Iterator[str]:
    head = signature(name.rpartition(".")[2], function)
    yield f"{level} {name}\n\n```text\n{head}\n```\n\n{as_markdown(inspect.getdoc(function))}\n\n"


def _class(name: str, cls: type) -> Iterator[str]:
    yield f"## {name}\n\n{as_markdown(cls.__doc__)}\n\n"
    if is_dataclass(cls):
        lines = [f"{field.name}: {field.type}{_default(field)}" for field in fields(cls) if field.name[0] != "_"]
        texts = [f"- `{field}`: {text}" for field, text in _texts_of_fields(cls).items()]
        yield "```text\n" + "\n".join(lines) + "\n```\n\n" + "".join(f"{text}\n" for text in texts) + "\n"
    shown = set()
    for base in cls.__mro__:
        for member, value in vars(base).items() if _is_ours(base) else ():
            doc = inspect.getdoc(value)
            value = getattr(value, "__func__", value)
            if member.startswith("_") or member in shown or not doc:
                continue
            shown.add(member)
            if inspect.isfunction(value):
                yield from _function(f"{name}.{member}", value, "###")
            elif isinstance(value, property):
                yield f"### {name}.{member} {{: .property }}\n\n{as_markdown(doc)}\n\n"


def _default(field: Any) -> str:
    if field.default is not MISSING:
        return f" = {getattr(field.default, 'value', field.default)!r}"
    made = field.default_factory() if field.default_factory is not MISSING else MISSING
    return f" = {made!r}" if not made else ""


def _texts_of_fields(cls: type) -> dict[str, str]:
    """Return the texts that stand below fields, as Markdown."""
    found = {}
    for base in reversed([base for base in cls.__mro__ if _is_ours(base)]):
        body = _bodies(sys.modules[base.__module__])[base.__qualname__]
        for line, below in pairwise(body):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(below, ast.Expr):
                text = below.value
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    found[line.target.id] = " ".join(as_markdown(text.value).split())
    return found


def _classes_of(thing: Any) -> Iterator[type]:
    """Yield the package's classes that a function returns, or that methods and attributes of a class are."""
    if not inspect.isclass(thing):
        yield from _in_annotation(sys.modules[thing.__module__], thing.__annotations__.get("return"))
        return
    for base in thing.__mro__ if _is_ours(thing) else ():
        if not _is_ours(base):
            continue
        module = sys.modules[base.__module__]
        for member, annotation in inspect.get_annotations(base).items():
            if not member.startswith("_"):
                yield from _in_annotation(module, annotation)
        for member, value in vars(base).items():
            function = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))
            if not member.startswith("_") and inspect.isfunction(function):
                of = sys.modules[function.__module__]
                yield from _in_annotation(of, function.__annotations__.get("return"))


def _in_annotation(module: ModuleType, annotation: Any) -> Iterator[type]:
    """Yield the package's classes that an annotation names, as its module knows them, if only for annotations."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    known = _imported(module)
    for node in ast.walk(ast.parse(text or "None")):
        if isinstance(node, ast.Name) and node.id in known:
            thing = getattr(import_module(known[node.id][0]), known[node.id][1])
            if inspect.isclass(thing):
                yield thing


@cache
def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


@cache
def _imported(module: ModuleType) -> dict[str, tuple[str, str]]:
    """Return where each of the package's names comes from that a module knows."""
    found = {name: (module.__name__, name) for name in _bodies(module)}
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("txn_source."):
            found |= {name.asname or name.name: (str(node.module), name.name) for name in node.names}
    return found


@cache
def _bodies(module: ModuleType) -> dict[str, list[ast.stmt]]:
    """Return the statements of each class of a module."""
    return {node.name: node.body for node in _tree(module).body if isinstance(node, ast.ClassDef)}


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("txn_source.")
