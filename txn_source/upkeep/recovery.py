"""``txnlog recover``: a log whose database is lost or damaged, made of its newest sound snapshot.

1. The newest snapshot of the log whose bytes are what was written is unpacked beside where the database was.
2. It becomes the log's database: same log, behind a gap, so that nothing that the lost one gave out is given out again
   (``metadata/store/lost_future.py``).
3. What lies in the log's places is compared with it: files that it refers to and that are missing, and files that it
   doesn't know. Neither is touched.
4. It is put in place, never over another one.

It may be killed at each step, and run again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from txn_source.client.access import Access
from txn_source.client.ledgers import copies_of
from txn_source.client.tiering.inventory import Inventory, UnknownFile
from txn_source.client.tiering.snapshot_making import make_snapshot
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store.lost_future import recovered
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.schema_versions import upgrade
from txn_source.metadata.store.sqlite_backup import as_one_file
from txn_source.metadata.store.sqlite_check import look_at
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.door import guard
from txn_source.model.errors import InvalidArgumentError, LogNotFoundError, TxnLogError, UnavailableError
from txn_source.model.verdict import Verdict
from txn_source.storage.folders import sync_folder
from txn_source.storage.object_root import ObjectRoot, Root, root_at
from txn_source.storage.object_store import is_passing, is_refused
from txn_source.storage.root import LogRoot
from txn_source.storage.snapshots import Snapshot, snapshots_in, unpack
from txn_source.storage.tiered import check_object

UNFINISHED = "-recovered"
_BESIDE = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """A log that was recovered: its id, the moment of the snapshot (seconds since the epoch), and where that lay.

    ``unsound`` are newer snapshots that couldn't be used, and why. ``missing`` are files that the log refers to and
    that aren't there. ``unknown`` are files that it doesn't know, and ``tails`` are of files that it knows, with the
    bytes behind what it knows of them: what it lost lies there. ``away`` are roots and targets that can't be looked at
    now, each with the reason: of the files that may lie there nothing is told.
    """

    log_id: str
    taken_at_s: int
    snapshot: str
    unsound: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unknown: tuple[UnknownFile, ...] = ()
    tails: tuple[UnknownFile, ...] = ()
    away: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """True if all files are there that the log refers to, and no others."""
        return not (self.missing or self.unknown or self.tails or self.away)


@guard
def recover(
    root: str | os.PathLike[str],
    metadata: str | os.PathLike[str] | None = None,
    *,
    snapshots: str | os.PathLike[str] | None = None,
) -> RecoveryReport:
    """Make a log's database of its newest sound snapshot; nobody else may use the log meanwhile.

    It is the same log, with the same id. What it stored after the snapshot is lost: the files with these messages stay
    where they are, and are told. Nothing that the lost database may have given out is given out again: positions,
    producers and epochs of then are refused, and transactions that were open are aborted.

    Args:
        root: the log's, a folder or the URI of a prefix.
        metadata: the file that the database is to be, of a log on an object store.
        snapshots: a root for copies that has the snapshots, if the log's own one has none.

    Raises:
        InvalidArgumentError: there is a database, or the metadata lies in PostgreSQL.
        LogNotFoundError: there is no log, or no snapshot of it that is sound.
        UnavailableError: somebody makes a database there.
    """
    place = root_at(root)
    file = _database_of(place, metadata)
    source = place if snapshots is None else root_at(snapshots)
    unfinished = file.with_name(f"{file.name}{UNFINISHED}")
    clear(unfinished)
    try:
        snapshot, unsound = unpacked(source, unfinished)
        database = open_database(f"sqlite:///{unfinished}")
        try:
            upgrade(database)
            now_us = database.clock()
            database.write(lambda connection: recovered(connection, now_us, snapshot.taken_at_s * 1_000_000))
            report = RecoveryReport(snapshot.log_id, snapshot.taken_at_s, snapshot.path, unsound)
            report = compared(report, place, MetadataService(database, str(place), clock=database.clock))
        finally:
            database.close()
        as_one_file(unfinished)
        put_in_place(unfinished, file)
    finally:
        clear(unfinished)
    snapshot_now(place, file)
    return report


def put_in_place(made: Path, file: Path) -> None:
    """Give a database its name, unless there is one of that name; UNAVAILABLE says so."""
    try:
        os.link(made, file)
    except FileExistsError:
        raise UnavailableError(f"Somebody has made {file}.", "See whose it is; nothing was changed.") from None
    sync_folder(file.parent)


def _database_of(place: Root, metadata: str | os.PathLike[str] | None) -> Path:
    """Return where the database is to be; raise unless there is a log without one."""
    if isinstance(place, ObjectRoot):
        if metadata is None:
            raise InvalidArgumentError(
                f"The metadata of the log at {place.shown} doesn't lie in its root.", "Say where it is (--metadata)."
            )
        file = Path(os.fspath(metadata)).expanduser().absolute()
    else:
        log = LogRoot.at(place)
        log.check()
        if log.id_on_postgres is not None:
            raise InvalidArgumentError(
                f"The log at {log.path} keeps its metadata in PostgreSQL, which has backups of its own.",
                "Restore the database by its own means; then run `txnlog after-restore`.",
            )
        if metadata is not None:
            raise InvalidArgumentError(
                f"The metadata of the log at {log.path} lies in its root.", "Leave --metadata out."
            )
        file = log.database
    there = [each for end in _BESIDE if (each := file.with_name(f"{file.name}{end}")).exists()]
    if there:
        raise InvalidArgumentError(
            f"There is {there[0]}.",
            "If it is damaged, or older than the snapshots, move it away with all that begins with its name, and keep"
            " it. Otherwise open the log as it is.",
        )
    if not file.parent.is_dir():
        raise LogNotFoundError(f"There is no folder {file.parent}.", "Check the path, or make it first.")
    return file


def unpacked(source: Root, target: Path, log_id: str | None = None) -> tuple[Snapshot, tuple[str, ...]]:
    """Unpack the newest sound snapshot of a log, None: of that which was snapshotted last; return it, and what was
    wrong with newer ones."""
    there = snapshots_in(source, log_id)
    if not there:
        raise LogNotFoundError(
            f"There are no snapshots in {str(source).partition('?')[0]}.",
            "Name a root for copies that has some (--from), or restore a backup (`txnlog restore`).",
        )
    log_id = log_id or max(there, key=lambda each: each.taken_at_s).log_id
    unsound: list[str] = []
    for snapshot in reversed([each for each in there if each.log_id == log_id]):
        try:
            unpack(source, snapshot, target)
            faults = look_at(str(target)).faults
        except (OSError, TxnLogError) as error:
            faults = (error.fact if isinstance(error, TxnLogError) else str(error),)
        if not faults:
            return snapshot, tuple(unsound)
        unsound.append(f"{snapshot.path}: {faults[0]}")
        clear(target)
    raise LogNotFoundError(
        f"None of the {len(unsound)} snapshots in {str(source).partition('?')[0]} is sound; {unsound[0]}",
        "Name another root that has some (--from), or restore a backup (`txnlog restore`).",
    )


def compared(report: RecoveryReport, place: Root, service: MetadataService) -> RecoveryReport:
    """Return what became of a log, with what lies in its places and what doesn't."""
    stub = MetadataStub(InProcessTransport(service))
    stub.get_log()
    found = Inventory(Access(stub, place))
    away = sum(each.bit for each in found.places if each.name in found.away)
    missing = []
    for topic in stub.list_topics():
        segments = stub.list_hot_segments(topic)
        missing += [one.path for one in segments if one.path not in found.files and not one.roots & away]
        for partition in stub.get_view([topic]).topics[0].partitions:
            for copy in (copies.tiered for copies in copies_of(stub, partition) if copies.tiered is not None):
                try:
                    check_object(place, copy)
                except TxnLogError as error:
                    uri = copy.uri.partition("?")[0]
                    if is_passing(error.__cause__) or is_refused(error.__cause__):
                        found.away.setdefault(uri, error.fact)
                    else:
                        missing.append(uri)
    return replace(
        report,
        missing=tuple(sorted(missing)),
        unknown=_in_order(file for files in found.of(Verdict.UNKNOWN).values() for file in files),
        tails=_in_order(replace(file, size=file.size - end) for file, end in found.tails()),
        away=tuple(f"{where}: {why}" for where, why in found.away.items()),
    )


def _in_order(files: Iterable[UnknownFile]) -> tuple[UnknownFile, ...]:
    return tuple(sorted(files, key=lambda file: (file.uri, file.place)))


def snapshot_now(place: Root, file: Path) -> None:
    """Make a snapshot of the recovered log, of which the next one would be behind this one."""
    database = open_database(f"sqlite:///{file}")
    stub = MetadataStub(InProcessTransport(MetadataService(database, str(place), clock=database.clock)))
    try:
        stub.get_log()
        make_snapshot(Access(stub, place), 0.0)
    finally:
        stub.close()


def clear(unfinished: Path) -> None:
    """Remove what was left of a database that was being made."""
    for end in (*_BESIDE, "-turn", ".zst"):
        unfinished.with_name(f"{unfinished.name}{end}").unlink(missing_ok=True)
