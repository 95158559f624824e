"""Who made what: producers, open transactions, streaming queries, and applications that number their writes.

Only a service that asks for tokens notes it. What has no row belongs to nobody: anybody may take it over by name, as
with a transactional id, and nobody may go on using it by its id.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, delete, insert, select, update

from txn_source.metadata.store.tables import is_in, owners, transactions
from txn_source.model.caller import Caller
from txn_source.model.errors import LimitExceededError, PermissionDeniedError, shown
from txn_source.model.kinds import OPEN

PRODUCER, TRANSACTION, QUERY, APPLICATION = "producer", "transaction", "query", "application"


def note(connection: Connection, kind: str, key: object, caller: Caller | None, topic_id: int | None = None) -> None:
    """Note that something new belongs to a caller; with a topic, as long as that is there."""
    if caller is not None:
        row = {"kind": kind, "key": str(key), "owner": caller.name, "topic_id": topic_id}
        connection.execute(insert(owners).values(row))


def take(
    connection: Connection, kind: str, key: object, caller: Caller | None, what: str, topic_id: int | None = None
) -> None:
    """Let a caller have something by its name: what is its own, nobody's, or, as an administrator, anybody's.

    Raises:
        PermissionDeniedError: it is another identity's; ``what`` says so.
    """
    if caller is None:
        return
    owner = owner_of(connection, kind, key)
    if owner is None:
        note(connection, kind, key, caller, topic_id)
    elif owner != caller.name:
        if not caller.admin:
            raise not_yours(what, owner, caller.name)
        is_it = (owners.c.kind == kind, owners.c.key == str(key))
        connection.execute(update(owners).where(*is_it).values(owner=caller.name))


def check(connection: Connection, kind: str, key: object, caller: Caller | None, what: str) -> None:
    """Raise PERMISSION_DENIED if something belongs to another identity than a caller that is no administrator."""
    if caller is None or caller.admin:
        return
    owner = owner_of(connection, kind, key)
    if owner is not None and owner != caller.name:
        raise not_yours(what, owner, caller.name)


def owner_of(connection: Connection, kind: str, key: object) -> str | None:
    """Return who made something; None: nobody is known."""
    query = select(owners.c.owner).where(owners.c.kind == kind, owners.c.key == str(key))
    found: str | None = connection.execute(query).scalar()
    return found


def check_open_transactions(connection: Connection, caller: Caller | None) -> None:
    """Raise LIMIT_EXCEEDED if a caller has as many open transactions as it may have."""
    if caller is None or caller.max_transactions is None:
        return
    limit = caller.max_transactions
    txns = connection.execute(select(transactions.c.txn).where(is_in(transactions.c.state, OPEN))).scalars().all()
    count = 0
    for start in range(0, len(txns), 1000):
        keys = [str(txn) for txn in txns[start : start + 1000]]
        mine = (owners.c.kind == TRANSACTION, owners.c.key.in_(keys), owners.c.owner == caller.name)
        count += len(connection.execute(select(owners.c.key).where(*mine)).all())
    if count >= limit:
        raise LimitExceededError(
            f"{shown(caller.name)} has {count} open transactions, and {limit} is the most that this service allows.",
            "End some first.",
        )


def forget_transactions(connection: Connection, txns: Iterable[int]) -> None:
    """Forget whose some transactions were, which are gone."""
    keys = [str(txn) for txn in txns]
    connection.execute(delete(owners).where(owners.c.kind == TRANSACTION, owners.c.key.in_(keys)))


def forget_producers(connection: Connection, producer_ids: Iterable[int]) -> None:
    """Forget whose some producers were, which are gone."""
    keys = [str(producer_id) for producer_id in producer_ids]
    connection.execute(delete(owners).where(owners.c.kind == PRODUCER, owners.c.key.in_(keys)))


def not_yours(what: str, owner: str | None, name: str) -> PermissionDeniedError:
    """Return the error of who uses what belongs to another identity, or to nobody."""
    whose = "nobody that is known" if owner is None else shown(owner)
    return PermissionDeniedError(
        f"{what} belongs to {whose}, and the token is of {shown(name)}.",
        "Use a token of its owner, or make one of your own.",
    )
