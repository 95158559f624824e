"""URIs of objects, as texts: what they are made of. Nothing is opened, so no file system is loaded."""

from __future__ import annotations

from urllib.parse import unquote

BUCKETS = ("s3", "gs", "gcs")
"""Schemes whose authority is a bucket, which their file systems take for the first part of the path."""


def object_uri(folder: str | None, name: str) -> str:
    """Return the URI of an object in a folder (None: the log's root); a URI's parameters stay at its end."""
    if folder is None:
        return name
    base, mark, query = folder.partition("?") if _has_scheme(folder) else (folder, "", "")
    return f"{base.rstrip('/')}/{name}{mark}{query}"


def is_object_uri(text: object) -> bool:
    """True if a path is the URI of an object store's prefix, and no folder of this machine."""
    return isinstance(text, str) and "://" in text and not text.startswith("file:")


def store_of(uri: str) -> str:
    """Return what all objects of one store have in common: a URI without its path."""
    scheme, authority, _, query = parts_of(uri)
    return f"{scheme}://{authority}?{query}"


def is_relative(uri: str) -> bool:
    """True of a path that is one in the log's root."""
    return not _has_scheme(uri) and not uri.startswith("/")


def _has_scheme(uri: str) -> bool:
    return "://" in uri or uri.startswith("file:")


def parts_of(uri: str) -> tuple[str, str, str, str]:
    """Return scheme, authority, the path as its file system wants it, and parameters; a path has only itself.

    ``urlsplit`` is of no use: it takes what follows a ``#`` in a name for no part of the path.
    """
    if not _has_scheme(uri):
        return "", "", uri, ""
    base, _, query = uri.partition("?")
    scheme, _, rest = base.partition(":")
    scheme, authority, path = scheme.lower(), "", rest
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
    path = unquote(path)
    return scheme, authority, f"{authority}{path}" if scheme in BUCKETS else path, query
