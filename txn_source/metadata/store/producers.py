"""Producers in the database: opening with fencing, and registering what they wrote."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from txn_source.metadata.store import owners, transactions
from txn_source.metadata.store.tables import producers
from txn_source.model.caller import Caller
from txn_source.model.entry import OpenedProducer
from txn_source.model.errors import InvalidArgumentError, shown
from txn_source.model.transaction import EndReason


def open_producer(
    connection: Connection,
    topic_id: int,
    transactional_id: str | None,
    name: str | None,
    now_us: int,
    caller: Caller | None = None,
) -> OpenedProducer:
    """Register a producer of a topic, which belongs to the caller.

    With a transactional id that is known already it gets the next epoch, which fences the older producer, and the
    transactions that the older one left open are aborted. It is a producer of its own: its sequences begin anew, and
    what the older one stored keeps that one's name.

    Raises:
        PermissionDeniedError: the transactional id is another identity's.
    """
    if transactional_id == "":
        raise InvalidArgumentError("The transactional id is empty.", "Give it a name, or leave it out.")
    name = name or transactional_id or f"producer-{uuid.uuid4().hex[:12]}"
    epoch = 0
    if transactional_id is not None:
        older = _newest(connection, topic_id, transactional_id)
        if older is not None:
            what = f"The transactional id {shown(transactional_id)}"
            owners.check(connection, owners.PRODUCER, older.producer_id, caller, what)
            for txn in transactions.open_of_producer(connection, older.producer_id):
                transactions.end(connection, txn, commit=False, reason=EndReason.FENCED, now_us=now_us)
            epoch = older.epoch + 1
    values = {"topic_id": topic_id, "name": name, "transactional_id": transactional_id, "epoch": epoch}
    key = connection.execute(insert(producers).values(values)).inserted_primary_key
    assert key is not None
    owners.note(connection, owners.PRODUCER, key[0], caller, topic_id)
    return OpenedProducer(int(key[0]), epoch, name)


def _newest(connection: Connection, topic_id: int, transactional_id: str) -> Row[Any] | None:
    """Return the producer that holds a transactional id; ids are per topic."""
    query = select(producers).where(producers.c.topic_id == topic_id, producers.c.transactional_id == transactional_id)
    return connection.execute(query.order_by(producers.c.epoch.desc()).limit(1)).first()
