"""Making a log of the copy of a log's database: in one write transaction it becomes another log, with an id of its own.

The log that was copied may live on. So nothing that both can reach is left to both, but for tiered objects outside of
the root: offloads under way and files to be deleted are the other one's, and so are its roots for copies.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from sqlalchemy import Connection, case, delete, select, update

from txn_source.metadata.store.lost_future import gap_after, pass_over, recovered
from txn_source.metadata.store.roots import all_roots
from txn_source.metadata.store.tables import (
    copies,
    doomed_files,
    log_info,
    policies,
    roots,
    segment_copies,
    short_entries,
)
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.policies import OF_COPIES
from txn_source.model.roots import MAIN, ONLY_MAIN, HotRoot


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


def promoted(connection: Connection, now_us: int, since_us: int, log_id: str, name: str) -> HotRoot:
    """Make another log of a log that has lost its own root: one of its roots for copies takes that one's place.

    What lay in the lost root isn't looked for there any more; what lay there alone is missing. Policies name the root
    as ``main`` now, and none asks for more copies than there are. ``since_us`` is the moment of the database.

    Raises:
        InvalidArgumentError: it has no root of that name.
    """
    root = next((each for each in all_roots(connection) if each.name == name), None)
    if root is None:
        raise InvalidArgumentError(f"The log has no root {name!r}.", "See whose the metadata is.")
    connection.execute(update(log_info).values(log_id=log_id))
    of = segment_copies.c.roots
    others = of.bitwise_and(~(root.bit | ONLY_MAIN))
    connection.execute(
        update(segment_copies).values(roots=others + case((of.bitwise_and(root.bit) != 0, ONLY_MAIN), else_=0))
    )
    connection.execute(delete(segment_copies).where(of.in_((0, ONLY_MAIN))))
    connection.execute(delete(roots).where(roots.c.root_id == root.root_id))
    _rename_in_policies(connection, name)
    recovered(connection, now_us, since_us)
    return root


def _rename_in_policies(connection: Connection, name: str) -> None:
    """Let policies name a root as ``main``; where that leaves fewer roots, fewer copies are acknowledged, too."""
    rows = connection.execute(select(policies).where(policies.c.name.in_(OF_COPIES))).all()
    counts, shrunk = {}, []
    for row in (row for row in rows if row.name == "hot_copies"):
        before = row.value.split(",")
        named = [MAIN if each == name else each for each in before if each != MAIN] or [MAIN]
        counts[row.scope] = len(named)
        if len(named) < len(before):
            shrunk.append(len(named))
        mine = (policies.c.scope == row.scope, policies.c.name == row.name)
        connection.execute(update(policies).where(*mine).values(value=",".join(named)))
    for row in (row for row in rows if row.name == "acknowledge_copies"):
        most = counts.get(row.scope, min(shrunk, default=int(row.value)))
        mine = (policies.c.scope == row.scope, policies.c.name == row.name)
        connection.execute(update(policies).where(*mine).values(value=str(min(int(row.value), most))))
