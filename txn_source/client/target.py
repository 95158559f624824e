"""Which log: a root in this file system, or a service's address. A small value that travels to workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txn_source.metadata.stub.credentials import PLAIN, Credentials
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import InvalidArgumentError, LogNotFoundError, StorageWriteError, UnavailableError
from txn_source.model.policies import parse_configuration
from txn_source.storage.object_root import ObjectRoot, Root, root_at
from txn_source.storage.object_uri import is_object_uri
from txn_source.storage.root import LogRoot

if TYPE_CHECKING:
    from txn_source.metadata.service.service import MetadataService
    from txn_source.metadata.store.database import Database
    from txn_source.metadata.store.database_url import DatabaseUrl
    from txn_source.metadata.stub.transport import Transport

DEFAULT_TIMEOUT_S = 30.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """An embedded log's path, or a remote one's endpoint; exactly one of them.

    ``metadata`` is where an embedded log on an object store has its metadata.
    """

    path: str | None
    endpoint: str | None
    create: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S
    credentials: Credentials = PLAIN
    """What the service is shown."""
    metadata: DatabaseUrl | None = None

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str] | None,
        endpoint: str | None,
        *,
        create: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        credentials: Mapping[str, Any] | None = None,
        metadata: str | os.PathLike[str] | None = None,
    ) -> Target:
        """Return the target of a path or an endpoint; both, or neither, is an error.

        ``credentials`` are the arguments of ``Credentials.of``, for an endpoint alone.
        """
        if (path is None) == (endpoint is None):
            given = "Neither a path nor an endpoint is" if path is None else "Both a path and an endpoint are"
            raise InvalidArgumentError(f"{given} given.", "Give the path of an embedded log or a service's endpoint.")
        if metadata is not None and (path is None or not is_object_uri(path)):
            raise InvalidArgumentError(
                "metadata= was given without the URI of an object store.",
                "Leave it out: a log in a folder has its metadata there, and a service knows where its own is.",
            )
        if path is None:
            return cls(None, endpoint, create, timeout_s, Credentials.of(**(credentials or {})))
        check_needless(credentials or {})
        url = None if metadata is None else metadata_url(metadata)
        return cls(str(root_at(path)), None, create, timeout_s, metadata=url)

    def __str__(self) -> str:
        return self.path or str(self.endpoint)

    def open(self) -> tuple[MetadataStub, str]:
        """Connect, making a new log if that is wanted; return the service's calls and where the segments lie."""
        stub = MetadataStub(self._transport())
        try:
            return stub, stub.get_log().storage_uri
        except BaseException:
            stub.close()
            raise

    def _transport(self) -> Transport:
        # Imported here, as in ``service``: a client has either gRPC, or SQLAlchemy and the whole service, which take
        # longer to load than all the rest. Spark starts processes that only read for every query.
        if self.endpoint is not None:
            from txn_source.metadata.stub.grpc_transport import GrpcTransport

            return GrpcTransport(self.endpoint, self.timeout_s, self.credentials)
        from txn_source.metadata.service.in_process import InProcessTransport

        return InProcessTransport(self.service())

    def service(self, configuration: Mapping[str, Any] | None = None) -> MetadataService:
        """Return the service over an embedded log's root.

        ``configuration`` are the broker's policies; None takes those in ``broker.conf`` in the root, if it is there.
        """
        assert self.path is not None
        return open_service(self.path, self.metadata, create=self.create, configuration=configuration)


def check_not_behind(root: Root, service: MetadataService) -> None:
    """Raise UNAVAILABLE if a snapshot of a log's metadata, or a mark, has come further than its database: that is an
    older one."""
    from txn_source.metadata.store.sqlite_backup import read_moment
    from txn_source.storage.snapshots import FOLDER, marked, snapshots_in

    if isinstance(root, Path) and not (root / FOLDER).is_dir():
        return
    if service.database_file is None:
        noted = marked(root, service.log_id)
        if noted is not None and noted[0] > service.progress:
            raise UnavailableError(
                f"The metadata database is older than what was noted of it in the log's root ({noted[1]}).",
                "Put the newer database back, or connect to the server that has it. If it is lost: run `txnlog"
                " after-restore`.",
            )
        return
    there = snapshots_in(root, service.log_id)
    if there and there[-1].progress > read_moment(service.database_file).progress:
        raise UnavailableError(
            f"The database {service.database_file} is older than a snapshot of it that was made at {there[-1].shown}"
            f" ({there[-1].path}).",
            "Put the newer database back. If it is lost, move this one away and run `txnlog recover`; if an older one"
            " was put back on purpose, run `txnlog after-restore`.",
        )


