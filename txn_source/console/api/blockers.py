"""Who blocks whom: the open transactions, what each holds back, and ending one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from txn_source.console.query import given, page
from txn_source.console.viewer import Viewer
from txn_source.metadata.store.figures import Blocker
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.position import text_of
from txn_source.model.transaction import TxnId, id_of

_SHOWN = 20


def blockers(request: Request, viewer: Viewer) -> Any:
    """List the open transactions that wrote to topics which the visitor sees, the oldest one first."""
    rows = [row for txn, found in viewer.snapshot.blockers.items() if (row := _row(txn, found, viewer)) is not None]
    found = page(request, rows, viewer.snapshot.now_ms, ["txn", "producer", "owner", "topics"])
    found["rows"] = [
        row | {name: row[name][:_SHOWN] for name in ("partitions", "subscriptions")} for row in found["rows"]
    ]
    return found


def abort(body: bytes, viewer: Viewer) -> Any:
    """Abort a transaction by force, as an operator; what it wrote is lost, what waited for it is released.

    An aborted one is answered likewise.

    Raises:
        TransactionEndedError: it was committed meanwhile.
        PermissionDeniedError: it is another's, and the visitor has no role admin for all of its topics.
    """
    txn = given(body, ["txn"])["txn"]
    if not isinstance(txn, str):
        raise InvalidArgumentError(f"{txn!r:.80} is not a transaction id.", 'Write it as "(0,7)".')
    id = TxnId.parse(txn)
    viewer.look_again()
    before = {each.partition_id: each for each in viewer.snapshot.blockers.get(id.least_sig_bits, ())}
    stable = {key: viewer.snapshot.partitions[key].messages_before_stable for key in before}
    viewer.access.metadata.end_transaction(id, commit=False, forced=True)
    viewer.look_again()
    released = []
    for key, blocker in before.items():
        now = viewer.snapshot.partitions.get(key)
        if now is None or not viewer.sees(topic := viewer.snapshot.topic_of(key)):
            continue
        readable = max(0, now.messages_before_stable - stable[key] - blocker.messages)
        released.append({"topic": topic.short, "partition": now.index, "messages": readable})
    return {"txn": str(id), "state": "aborted", "released": released}


def _row(txn: int, found: Sequence[Blocker], viewer: Viewer) -> dict[str, Any] | None:
    """Return what a transaction does to the topics that the visitor sees; None: nothing."""
    snapshot = viewer.snapshot
    topics = {each.partition_id: snapshot.topic_of(each.partition_id) for each in found}
    seen = [each for each in found if viewer.sees(topics[each.partition_id])]
    if not seen:
        return None
    began, producers = snapshot.began.get(txn), viewer.producers(txn)
    owner = None if began is None else began.owner
    is_own = viewer.visitor.known and owner == viewer.visitor.name
    partitions = [
        {
            "topic": topics[each.partition_id].short,
            "partition": snapshot.partitions[each.partition_id].index,
            "first_position": text_of(each.first_position),
            "held_back_messages": each.held_back_messages,
            "held_back_bytes": each.held_back_bytes,
            "own_messages": each.messages,
            "own_bytes": each.bytes,
            "is_first": each.is_first,
        }
        for each in sorted(seen, key=lambda each: (-each.held_back_messages, each.partition_id))
    ]
    subscriptions = _subscriptions(seen, viewer)
    return {
        "txn": str(id_of(txn)),
        "producer": producers[0] if producers else None,
        "producers": producers,
        "owner": owner,
        "started_ms": seen[0].created_at_ms,
        "deadline_ms": seen[0].deadline_ms,
        "topics": sorted({topics[each.partition_id].short for each in seen}),
        "partitions": partitions,
        "partitions_total": len(partitions),
        "held_back_messages": sum(each.held_back_messages for each in seen),
        "held_back_bytes": sum(each.held_back_bytes for each in seen),
        "own_messages": sum(each.messages for each in seen),
        "own_bytes": sum(each.bytes for each in seen),
        "subscriptions": subscriptions,
        "subscriptions_total": len(subscriptions),
        "may_abort": is_own or viewer.administers(set(topics.values())),
    }


def _subscriptions(seen: Sequence[Blocker], viewer: Viewer) -> list[dict[str, Any]]:
    """Return the read_committed subscriptions that wait behind a transaction, those with most messages first."""
    waiting: dict[int, dict[str, Any]] = {}
    for each in seen:
        topic = viewer.snapshot.topic_of(each.partition_id)
        if not viewer.sees_subscriptions(topic):
            continue
        for subscription in viewer.snapshot.waiting.get(each.partition_id, ()):
            row = {"topic": topic.short, "name": subscription.name, "waiting_messages": 0}
            waiting.setdefault(subscription.subscription_id, row)["waiting_messages"] += each.held_back_messages
    return sorted(waiting.values(), key=lambda row: (-row["waiting_messages"], row["topic"], row["name"]))
