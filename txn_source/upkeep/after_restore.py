"""A log whose database was put back to what it was by the database's own means goes on behind a gap."""

from __future__ import annotations

import os

from sqlalchemy import Connection, select

from txn_source.client.target import metadata_url, open_service
from txn_source.metadata.store.lost_future import gap_after, pass_over
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.tables import log_info
from txn_source.model.door import guard
from txn_source.storage.object_root import root_at


@guard
def after_restore(root: str | os.PathLike[str], metadata: str | None = None) -> str:
    """Let a log go on behind a gap after its database was restored by other means than ``restore``; return its id.

    Nothing that the log may have given out since the moment that it was put back to is given out again, as in a log
    that ``restore`` makes; but it keeps its id. Nobody else may use the log meanwhile.

    Args:
        root: the log's.
        metadata: the database of a log that has it in PostgreSQL.

    Raises:
        InvalidArgumentError: the metadata lies elsewhere.
        LogNotFoundError: there is no log.
        UnavailableError: the database can't be reached.
    """
    path = str(root_at(root))
    url = None if metadata is None else metadata_url(metadata)
    service = open_service(path, url)
    log_id = service.log_id
    service.close()
    database = open_database(url or f"sqlite:///{path}/metadata.db")
    try:
        now_us = database.clock()

        def go_on(connection: Connection) -> None:
            looked_at_ms = connection.execute(select(log_info.c.looked_at_ms)).scalar_one()
            pass_over(connection, now_us, gap_after(now_us - looked_at_ms * 1000 if looked_at_ms else 0))

        database.write(go_on)
    finally:
        database.close()
    return log_id
