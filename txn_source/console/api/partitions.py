"""Partitions as strips, and the ledgers of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request

from txn_source.console.drawing import drawn, ledger_of
from txn_source.console.query import MAX_LIMIT, flag, number, page, text
from txn_source.console.viewer import Viewer
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.figures import PartitionFigures
from txn_source.metadata.store.strips import Strip, last_before, ledgers_of, strip
from txn_source.model.errors import TopicNotFoundError
from txn_source.model.position import entry_of, text_of
from txn_source.model.position import ledger_of as ledger_in
from txn_source.model.transaction import id_of

_IN_LISTS = 100
_ALONE = 200
_LOOKED_AT = 1000


def partitions(request: Request, viewer: Viewer) -> Any:
    """List the partitions of a topic, or of all; each with its strip, but ``?strips=0``."""
    name = request.query_params.get("topic")
    topics = [viewer.topic(name)] if name else viewer.topics()
    parts = {part.partition_id: part for topic in topics for part in topic.partitions}
    rows = [row_of(part, viewer) for part in parts.values()]
    found = page(request, rows, viewer.snapshot.now_ms, ["topic", "partition"])
    shown = found["rows"]
    if request.query_params.get("strips") is None or flag(request, "strips"):
        strips = strips_of(viewer, [parts[row["id"]] for row in shown], _IN_LISTS)
        found["rows"] = [{**row, "strip": strips[row["id"]]} for row in shown]
    return found


def partition(request: Request, viewer: Viewer) -> Any:
    """Describe one partition."""
    found = one(request, viewer)
    strips = strips_of(viewer, [found], _ALONE)
    row = row_of(found, viewer) | {"strip": strips[found.partition_id]}
    return {"now_ms": viewer.snapshot.now_ms, **row, "max_read": _max_read(found, viewer)}


def ledgers(request: Request, viewer: Viewer) -> Any:
    """List the ledgers of a partition, the last one first."""
    of = one(request, viewer).partition_id
    offset, limit = number(request, "offset", 0), number(request, "limit", 100, 1, MAX_LIMIT)
    total, found = viewer.service.look(lambda connection: ledgers_of(connection, of, offset, limit))
    times = ("created_at_ms", "closed_at_ms", "offloaded_at_ms")
    rows = [ledger_of(each) | {name: getattr(each, name) for name in times} for each in found]
    _hide_places(rows, of, viewer)
    return {"now_ms": viewer.snapshot.now_ms, "total": total, "rows": rows}


def one(request: Request, viewer: Viewer) -> PartitionFigures:
    """Return the partition that a request names."""
    topic, index = viewer.topic(text(request, "topic")), number(request, "partition", 0)
    for part in topic.partitions:
        if part.index == index:
            return part
    raise TopicNotFoundError(
        f"Topic {topic.name.short!r} has no partition {index}.", f"It has {len(topic.partitions)}, numbered from 0."
    )


def strips_of(viewer: Viewer, parts: Iterable[PartitionFigures], most: int) -> dict[int, Any]:
    """Return the strips of some partitions, by their ids."""
    wanted = list(parts)
    depth = _LOOKED_AT if len(wanted) == 1 else most

    def look(connection: Connection) -> dict[int, Strip]:
        return {part.partition_id: strip(connection, part.partition_id, depth) for part in wanted}

    found, firsts = viewer.service.look(look), viewer.snapshot.first_blockers
    made = {}
    for part in wanted:
        first = firsts.get(part.partition_id)
        made[part.partition_id] = drawn(part, found[part.partition_id], None if first is None else first.txn, most)
        _hide_places(made[part.partition_id]["ledgers"], part.partition_id, viewer)
    return made


def _hide_places(ledgers: Iterable[dict[str, Any]], partition_id: int, viewer: Viewer) -> None:
    """Leave out where objects lie, unless the visitor may know."""
    if not viewer.has_role(viewer.snapshot.topic_of(partition_id)):
        for ledger in ledgers:
            ledger["tier_uri"] = None


def row_of(part: PartitionFigures, viewer: Viewer) -> dict[str, Any]:
    """Return a partition's row, without its strip."""
    first = viewer.snapshot.first_blockers.get(part.partition_id)
    blocker = None
    if first is not None:
        names = viewer.producers(first.txn)
        blocker = {
            "txn": str(id_of(first.txn)),
            "producer": names[0] if names else None,
            "since_ms": first.created_at_ms,
        }
    return {
        "id": part.partition_id,
        "topic": viewer.snapshot.topic_of(part.partition_id).short,
        "partition": part.index,
        "log_start": text_of(part.log_start),
        "last_stable": text_of(part.last_stable),
        "high_watermark": text_of(part.high_watermark),
        "log_end": text_of(part.log_end),
        "messages": part.messages - part.messages_trimmed,
        "bytes": part.bytes - part.bytes_trimmed,
        "held_back_messages": part.held_back_messages,
        "held_back_bytes": part.held_back_bytes,
        "short_messages": part.short_messages,
        "since_ms": part.waits_since_us // 1000 if part.waits_since_us else None,
        "last_publish_ms": part.last_publish_time_us // 1000 or None,
        "blocker": blocker,
    }


def _max_read(part: PartitionFigures, viewer: Viewer) -> str:
    """Return the last position, inclusive, that read_committed may read, as Pulsar tells it."""
    ledger_id, entry_id = ledger_in(part.last_stable), entry_of(part.last_stable)
    if entry_id or part.last_stable == part.log_start:
        return f"{ledger_id}:{entry_id - 1}"
    last = viewer.service.look(lambda connection: last_before(connection, part.partition_id, ledger_id))
    return f"{last[0]}:{last[1] - 1}" if last else f"{ledger_id}:-1"
