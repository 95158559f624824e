"""Opening a log to look at it: as it is, whatever release wrote it, and without changing it.

A folder is looked at through a service in this process over its database, which refuses to write. What keeps that from
being opened is a finding, not an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from txn_source.client.access import Access
from txn_source.client.target import Target, metadata_url, reachable, read_configuration
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store.log_identity import read_info
from txn_source.metadata.store.only_reads import OnlyReads
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.sqlite_check import look_at
from txn_source.metadata.store.table_version import SCHEMA_VERSION, read_version
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import InvalidArgumentError, LogNotFoundError, LogVersionError
from txn_source.storage.object_root import ObjectRoot, Root
from txn_source.storage.object_uri import is_object_uri
from txn_source.storage.root import LogRoot
from txn_source.storage.root_marker import log_id_at
from txn_source.upkeep.doctor.findings import Finding, Unchecked, finding
from txn_source.upkeep.doctor.subject import Options, Subject, Surroundings

if TYPE_CHECKING:
    from txn_source.metadata.store.database_url import DatabaseUrl

May = Callable[[Path, int], bool]
"""See ``Surroundings``."""
EVERYTHING_ELSE = "everything else"
_SQLITE_CHECK = "database file"


@dataclass(frozen=True, slots=True)
class Where:
    """Which log: its root, with its metadata's place if that isn't in the root, or a service's endpoint."""

    root: str | None = None
    endpoint: str | None = None
    metadata: str | None = None
    credentials: Mapping[str, Any] | None = None
    timeout_s: float = 30.0

    @property
    def shown(self) -> str:
        """What was named, without parameters."""
        return str(self.root or self.endpoint).partition("?")[0]

    def target(self) -> Target:
        """Return the log to be changed, as everybody connects to it."""
        return Target.of(
            self.root,
            self.endpoint,
            timeout_s=self.timeout_s,
            credentials=self.credentials,
            metadata=self.metadata if is_object_uri(self.root) else None,
        )


@dataclass(frozen=True, slots=True)
class Opened:
    """A log that could be opened, or None; what was found by then, and what can't be looked at."""

    subject: Subject | None
    findings: tuple[Finding, ...]
    not_checked: tuple[Unchecked, ...] = ()
    checked: tuple[str, ...] = ()


@contextmanager
def opened(where: Where, **options: Unpack[Options]) -> Iterator[Opened]:
    """A log, open to be looked at.

    Raises:
        LogNotFoundError: no log lies there.
        InvalidArgumentError: the log can't be what was named.
        UnavailableError: the service didn't answer.
    """
    found = _at_endpoint(where, options) if where.root is None else _at_root(where, options)
    try:
        yield found
    finally:
        if found.subject is not None:
            found.subject.access.close()


def _at_endpoint(where: Where, options: Options) -> Opened:
    stub, uri = where.target().open()
    try:
        subject = Subject(Access(stub, _root(uri)), where.shown, **options)
        try:
            reachable(where.shown, uri)
        except LogNotFoundError as error:
            subject.has_storage = False
            away = finding("root-unreachable", "root main", f"{error.fact}", root="main", uri=uri.partition("?")[0])
            return Opened(subject, (away,))
        return Opened(subject, ())
    except BaseException:
        stub.close()
        raise


def _root(uri: str) -> Root:
    return ObjectRoot.at(uri) if is_object_uri(uri) else LogRoot.at(uri).path


def _at_root(where: Where, options: Options) -> Opened:
    assert where.root is not None
    findings: list[Finding] = []
    may = _around(options).may
    root: Root
    if is_object_uri(where.root):
        root = ObjectRoot.at(where.root)
        if where.metadata is None:
            raise InvalidArgumentError(
                f"The log at {root.shown} is on an object store, which can't hold its metadata.",
                "Say where that is (--metadata, or TXNLOG_METADATA), or name the endpoint of its service.",
            )
        url, configuration = metadata_url(where.metadata), {}
    else:
        folder = LogRoot.at(where.root)
        root = folder.path
        url = _url_of(folder, where, may, findings)
        configuration = _configuration(folder, may, findings)
    return _over_database(root, url, configuration, where, options, findings)


