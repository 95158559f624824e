"""A log whose database was put back to what it was by the database's own means goes on behind a gap."""

from __future__ import annotations

import os

from txn_source.client.target import metadata_url, open_service
from txn_source.metadata.store.lost_future import pass_over_since_last_look
from txn_source.metadata.store.opening import open_database
from txn_source.model.door import guard
from txn_source.model.errors import InvalidArgumentError
from txn_source.storage.object_root import ObjectRoot, root_at
from txn_source.storage.root import LogRoot


@guard
def after_restore(root: str | os.PathLike[str], metadata: str | None = None) -> str:
    """Let a log go on behind a gap after its database was restored by other means than ``restore``; return its id.

    Nothing that the log may have given out since the moment that it was put back to is given out again, as in a log
    that ``restore`` makes; but it keeps its id. Nobody else may use the log meanwhile.

    Args:
        root: the log's.
        metadata: the database of a log that has it in PostgreSQL.

    Raises:
        InvalidArgumentError: the metadata lies elsewhere, or where it is wasn't said.
        LogNotFoundError: there is no log.
        UnavailableError: the database can't be reached.
    """
    place = root_at(root)
    path = str(place)
    if metadata is None and (isinstance(place, ObjectRoot) or LogRoot(place).id_on_postgres is not None):
        raise InvalidArgumentError(
            f"The metadata of the log at {path.partition('?')[0]} doesn't lie in its root.",
            "Say where it is (--metadata, or TXNLOG_METADATA).",
        )
    url = None if metadata is None else metadata_url(metadata)
    service = open_service(path, url, may_be_behind=True)
    log_id = service.log_id
    service.close()
    database = open_database(url or f"sqlite:///{path}/metadata.db")
    try:
        now_us = database.clock()
        database.write(lambda connection: pass_over_since_last_look(connection, now_us))
    finally:
        database.close()
    return log_id
