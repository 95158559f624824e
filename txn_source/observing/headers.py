"""What goes with a call beside its request: the caller's id of its request, its span, what the client has read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from txn_source.observing.read_counts import READS_KEY
from txn_source.observing.request_ids import REQUEST_KEY, current
from txn_source.observing.spans import TRACE_KEY
from txn_source.observing.spans import current as current_span

_KEYS = frozenset((READS_KEY, REQUEST_KEY, TRACE_KEY))
Headers = tuple[tuple[str, str], ...]


def outgoing(reads: str) -> Headers:
    """Return what to send with a call; ``reads`` is what is to be told of them."""
    name = current()
    found: Headers = () if name is None else ((REQUEST_KEY, name),)
    if parent := current_span():
        found = (*found, (TRACE_KEY, parent))
    return (*found, (READS_KEY, reads)) if reads else found


def incoming(metadata: Iterable[tuple[str, str | bytes]] | None) -> Mapping[str, str]:
    """Return what of it came with a call, by key."""
    return {key: value for key, value in metadata or () if key in _KEYS and isinstance(value, str)}


__all__ = ["READS_KEY", "REQUEST_KEY", "TRACE_KEY", "Headers", "incoming", "outgoing"]
