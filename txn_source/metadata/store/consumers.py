"""Consumers that are connected to subscriptions, each with a lease that ends soon after its service does."""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, bindparam, delete, select, update

from txn_source.metadata.store import deliveries as handed_out
from txn_source.metadata.store.database import note_change
from txn_source.metadata.store.prepared import Lookup, Prepared
from txn_source.metadata.store.subscription_rows import ConnectedConsumer, Lease, Subscription
from txn_source.metadata.store.tables import consumers, subscriptions
from txn_source.model.errors import SubscriptionBusyError
from txn_source.model.message_ranges import MessageRange
from txn_source.model.subscription import SubscriptionType

LEASE_MS = 15_000
RENEW_MS = LEASE_MS // 3
_IDS_AT_ONCE = 1000
C = TypeVar("C", ConnectedConsumer, Lease)


@cache
def _machine() -> str:
    """Name what two processes must share to see each other's process ids."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            parts.append(os.readlink(path) if path.endswith("pid") else Path(path).read_text().strip())
        except OSError:
            parts.append("")
    return "/".join(parts)


def here() -> str:
    """Name this process to those that look at its leases."""
    return f"{_machine()}|{os.getpid()}"


def gone(host: str) -> bool:
    """True if it is sure that the process has ended. One whose id was given anew is taken for alive: its lease ends."""
    machine, _, pid = host.rpartition("|")
    if machine != _machine() or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _is_zombie(int(pid))


def _is_zombie(pid: int) -> bool:
    """True if a process has ended and its parent hasn't taken notice, for which some containers take long."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False


def connected(connection: Connection, subscription_id: int, token: str | None = None) -> list[ConnectedConsumer]:
    """Return a subscription's consumers in the order in which they came, or those of a token; the lease may be over."""
    query = _OF if token is None else _OF_TOKEN
    rows = query.rows(connection, {"subscription_id": subscription_id, "token": token})
    return [ConnectedConsumer(*row) for row in rows]


def is_connected(connection: Connection, subscription_id: int, consumer_id: int) -> bool:
    """True if a consumer is one of a subscription's; its lease may be over."""
    return bool(_IS_OF.rows(connection, {"subscription_id": subscription_id, "consumer_id": consumer_id}))


def leases(connection: Connection, subscription_ids: Iterable[int]) -> Mapping[int, list[Lease]]:
    """Return the leases of subscriptions' consumers, by subscription, in the order in which these came."""
    found: dict[int, list[Lease]] = defaultdict(list)
    for row in sorted(_LEASES.rows(connection, subscription_ids)):
        found[row[0]].append(Lease(*row))
    return found


def alive(found: Iterable[C], now_ms: int) -> list[C]:
    """Return those whose lease still runs."""
    running = [consumer for consumer in found if consumer.lease_until_ms > now_ms]
    ended = {host for host in {consumer.host for consumer in running} if gone(host)}
    return [consumer for consumer in running if consumer.host not in ended]


def register(
    connection: Connection,
    subscription: Subscription,
    token: str,
    name: str,
    now_ms: int,
    received: Sequence[tuple[int, Sequence[MessageRange]]] | None = None,
    *,
    counts: bool = False,
) -> tuple[int, bool]:
    """Connect a consumer; return its id, and True if it gets messages only when others have gone.

    ``received``: the ranges, by partition id, that the consumer received over its connection before; only these count
    as delivered. None: it reports nothing. ``counts``: it counts what comes again before it hands it out.

    Raises:
        SubscriptionBusyError: an exclusive subscription has a consumer.
    """
    # Of a shared one the others don't matter, and there may be thousands.
    shared = subscription.type is SubscriptionType.SHARED
    found = connected(connection, subscription.subscription_id, token if shared else None)
    others = [row for row in alive(found, now_ms) if row.token != token]
    if others and subscription.type is SubscriptionType.EXCLUSIVE:
        raise SubscriptionBusyError(
            f"Subscription {subscription.name!r} is exclusive, and consumer {others[0].name!r} is connected to it.",
            "Close that consumer (after a crash it goes by itself within 15 s), or use another subscription.",
        )
    row = {"subscription_id": subscription.subscription_id, "token": token, "name": name, "host": here()}
    row |= {"connected_at_ms": now_ms, "lease_until_ms": now_ms + LEASE_MS}
    [(consumer_id,)] = _INSERT.rows(connection, row)
    kept = {other.consumer_id for other in others}
    for older in found:  # only now: an undurable subscription goes with its last consumer
        if older.consumer_id not in kept:
            mine = received if older.token == token else None
            if mine is not None:
                handed_out.redeliver(connection, subscription, older.consumer_id, mine, counts=counts)
            remove(connection, older.consumer_id, reported=mine is not None)
    remove_lapsed(connection, now_ms)  # of other subscriptions, too: nobody else may ever look at these
    return consumer_id, bool(others)


