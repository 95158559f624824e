"""Places that a caller with a token may name: the service opens them with its own credentials."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.values import dataclass
from txn_source.storage.object_uri import parts_of


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
                    f"{text!r} is not a place.", "Use an absolute path or a URI without '.', '..' or empty parts."
                )
        self._places = {place for place in found.values() if place is not None}

    def has(self, uri: str) -> bool:
        """Return whether a URI, or a path, lies in a place, or below it. A relative path lies in the log's root.

        The parameters of a URI must be those of the place: an ``endpoint_override`` sends credentials to another host.
        """
        if "://" not in uri and not uri.startswith(("/", "file:")):
            return _parts(uri) is not None
        wanted = _place(uri)
        return wanted is not None and any(
            wanted.store == place.store and wanted.path[: len(place.path)] == place.path for place in self._places
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
