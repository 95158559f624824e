"""Where a rebuild reads, and where the database goes that it makes."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.values import dataclass
from txn_source.storage.folders import sync_file, sync_folder
from txn_source.storage.object_root import ObjectRoot, Root
from txn_source.storage.object_uri import is_object_uri
from txn_source.storage.root import LogRoot
from txn_source.storage.root_marker import note_rebuilt, require


@dataclass(frozen=True, slots=True)
class RebuildPlace:
    """The log's root, and what its new database is to be: a file, or an empty PostgreSQL database (``url``)."""

    root: Root
    log_id: str | None
    """As the root says; None: it doesn't."""
    file: Path
    url: DatabaseUrl | None
    is_look: bool
    """True if the database is made elsewhere, to have a look: the log stays without."""

    @property
    def shown(self) -> str:
        """The root, for errors."""
        return str(self.root) if isinstance(self.root, Path) else self.root.shown

    @property
    def made(self) -> str:
        """What is made."""
        return str(self.file if self.url is None else self.url)

    def check_free(self) -> None:
        """Raise INVALID_ARGUMENT if there is a database in the new file's place."""
        if self.url is None:
            for name in (self.file.name, f"{self.file.name}-wal", f"{self.file.name}-migrated"):
                if self.file.with_name(name).exists():
                    raise InvalidArgumentError(
                        f"There is {self.file.with_name(name)}, and a rebuild never changes a database.",
                        "Move it away if it is lost; or name another file by --into.",
                    )

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A file that isn't there yet for the database while it is made; it goes in the end."""
        if self.url is not None and not isinstance(self.root, Path):
            with tempfile.TemporaryDirectory(prefix="txnlog-rebuild-") as folder:
                yield Path(folder) / self.file.name
            return
        temporary = self.file.with_name(f"{self.file.name}.rebuilding-{uuid.uuid4().hex[:8]}")
        try:
            yield temporary
        finally:
            for suffix in ("", "-wal", "-shm", "-turn"):
                with suppress(OSError):
                    temporary.with_name(f"{temporary.name}{suffix}").unlink(missing_ok=True)

    def take(self, made: Path, report: Callable[[str], object]) -> None:
        """Let what was made be the log's database."""
        if self.url is None:
            sync_file(made)
            self.check_free()
            os.replace(made, self.file)
            sync_folder(self.file.parent)
            return
        from txn_source.metadata.service.migration import fill  # which loads PostgreSQL's driver

        fill(self.url, made, str(self.root), report)

    def mark(self, now_ms: int) -> None:
        """Note in the root that its metadata was made again, and when."""
        if isinstance(self.root, Path):
            LogRoot(self.root).note_rebuilt(now_ms)
        else:
            note_rebuilt(self.root, now_ms)


def place_of(
    root: str | os.PathLike[str], into: str | os.PathLike[str] | None, metadata: DatabaseUrl | None
) -> RebuildPlace:
    """Return the place of a rebuild.

    Raises:
        InvalidArgumentError: there is a database, or what is named is not of the kind that the log's metadata is of.
        LogNotFoundError: the root is no log's, or can't be read.
        UnavailableError: a store doesn't answer for now.
    """
    if is_object_uri(root):
        place = _over_objects(ObjectRoot.at(os.fspath(root)), into, metadata)
    else:
        place = _in_folder(LogRoot.at(os.fspath(root)), into, metadata)
    place.check_free()
    return place


def _over_objects(root: ObjectRoot, into: str | os.PathLike[str] | None, metadata: DatabaseUrl | None) -> RebuildPlace:
    log_id = require(root)
    if into is not None:
        return RebuildPlace(root, log_id, Path(into).absolute(), None, True)
    if metadata is None:
        raise InvalidArgumentError(
            f"The log at {root.shown} is on an object store, which can't hold its metadata.",
            "Name what is to hold it by --metadata: an empty PostgreSQL database, or a new file; or a file by --into,"
            " to have a look.",
        )
    path = metadata.sqlite_path
    return RebuildPlace(root, log_id, Path(path or "metadata.db").absolute(), None if path else metadata, False)


def _in_folder(root: LogRoot, into: str | os.PathLike[str] | None, metadata: DatabaseUrl | None) -> RebuildPlace:
    root.check()
    if into is not None:
        return RebuildPlace(root.path, root.id_on_postgres, Path(into).absolute(), None, True)
    if metadata is None and root.id_on_postgres is not None:
        raise InvalidArgumentError(
            f"The log at {root.path} keeps its metadata in PostgreSQL.",
            "Stop its services, and name an empty database, or schema of one, by --metadata; or a file by --into, to"
            " have a look.",
        )
    if metadata is not None and (root.id_on_postgres is None or not metadata.is_postgres):
        raise InvalidArgumentError(
            f"{metadata} can't take the metadata of the log at {root.path}: one of them isn't on PostgreSQL.",
            "Rebuild it without --metadata; `txnlog migrate` moves it to PostgreSQL then.",
        )
    return RebuildPlace(root.path, root.id_on_postgres, root.database, metadata, False)