def check_needless(credentials: Mapping[str, Any]) -> None:
    """Raise INVALID_ARGUMENT for what would be shown to a service, of a log that has none."""
    needless = sorted(name for name, value in credentials.items() if value is not None)
    if needless:
        raise InvalidArgumentError(
            f"A log without a service asks for no {needless[0]}: whoever can read its files can read the log.",
            "Leave it out, or give the endpoint of a service.",
        )


def open_service(
    path: str,
    metadata: DatabaseUrl | None,
    *,
    create: bool = False,
    configuration: Mapping[str, Any] | None = None,
    may_be_behind: bool = False,
) -> MetadataService:
    """Return the service over a root.

    Args:
        path: the root, or its URI on an object store.
        metadata: the database that the metadata lies in: PostgreSQL, or SQLite if the root is on an object store. None
            is SQLite under the root.
        create: make a new log if there is none.
        configuration: the broker's policies; None takes those in ``broker.conf`` in the root, if it is there.
        may_be_behind: open a database that is older than a snapshot of it, too.

    Raises:
        InvalidArgumentError: the metadata lies elsewhere, or the database is another log's.
        LogNotFoundError: there is no log.
        LogVersionError: it is of another release.
        UnavailableError: the database can't be reached, or is older than a snapshot of it.
    """
    from txn_source.metadata.service.service import MetadataService
    from txn_source.metadata.store.opening import open_database
    from txn_source.metadata.store.schema_versions import upgrade

    if is_object_uri(path):
        prefix = ObjectRoot.at(path)
        service = _open_over_objects(prefix, metadata, create=create, configuration=configuration or {})
        return service if may_be_behind else _not_behind(prefix, service)
    root = LogRoot.at(path)
    if metadata is not None and not metadata.is_postgres:
        raise InvalidArgumentError(
            f"The metadata database {metadata} is not PostgreSQL.",
            "Use postgresql://<user>@<host>/<database>, or leave it out: then it is SQLite in the root.",
        )
    if root.exists:
        root.check()
        if metadata is None:
            root.check_embedded()
            root.check_database()
    database = open_database(metadata or root.database_url)
    try:
        if create and not root.exists:
            root.check_creatable()
            root.make_folder()
            log_id = None if metadata is None else root.claim()
            from txn_source.metadata.store.log import create_log

            with nullcontext() if metadata is None else _naming_other_roots(database):
                create_log(database, log_id)
            root.finish(log_id)
            _log.info("made a new log at %s", root.path)
        with nullcontext() if metadata is None else _naming_other_roots(database):
            root.check()
        if metadata is not None:
            from txn_source.metadata.store.log import check_log

            check_log(database, root.check_on_postgres())
            root.retire_database()  # a migration may have ended just before
        try:
            upgrade(database)
        finally:  # once more, with the file open: another process may just have made the log, or moved its metadata
            if metadata is None:
                root.check_embedded()
    except BaseException:
        database.close()
        raise
    with nullcontext() if create else suppress(StorageWriteError):  # whoever only reads can do without
        root.settle()
    if configuration is None:
        configuration = read_configuration(root.configuration) if root.configuration.exists() else {}
    service = MetadataService(database, str(root.path), clock=database.clock, configuration=configuration)
    return service if may_be_behind else _not_behind(root.path, service)


def _not_behind(root: Root, service: MetadataService) -> MetadataService:
    try:
        check_not_behind(root, service)
    except BaseException:
        service.close()
        raise
    return service


