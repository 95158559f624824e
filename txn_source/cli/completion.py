"""What a shell completes: names of topics and subscriptions, isolation levels, read priorities.

What can't be found out completes to nothing: no error may come into a line that is being typed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from txn_source.cli.connection import CREDENTIALS, Address, metadata_of

if TYPE_CHECKING:
    from txn_source.client.log import Log

_TIMEOUT_S = 2.0


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics of the log that the line names so far, or the environment."""
    return _found(context, incomplete, lambda log: log.topics())


def subscriptions(context: typer.Context, incomplete: str) -> list[str]:
    """Return the subscriptions of the topic that the line names."""
    unparsed = [None, *context.args]  # before an option's value
    topic = context.params.get("name") or context.params.get("topic") or unparsed[-1]
    return _found(context, incomplete, lambda log: [info.name for info in log.subscriptions(topic)]) if topic else []


def levels(incomplete: str) -> list[str]:
    """Return the isolation levels."""
    return [level for level in ("read_committed", "read_uncommitted") if level.startswith(incomplete.lower())]


def priorities(incomplete: str) -> list[str]:
    """Return the read priorities."""
    return [text for text in ("tiered-first", "bookkeeper-first") if text.startswith(incomplete.lower())]


def _found(context: typer.Context, incomplete: str, names: Callable[[Log], list[str]]) -> list[str]:
    try:
        address = _address(context)
        from txn_source.client.connecting import connect

        given = {**address.credentials, "metadata": metadata_of(address.root)}
        with connect(address.root, endpoint=address.endpoint, timeout=_TIMEOUT_S, **given) as log:
            return [name for name in names(log) if name.startswith(incomplete)]
    except Exception:
        return []


def _address(context: typer.Context) -> Address:
    """Return which log the line names: what comes later in it wins."""
    address = Address()
    lines: list[Any] = []
    at: Any = context
    while at is not None:
        lines.insert(0, at.params)
        at = at.parent
    for given in lines:
        shown = {name: given.get(name) for name in CREDENTIALS}
        address = address.override(given.get("root"), given.get("endpoint")).showing(**shown)
    return address.resolve()
