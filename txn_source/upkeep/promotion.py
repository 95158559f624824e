"""``txnlog roots promote``: a root for copies becomes the log's own root, since that one is lost.

1. The markers of the other roots that can be reached get the id of the new log. So the old root, should it come back,
   is another log's, and writes no copies to them.
2. The metadata becomes that of the new log, in one transaction (``metadata/store/putting_back.py``): the newest
   snapshot in the place, if the metadata was lost, too, else the database that is named.
3. The place gets the marker of a log, and loses that of a root for copies.

The new id follows from the old one and the place, so it may be killed at each step, and run again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from txn_source.client.target import metadata_url
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store.database import Database
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.log_identity import read_info
from txn_source.metadata.store.lost_future import last_look_us
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.putting_back import promoted
from txn_source.metadata.store.roots import all_roots
from txn_source.metadata.store.schema_versions import upgrade
from txn_source.metadata.store.sqlite_backup import as_one_file
from txn_source.model.door import guard
from txn_source.model.errors import InvalidArgumentError, TxnLogError
from txn_source.model.roots import HotRoot
from txn_source.storage import root_marker
from txn_source.storage.copies_marker import hand_over, owner_of, retire
from txn_source.storage.object_root import ObjectRoot, Root, root_at
from txn_source.storage.object_store import reason
from txn_source.storage.root import LogRoot
from txn_source.upkeep.recovery import UNFINISHED, RecoveryReport, clear, compared, put_in_place, snapshot_now, unpacked


@dataclass(frozen=True, slots=True)
class Promotion:
    """A root that became a log's own one: its former name, what became of the log (``snapshot`` is empty if its
    database was there), and other roots whose markers couldn't be changed, by name, and why: they are to be added
    again."""

    name: str
    log: RecoveryReport
    left: tuple[tuple[str, str], ...] = ()


@guard
def promote(root: str | os.PathLike[str], metadata: str | os.PathLike[str] | None = None) -> Promotion:
    """Make a root for copies the own root of its log, whose own one is lost; nobody else may use the log meanwhile.

    It is another log then, with an id of its own, since the old root may come back. Nothing that the lost one may have
    given out is given out again. What lay in the lost root alone is gone: those files are told as missing.

    Args:
        root: the root for copies, a folder or the URI of a prefix.
        metadata: the database, if the log has it in PostgreSQL, or is to have its root on an object store: a URL, or
            the path of a SQLite file. If there is no such file it is made of the newest snapshot in the root.

    Raises:
        InvalidArgumentError: it is no root for copies, or the metadata is another log's, or must be named.
        LogNotFoundError: there is no sound snapshot in it.
        UnavailableError: the database can't be reached, or somebody makes one there.
    """
    place = root_at(root)
    marked = owner_of(place)
    shown = str(place).partition("?")[0]
    if marked is None:
        raise InvalidArgumentError(
            f"{shown} is no root for copies: it has no txnlog-copies.json.",
            "`txnlog roots list` shows those of a log; if it was promoted before, connect to it.",
        )
    where = _metadata_of(place, metadata)
    file = where if isinstance(where, Path) else None
    owner, name = marked
    new_id = _new_id(place, owner)
    lost = file is not None and not file.exists()
    made = file and (file.with_name(f"{file.name}{UNFINISHED}") if lost else file)
    taken_at_s, snapshot = 0, ""
    unsound: tuple[str, ...] = ()
    try:
        if lost and made is not None:
            clear(made)
            found, unsound = unpacked(place, made, owner)
            taken_at_s, snapshot = found.taken_at_s, found.path
        database = _open(made or where)
        try:
            upgrade(database)
            with database.read() as connection:
                log_id, roots = read_info(connection).log_id, all_roots(connection)
                taken_at_s = taken_at_s or last_look_us(connection) // 1_000_000
            if log_id not in (owner, new_id):
                raise InvalidArgumentError(
                    f"{shown} holds copies of the log {owner}, and the metadata is of {log_id}.",
                    "Name the metadata of that log, or its root.",
                )
            left = _hand_over([each for each in roots if each.name != name], owner, new_id)
            if log_id == owner:
                now_us = database.clock()
                database.write(lambda connection: promoted(connection, now_us, taken_at_s * 1_000_000, new_id, name))
        finally:
            database.close()
        if lost and made is not None and file is not None:
            as_one_file(made)
            put_in_place(made, file)
    finally:
        if lost and made is not None:
            clear(made)
    if isinstance(place, ObjectRoot):
        root_marker.claim(place, new_id)
    else:
        LogRoot(place).finish(new_id if file is None else None)
    database = _open(where)
    try:
        report = RecoveryReport(new_id, taken_at_s, snapshot, unsound)
        report = compared(report, place, MetadataService(database, str(place), clock=database.clock))
    finally:
        database.close()
    retire(place)
    if file is not None:
        snapshot_now(place, file)
    return Promotion(name, report, left)


def _metadata_of(place: Root, metadata: str | os.PathLike[str] | None) -> DatabaseUrl | Path:
    """Return where the metadata is, or is to be: in PostgreSQL, or in a file."""
    url = None if metadata is None else metadata_url(metadata)
    if url is not None and url.is_postgres:
        return url
    if isinstance(place, ObjectRoot):
        if url is None:
            raise InvalidArgumentError(
                f"{place.shown} can't hold the metadata.", "Say where it is, or is to be (--metadata)."
            )
        return Path(str(url.sqlite_path))
    if url is not None:
        raise InvalidArgumentError("The metadata of a log in a folder lies there.", "Leave --metadata out.")
    return LogRoot(place).database


def _open(where: DatabaseUrl | Path) -> Database:
    return open_database(f"sqlite:///{where}" if isinstance(where, Path) else where)


def _hand_over(roots: Sequence[HotRoot], owner: str, new_id: str) -> tuple[tuple[str, str], ...]:
    """Have the markers of other roots name the new log; return those that couldn't be changed, and why."""
    left = []
    for root in roots:
        try:
            hand_over(root_at(root.uri), owner, new_id, root.name)
        except (OSError, TxnLogError) as error:
            left.append((root.name, reason(error)))
    return tuple(left)


def _new_id(place: Path | ObjectRoot, owner: str) -> str:
    """Return the id of the log that one becomes in a place: the same for all tries."""
    return hashlib.sha256(f"{owner} {str(place).partition('?')[0]}".encode()).hexdigest()[:32]