@contextmanager
def _naming_other_roots(database: Database) -> Iterator[None]:
    """Say of a root that isn't there which others of its log may take its place."""
    try:
        yield
    except (LogNotFoundError, InvalidArgumentError) as error:
        from txn_source.metadata.store.roots import all_roots

        try:
            with database.read() as connection:
                others = [root.uri.partition("?")[0] for root in all_roots(connection)]
        except Exception:  # a database without a log
            others = []
        if not others:
            raise
        more = f" If the log's own root is lost, and not just away: `txnlog roots promote {others[0]}` with the same"
        raise type(error)(
            error.fact, f"{error.remedy}{more} --metadata. The log's roots for copies are {', '.join(others)}."
        ) from None


def _open_over_objects(
    root: ObjectRoot, metadata: DatabaseUrl | None, *, create: bool, configuration: Mapping[str, Any]
) -> MetadataService:
    """Return the service over a root on an object store; its metadata says which log it is, and the marker agrees.

    A new log is its metadata first and then its marker, so an interruption leaves what the next try goes on with. A
    marker without its metadata, or metadata in use or of another prefix without its marker, are of other logs: nothing
    is made of them.
    """
    from txn_source.metadata.service.service import MetadataService
    from txn_source.metadata.store.log import create_log
    from txn_source.metadata.store.log_identity import read_info
    from txn_source.metadata.store.opening import open_database
    from txn_source.metadata.store.schema_versions import upgrade
    from txn_source.metadata.store.topics import names
    from txn_source.storage.object_store import check_folder
    from txn_source.storage.root_marker import check_marker, claim, is_made_for, log_id_at, new_log_id

    if metadata is None:
        raise InvalidArgumentError(
            f"The log at {root.shown} is on an object store, which can't hold its metadata.",
            "Connect to its service by endpoint=, as Spark does, too. Or name a file or a PostgreSQL database:"
            " metadata='/folder/log.db' or 'postgresql://...' (`txnlog serve --metadata`, or TXNLOG_METADATA).",
        )
    if not create and (path := metadata.sqlite_path) is not None and not os.path.isfile(path):
        raise LogNotFoundError(
            f"There is no metadata in {path}.",
            "Check the path of the metadata; if it is lost: `txnlog recover`.",
        )
    check_folder(root.uri)
    database = open_database(metadata)
    try:
        found = log_id_at(root)
        if create and found is None:
            create_log(database, new_id=new_log_id(root))
        with database.read() as connection:
            log_id = read_info(connection).log_id
            is_used = bool(names(connection, None))
        if create and found is None and not is_used and is_made_for(root, log_id):
            claim(root, log_id)
        with _naming_other_roots(database):
            check_marker(root, log_id)
        upgrade(database)
    except BaseException:
        database.close()
        raise
    return MetadataService(database, root.uri, clock=database.clock, configuration=configuration)


def metadata_url(text: str | os.PathLike[str]) -> DatabaseUrl:
    """Return the database that a path or a URL names."""
    from txn_source.metadata.store.database_url import DatabaseUrl

    given = os.fspath(text)
    if "://" in given:
        return DatabaseUrl(given)
    if not given:
        raise InvalidArgumentError("The path of the metadata is empty.", "Name a file, or postgresql://...")
    return DatabaseUrl(f"sqlite:///{Path(given).expanduser().absolute()}")


def reachable(target: object, storage_uri: str, *, has_others: bool = False) -> Root:
    """Return where the segments lie; clients of a service must reach it by the same path or URI as the service.

    Of an object store nothing is asked for now: what can't be read or written says why. So it is with a folder if there
    are other roots (``has_others``).
    """
    if is_object_uri(storage_uri):
        return ObjectRoot.at(storage_uri)
    root = LogRoot.at(storage_uri)
    try:
        root.check()
    except LogNotFoundError as error:
        if has_others:
            return root.path
        raise LogNotFoundError(
            f"The log of the service at {target} lies at {storage_uri}, which this machine doesn't have.",
            "Mount the service's root at the same path here: clients read and write segments themselves.",
        ) from error
    return root.path


def read_configuration(path: Path) -> dict[str, Any]:
    """Return the broker's policies that a configuration file sets.

    Raises:
        InvalidArgumentError: it can't be read, or has a setting or value that can't be.
    """
    try:
        return parse_configuration(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(
            f"The configuration {path} can't be read: {error}.", "Check the path and the file."
        ) from error
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{path}: {error.fact}", error.remedy) from None
