"""Places that may be opened with a process's own credentials.

A caller with a token may name no others. Where there are limits (``limited_to``, or ``TXNLOG_PLACES``) no text of the
log's metadata leads anywhere else either: whoever made it may want credentials to be sent to a host of their own.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qsl

from txn_source.model.errors import InvalidArgumentError
from txn_source.storage.object_uri import is_relative, parts_of
from txn_source.storage.store_errors import StoreError

VARIABLE = "TXNLOG_PLACES"
"""Paths and URIs, separated and quoted as in a shell. With it only these places and the root may be opened."""
_limit: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder or prefix: the parts of its path, and its store with all parameters."""

    store: tuple[str, str, tuple[tuple[str, str], ...]]
    path: tuple[str, ...]


class AllowedPlaces:
    """The log's roots, and the places that the operator lists, as paths or URIs."""

    def __init__(self, places: Iterable[str]) -> None:
        found = {text: _place(text) for text in places}
        for text, place in found.items():
            if place is None:
                raise InvalidArgumentError(
                    f"{text!r} is not a place.",
                    "Use an absolute path or a URI without '.', '..' or empty parts (--place, TXNLOG_PLACES).",
                )
        self._places = {place for place in found.values() if place is not None}

    def has(self, uri: str) -> bool:
        """Return whether a URI, or a path, lies in a place, or below it. A relative path lies in the log's root.

        The parameters of a URI must be those of the place: an ``endpoint_override`` sends credentials to another host.
        """
        if is_relative(uri):
            return _parts(uri) is not None
        wanted = _place(uri)
        return wanted is not None and any(
            wanted.store == place.store and wanted.path[: len(place.path)] == place.path for place in self._places
        )


@contextmanager
def limited_to(places: Iterable[str]) -> Iterator[None]:
    """Let this process open only some places, and the roots that its logs are opened by, inside of the block."""
    global _limit
    before, _limit = _limit, tuple(places)
    try:
        yield
    finally:
        _limit = before


def may_open(root: str, uri: str) -> bool:
    """True if a text of the metadata of the log at ``root`` names a place that may be opened."""
    found = listed()
    return found is None or _places(root, *found).has(uri)


def listed() -> tuple[str, ...] | None:
    """Return the places that this process may open beside roots; None: there is no limit."""
    if _limit is not None or VARIABLE not in os.environ:
        return _limit
    try:
        return tuple(shlex.split(os.environ[VARIABLE]))
    except ValueError as error:
        raise InvalidArgumentError(f"{VARIABLE} can't be read: {error}.", "Quote as in a shell.") from None


def as_variable(places: Iterable[str]) -> str:
    """Return the value of ``VARIABLE`` that lists some places."""
    return shlex.join(places)


@functools.lru_cache(16)
def _places(*places: str) -> AllowedPlaces:
    return AllowedPlaces(places)


def check_stored(root: str, uri: str) -> None:
    """Raise StoreError if a text of the metadata of the log at ``root`` names no place that may be opened."""
    if not may_open(root, uri):
        raise StoreError(
            f"it lies in no place that may be opened; list it in {VARIABLE}, or with txnlog serve --place",
            refused=True,
        )


def _place(uri: str) -> _Place | None:
    scheme, authority, path, query = parts_of(uri)
    if scheme == "file":
        if authority not in ("", "localhost") or query:
            return None
        scheme = authority = ""
    parts = _parts(path.removeprefix("/"))
    if parts is None or (not scheme and not path.startswith("/")):
        return None
    return _Place((scheme, authority, tuple(sorted(parse_qsl(query, keep_blank_values=True)))), parts)


def _parts(path: str) -> tuple[str, ...] | None:
    """Return the parts of a path; None if one of them could leave the folder, or be read in two ways."""
    parts = tuple(path.rstrip("/").split("/")) if path.strip("/") else ()
    return None if any(part in ("", ".", "..") or "\0" in part or "\\" in part for part in parts) else parts
