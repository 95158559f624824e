"""The places that ledgers are offloaded to, and what lies in them, whoever put it there."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as fs

from txn_source.client.access import Access
from txn_source.model.errors import TopicNotFoundError, TxnLogError
from txn_source.model.topic_name import TopicName
from txn_source.storage import root_health
from txn_source.storage.folders import files_below
from txn_source.storage.object_root import Root, located, resolved
from txn_source.storage.object_store import file_system_of, reason
from txn_source.storage.object_uri import object_uri, parts_of

OWN = "tiered"
"""Where objects lie in the log's own root."""
_LIST_S = 300.0


@dataclass(frozen=True, slots=True)
class Stored:
    """A file below a target: its URI as the log would have it, its size, and when it was written (since the epoch)."""

    uri: str
    size: int
    modified_at_s: float


@dataclasses.dataclass(frozen=True)
class Target:
    """A place that ledgers are offloaded to; ``uri`` None is the log's own one. ``topics`` are those that say so."""

    root: Root
    uri: str | None
    topics: tuple[TopicName, ...]

    @property
    def _place(self) -> str:
        return located(self.root, OWN if self.uri is None else self.uri)

    @property
    def shown(self) -> str:
        """The place without parameters."""
        return resolved(self.root, OWN if self.uri is None else self.uri).partition("?")[0]

    @property
    def folder(self) -> Path | None:
        """The folder that it is; None on an object store."""
        scheme, _, path, _ = parts_of(self._place)
        return Path(path) if scheme in ("", "file") else None

    def why_unreachable(self) -> str:
        """Return why it can't be listed; empty if it can, or isn't there yet."""
        try:
            if self.folder is not None:
                with suppress(FileNotFoundError), os.scandir(self.folder) as found:
                    next(found, None)
                return ""
            system, path = file_system_of(self._place)
            root_health.bounded(lambda: system.get_file_info(fs.FileSelector(path, allow_not_found=True)), _LIST_S)
        except (OSError, TxnLogError, pa.ArrowException) as error:
            return reason(error)
        return ""

    def stored(self) -> Iterator[Stored]:
        """Yield all files below it; OSError if it can't be listed."""
        base = OWN if self.uri is None else self.uri
        if self.folder is not None:
            for file, state in files_below(self.folder):
                yield Stored(object_uri(base, file.relative_to(self.folder).as_posix()), state.st_size, state.st_mtime)
            return
        system, path = file_system_of(self._place)
        selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
        for found in root_health.bounded(lambda: system.get_file_info(selector), _LIST_S):
            if found.type is fs.FileType.File:
                name = found.path.removeprefix(path.rstrip("/")).lstrip("/")
                yield Stored(object_uri(base, name), found.size, (found.mtime_ns or 0) / 1e9)


def targets(access: Access, topics: Sequence[TopicName] = (), *, own: bool = True) -> list[Target]:
    """Return the places that topics are offloaded to (none named: all topics), the log's own one first.

    ``own``: with the log's own place; it can't be reached from everywhere.
    """
    found: dict[str | None, list[TopicName]] = {None: []}
    for name in topics or access.metadata.list_topics():
        try:
            uri = access.metadata.policies_in_force(name)["offload_uri"].value
        except TopicNotFoundError:
            continue  # deleted since it was listed
        found.setdefault(uri, []).append(name)
    return [Target(access.root, uri, tuple(names)) for uri, names in found.items() if (own if uri is None else names)]