def renew(connection: Connection, unacknowledged: Mapping[int, int], now_ms: int) -> None:
    """Lengthen the leases of consumers, by id, and note how many messages each has not acknowledged."""
    ids = sorted(unacknowledged)
    for start in range(0, len(ids), _IDS_AT_ONCE):
        some = ids[start : start + _IDS_AT_ONCE]
        of_these = consumers.c.consumer_id.in_(some)
        connection.execute(update(consumers).where(of_these).values(lease_until_ms=now_ms + LEASE_MS))
        known = connection.execute(select(consumers.c.consumer_id, consumers.c.unacknowledged).where(of_these))
        changed = [{"id": i, "messages": unacknowledged[i]} for i, messages in known if messages != unacknowledged[i]]
        if changed:
            connection.execute(_NOTE, changed)


def remove(connection: Connection, consumer_id: int, *, reported: bool = False) -> None:
    """Disconnect a consumer: what was handed out to it is handed out again; an undurable subscription goes with it.

    ``reported``: the consumer has said what it received, and that was counted.
    """
    found = _SUBSCRIPTION.rows(connection, {"consumer_id": consumer_id})
    if not found:
        return
    [(subscription_id, topic_id, durable)] = found
    _REMOVE.run(connection, {"consumer_id": consumer_id})
    handed_out.give_back(connection, subscription_id, consumer_id, reported=reported)
    note_change(connection, topic_id, subscription_id)
    if not durable and not connected(connection, subscription_id):
        connection.execute(delete(subscriptions).where(subscriptions.c.subscription_id == subscription_id))


def remove_lapsed(connection: Connection, now_ms: int, subscription_id: int | None = None) -> None:
    """Disconnect the consumers whose leases are over, of one subscription or of all."""
    for consumer_id in lapsed(connection, now_ms, subscription_id):
        remove(connection, consumer_id)


def remove_forgotten(connection: Connection, now_ms: int) -> None:
    """Disconnect the consumers that nobody will miss; undurable subscriptions go with them."""
    for consumer_id in forgotten(connection, now_ms):
        remove(connection, consumer_id)


def lapsed(connection: Connection, now_ms: int, subscription_id: int | None = None) -> list[int]:
    """Return the consumers whose leases are over, or whose processes on this machine have ended, by id."""
    found = {*_OVER.rows(connection, {"now_ms": now_ms}), *_of_ended(connection)}
    return sorted(consumer for consumer, of in found if subscription_id in (None, of))


def forgotten(connection: Connection, now_ms: int) -> list[int]:
    """Return the lapsed consumers, by id, but for those of durable subscriptions whose process may go on.

    Such a one connects again as soon as it hears that it was removed, and would take the place of who was to follow it.
    """
    found = {*_OVER_UNDURABLE.rows(connection, {"now_ms": now_ms}), *_of_ended(connection)}
    return sorted(consumer for consumer, _ in found)


def _of_ended(connection: Connection) -> list[tuple[int, int]]:
    """Return the consumers, with their subscriptions, whose processes have ended."""
    return _OF_HOSTS.rows(connection, [host for (host,) in _HOSTS.rows(connection, {}) if gone(host)])


_CONSUMER = "SELECT consumer_id, token, name, host, connected_at_ms, lease_until_ms, unacknowledged FROM consumers"
_OF = Prepared(f"{_CONSUMER} WHERE subscription_id = :subscription_id ORDER BY consumer_id")
_OF_TOKEN = Prepared(f"{_CONSUMER} WHERE subscription_id = :subscription_id AND token = :token ORDER BY consumer_id")
_IS_OF = Prepared(
    "SELECT consumer_id FROM consumers WHERE subscription_id = :subscription_id AND consumer_id = :consumer_id"
)
_LEASES = Lookup(
    "SELECT subscription_id, consumer_id, lease_until_ms, host FROM consumers WHERE subscription_id IN (:values)"
)
_INSERT = Prepared("""
    INSERT INTO consumers (subscription_id, token, name, host, connected_at_ms, lease_until_ms, unacknowledged)
    VALUES (:subscription_id, :token, :name, :host, :connected_at_ms, :lease_until_ms, 0)
    RETURNING consumer_id""")
_REMOVE = Prepared("DELETE FROM consumers WHERE consumer_id = :consumer_id")
_SUBSCRIPTION = Prepared("""
    SELECT subscriptions.subscription_id, subscriptions.topic_id, subscriptions.durable
    FROM consumers JOIN subscriptions ON subscriptions.subscription_id = consumers.subscription_id
    WHERE consumers.consumer_id = :consumer_id""")
_OVER = Prepared("SELECT consumer_id, subscription_id FROM consumers WHERE lease_until_ms <= :now_ms")
_OVER_UNDURABLE = Prepared("""
    SELECT consumers.consumer_id, consumers.subscription_id
    FROM consumers JOIN subscriptions ON subscriptions.subscription_id = consumers.subscription_id
    WHERE consumers.lease_until_ms <= :now_ms AND subscriptions.durable = 0""")
_HOSTS = Prepared("SELECT DISTINCT host FROM consumers")
_OF_HOSTS = Lookup("SELECT consumer_id, subscription_id FROM consumers WHERE host IN (:values)")
_NOTE = update(consumers).where(consumers.c.consumer_id == bindparam("id")).values(unacknowledged=bindparam("messages"))