def _url_of(root: LogRoot, where: Where, may: May, findings: list[Finding]) -> DatabaseUrl:
    """Return where the metadata of a folder's log is, after a look at its marker."""
    if not root.exists and not root.database.exists():
        root.check()  # no log, or no folder
    try:
        root.check()
    except LogVersionError as error:
        findings.append(finding("log-version", str(root.path), error.fact))
    except LogNotFoundError as error:
        marker = root.path / "txnlog.json"
        known = not marker.exists() or _may_read(marker, may, findings)
        findings += [finding("marker-damaged", str(marker), error.fact)] if known else []
    on_postgres = root.id_on_postgres is not None
    if on_postgres and root.database.exists() and root.retired_database.exists():  # else a service renames it
        what = f"{root.database} is there, and the log's metadata lies in PostgreSQL."
        findings.append(finding("metadata-twice", str(root.database), what, path=str(root.database)))
    if on_postgres and where.metadata is None:
        raise InvalidArgumentError(
            f"The log at {root.path} keeps its metadata in PostgreSQL.",
            "Say where (--metadata, or TXNLOG_METADATA), or name the endpoint of its service.",
        )
    return metadata_url(where.metadata) if on_postgres and where.metadata else metadata_url(root.database_url)


def _configuration(root: LogRoot, may: May, findings: list[Finding]) -> dict[str, Any]:
    if not root.configuration.exists() or not _may_read(root.configuration, may, findings):
        return {}
    try:
        return read_configuration(root.configuration)
    except InvalidArgumentError as error:
        findings.append(finding("configuration-damaged", str(root.configuration), error.fact))
        return {}


def _may_read(path: Path, may: May, findings: list[Finding]) -> bool:
    if not may(path, os.R_OK):
        findings.append(finding("not-readable", str(path), f"This user may not read {path}.", path=str(path)))
        return False
    return True


def _over_database(
    root: Root,
    url: DatabaseUrl,
    configuration: dict[str, Any],
    where: Where,
    options: Options,
    findings: list[Finding],
) -> Opened:
    checked: tuple[str, ...] = ()
    if url.sqlite_path is not None:
        checked = (_SQLITE_CHECK,)
        if not _is_sound(url.sqlite_path, _around(options).may, findings):
            why = "the database can't be read"
            return Opened(None, tuple(findings), (Unchecked(EVERYTHING_ELSE, why),), checked)
    database = open_database(url)
    try:
        with database.read() as connection:
            version = read_version(connection)
            log_id = read_info(connection).log_id
        if version < SCHEMA_VERSION:
            database.close()
            findings.append(_old(where.shown, version))
            why = "the tables are an older release's"
            return Opened(None, tuple(findings), (Unchecked(EVERYTHING_ELSE, why),), checked)
        if isinstance(root, ObjectRoot):
            findings += _marker_of(root, log_id)
        clock = _around(options).service_clock or database.clock
        service = MetadataService(OnlyReads(database), str(root), clock=clock, configuration=configuration)
        stub = MetadataStub(InProcessTransport(service))
        stub.get_log()
        return Opened(Subject(Access(stub, root), where.shown, service, **options), tuple(findings), (), checked)
    except LogVersionError as error:
        database.close()
        findings.append(finding("log-version", where.shown, error.fact))
        return Opened(None, tuple(findings), (Unchecked(EVERYTHING_ELSE, "the log is of a newer release"),), checked)
    except BaseException:
        database.close()
        raise


def _around(options: Options) -> Surroundings:
    return options.get("surroundings") or Surroundings()


def _marker_of(root: ObjectRoot, log_id: str) -> Iterator[Finding]:
    there = log_id_at(root)
    if there != log_id:
        what = "has no txnlog.json" if there is None else f"is the root of the log {there}"
        fact = f"{root.shown} {what}, and the metadata is that of the log {log_id}."
        yield finding("root-of-another-log", root.shown, fact, root="main")


def _old(shown: str, version: int) -> Finding:
    fact = f"The tables have schema version {version}; this release's have {SCHEMA_VERSION}."
    return finding("schema-old", shown, fact, version=version)


def _is_sound(path: str, may: May, findings: list[Finding]) -> bool:
    """Look at a SQLite file; return whether it can be asked more."""
    if not os.path.isfile(path):
        findings.append(finding("database-missing", path, f"There is no file {path}."))
        return False
    if not _may_read(Path(path), may, findings):
        return False
    state = look_at(path)
    name = Path(path).name
    if state.faults:
        more = f" (and {len(state.faults) - 1} more)" if len(state.faults) > 1 else ""
        fact = f"SQLite's check of {path} says: {state.faults[0]}{more}."
        findings.append(finding("database-damaged", name, fact, faults=list(state.faults)))
    for table, parent, rows in state.references:
        fact = f"{rows} rows of the table {table} refer to rows of {parent} that aren't there."
        findings.append(finding("database-references", f"table {table}", fact, rows=rows))
    if state.log_bytes > max(_WAL_BYTES, state.bytes):
        fact = f"{path}-wal has {state.log_bytes:,} bytes, the database {state.bytes:,}."
        findings.append(finding("database-wal-large", f"{name}-wal", fact, bytes=state.log_bytes))
    return not state.faults


_WAL_BYTES = 256 << 20
"""SQLite merges its write-ahead log every few MB; so much waits for somebody."""
