"""A log's root on an object store: a prefix, by URI.

<root>/txnlog.json    the marker: the format's version and the log's id. It is put only where none is, so that two logs
                      never share a prefix
<root>/segments/...   see ``segment.shared_path``
<root>/tiered/...     offloaded ledgers, unless a policy names another place

The metadata lies elsewhere, in a file or in PostgreSQL. The URI is given to clients and shown in errors, so it has no
secrets: credentials come from each client's own surroundings.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from txn_source.model.errors import InvalidArgumentError
from txn_source.storage.allowed_places import check_stored
from txn_source.storage.object_uri import BUCKETS, is_object_uri, is_relative, object_uri, parts_of
from txn_source.storage.root import LogRoot

_SCHEMES = (*BUCKETS, "hdfs", "viewfs")


@dataclass(frozen=True, slots=True)
class ObjectRoot:
    """The prefix of a log, by its URI."""

    uri: str

    @classmethod
    def at(cls, uri: str) -> ObjectRoot:
        """Return the root at a URI; nothing is opened.

        Raises:
            InvalidArgumentError: it names no store, or has a user or a password in it, or leaves the prefix.
        """
        scheme, authority, path, _ = parts_of(uri)
        shown = f"{scheme}://{authority.rpartition('@')[2]}"
        if "@" in authority:
            raise InvalidArgumentError(
                f"The URI of the root at {shown} has a user or a password in it.",
                "Leave them out: credentials come from the environment, the store's files, or the machine's role.",
            )
        if ".." in path.split("/") or "." in path.split("/"):
            raise InvalidArgumentError(f"The root {uri} has a '.' or '..' in its path.", "Name the prefix itself.")
        base, mark, query = uri.partition("?")
        if scheme in ("http", "https", "grpc"):
            raise InvalidArgumentError(
                f"{shown} is not a path.",
                "Give a service's address as endpoint='host:port' (--endpoint host:port), without a scheme.",
            )
        if scheme not in _SCHEMES:
            raise InvalidArgumentError(
                f"There is no file system for {shown}.", f"Use a path, or {', '.join(f'{s}://' for s in _SCHEMES)}."
            )
        if "//" in path.strip("/"):
            raise InvalidArgumentError(f"The root {uri} has an empty part in its path.", "Leave out the second slash.")
        if "#" in base or "%" in base:
            raise InvalidArgumentError(f"The root {uri} has a '#' or '%' in its path.", "Use another prefix.")
        return cls(f"{base.rstrip('/')}{mark}{query}")

    def __str__(self) -> str:
        return self.uri

    def below(self, path: str) -> str:
        """Return the URI of an object, by its path in the root.

        Raises:
            InvalidArgumentError: the path leaves the root.
        """
        if path.startswith("/") or ".." in path.split("/"):
            raise InvalidArgumentError(f"The path {path!r} leaves the log's root.", "Please report it.")
        return object_uri(self.uri, path)

    @property
    def shown(self) -> str:
        """The URI without its parameters, for errors."""
        return self.uri.partition("?")[0]


Root: TypeAlias = Path | ObjectRoot
"""Where a log's segments and objects lie: a folder that clients share, or a prefix of an object store."""


def root_at(text: str | os.PathLike[str]) -> Root:
    """Return the root that a path or a URI names; whether a log is there isn't looked at."""
    return ObjectRoot.at(str(text)) if is_object_uri(text) else LogRoot.at(text).path


def located(root: Root, uri: str) -> str:
    """Return the URI, or the path, by which an object is opened; a relative one is in the root.

    Raises:
        StoreError: it lies in no place that may be opened.
    """
    check_stored(str(root), uri)
    return resolved(root, uri)


def resolved(root: Root, uri: str) -> str:
    """Return the URI, or the path, of an object, for those who don't open it."""
    if not is_relative(uri):
        return uri
    return str(root / uri) if isinstance(root, Path) else root.below(uri)
