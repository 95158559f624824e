"""The names that ``import txn_source`` gives: all that its users can get in their hands, and nothing else.

Read the return types of every public method of what is exported: each class of ours among them is exported, too.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from types import UnionType
from typing import Any

import txn_source
from txn_source.model import errors

FOR_THE_LAYERS_ABOVE = {"Access", "MetadataStub", "ObjectRoot", "Target"}
"""What ``Log`` hands to the command line and to Spark."""

OF_A_BATCH = {"MessageRange", "Receiver"}
"""What a batch tells the consumer that it came from; to its users that is a ``Consumer``."""

PARTS = {"LedgerStats", "OngoingTransaction"}
"""Parts of a topic's stats; no call returns one by itself."""


def classes_in(annotation: Any) -> Iterator[type]:
    """Yield the classes of ours that a type is made of."""
    if isinstance(annotation, type) and annotation.__module__.startswith("txn_source."):
        yield annotation
    if isinstance(annotation, UnionType) or typing.get_origin(annotation) is not None:
        for part in typing.get_args(annotation):
            yield from classes_in(part)


def returned_by(exported: Any) -> Iterator[tuple[str, type]]:
    """Yield the public methods and properties of a class, or a function, with the classes of ours that each returns."""
    members = inspect.getmembers_static(exported) if inspect.isclass(exported) else [("", exported)]
    for name, member in members:
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        where = inspect.unwrap(function).__globals__
        annotation = function.__annotations__.get("return")  # none of what comes from Python's own classes
        for kind in classes_in(eval(annotation, where) if isinstance(annotation, str) else annotation):
            yield f"{exported.__name__}.{name}", kind


def test_all_that_public_calls_return_is_exported() -> None:
    """Look at the return types of all that is exported: a user can name each, in a signature or a test."""
    returned = [found for name in txn_source.__all__ for found in returned_by(getattr(txn_source, name))]
    assert {"Log.scan", "Log.seek"} & {where for where, _ in returned} == {"Log.seek"}
    missing = {where: kind for where, kind in returned if getattr(txn_source, kind.__name__, None) is not kind}
    assert {kind.__name__ for kind in missing.values()} == FOR_THE_LAYERS_ABOVE | OF_A_BATCH | PARTS


def test_list_of_names_is_in_order_and_each_can_be_loaded() -> None:
    """Load every name; the list has those that are loaded late, those that aren't, and no other."""
    names = txn_source.__all__
    assert names == sorted(set(names))
    assert all(getattr(txn_source, name).__name__ == name for name in names)
    loaded = {
        name for name, value in vars(txn_source).items() if getattr(value, "__module__", "")[:11] == "txn_source."
    }
    assert {name for name in loaded if not name.startswith("_")} | txn_source._LAZY.keys() == set(names)


def test_every_error_is_exported() -> None:
    """Compare with the tree of errors: whoever catches one needs its name."""
    defined = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
    assert {name for name in defined if not name.startswith("_")} <= set(txn_source.__all__)
