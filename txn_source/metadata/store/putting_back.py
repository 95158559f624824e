"""Making a log of the copy of a log's database: in one write transaction it becomes another log, with an id of its own.

The log that was copied may live on. So nothing that both can reach is left to both, but for tiered objects outside of
the root: offloads under way and files to be deleted are the other one's, and so are its roots for copies.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from sqlalchemy import Connection, delete, update

from txn_source.metadata.store.lost_future import gap_after, pass_over
from txn_source.metadata.store.tables import (
    copies,
    doomed_files,
    log_info,
    policies,
    roots,
    segment_copies,
    short_entries,
)
from txn_source.model.policies import OF_COPIES


def put_back(connection: Connection, now_us: int, taken_at_us: int, moved: Mapping[int, str]) -> str:
    """Make another log of the copy of a log, and return its id.

    ``taken_at_us`` is the moment of the copy. All segments lie in the log's own root, and ``moved`` says where tiered
    copies lie that aren't where they were, by id.
    """
    log_id = uuid.uuid4().hex
    connection.execute(update(log_info).values(log_id=log_id))
    for table in (doomed_files, short_entries, segment_copies, roots):
        connection.execute(delete(table))
    connection.execute(delete(policies).where(policies.c.name.in_(OF_COPIES)))
    connection.execute(delete(copies).where(copies.c.complete == 0))
    for copy_id, uri in moved.items():
        connection.execute(update(copies).where(copies.c.copy_id == copy_id).values(uri=uri))
    pass_over(connection, now_us, gap_after(now_us - taken_at_us))
    return log_id
