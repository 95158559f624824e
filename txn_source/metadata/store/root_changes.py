"""Changes of hot roots and of what lies in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from txn_source.metadata.store import policies, topics
from txn_source.metadata.store.database import note_change
from txn_source.metadata.store.roots import all_roots, copies_of, known_bits
from txn_source.metadata.store.tables import entries, roots, segment_copies, segments, short_entries
from txn_source.metadata.store.tables import policies as policy_rows
from txn_source.metadata.store.tables import topics as topic_rows
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.policies import Scope
from txn_source.model.roots import MAIN, MAX_ROOT_ID, ONLY_MAIN, HotRoot, hot_copies, parse_root_name
from txn_source.model.topic_name import TopicName

PAGE_SEGMENTS = 5000
_PORTION = 500


@dataclass(frozen=True, slots=True)
class HotSegment:
    """A segment: the set of the roots that have it, where its last entry ends (exclusive), and how many it has."""

    segment_id: int
    path: str
    roots: int
    end: int
    entries: int


@dataclass(frozen=True, slots=True)
class RootChange:
    """What was found, or made, of a segment: sets of roots that have all entries below ``end``, or lack some."""

    path: str
    added: int
    removed: int
    end: int


def add(connection: Connection, name: str, uri: str) -> HotRoot:
    """Add a root, or return the one that is there with this name and place.

    Raises:
        InvalidArgumentError: the name or the place is another root's, or there were too many.
    """
    parse_root_name(name)
    if name == MAIN:
        raise InvalidArgumentError(f"{MAIN} is the log's own root.", "Choose another name.")
    there = all_roots(connection)
    for root in there:
        if (root.name, root.uri) == (name, uri):
            return root
        if root.name == name or root.uri == uri:
            raise InvalidArgumentError(
                f"There is a root {root.name!r} at {root.uri.partition('?')[0]}.",
                "Choose another name and place; a root is moved by adding the new place and removing the old one.",
            )
    key = connection.execute(insert(roots).values(name=name, uri=uri)).inserted_primary_key
    assert key is not None
    if key[0] > MAX_ROOT_ID:
        raise InvalidArgumentError(f"A log can have {MAX_ROOT_ID} roots in its life.", "Use those that are there.")
    return HotRoot(int(key[0]), name, uri)


def remove(connection: Connection, name: str, configured: Mapping[str, Any]) -> None:
    """Remove a root, with all references to what lies there.

    Raises:
        InvalidArgumentError: there is none, or a policy names it, or something lies there alone.
    """
    root = next((root for root in all_roots(connection) if root.name == name), None)
    if root is None:
        why = "is the log's own root" if name == MAIN else "is no root of this log"
        raise InvalidArgumentError(f"{name!r:.80} {why}.", "Check it against `txnlog roots list`.")
    named = connection.execute(select(policy_rows).where(policy_rows.c.name == "hot_copies")).all()
    scopes = [_shown(connection, row.scope) for row in named if name in row.value.split(",")]
    if name in str(configured.get("hot_copies", "")).split(","):
        scopes.append("the broker's configuration")
    if scopes:
        more = f" and {len(scopes) - 1} more" if len(scopes) > 1 else ""
        raise InvalidArgumentError(
            f"The policy hot_copies of {scopes[0]}{more} names the root {name!r}.",
            "Set it to other roots first, and let `txnlog maintain` copy what lies there.",
        )
    live = (segments.c.deleted == 0, segments.c.segment_id == segment_copies.c.segment_id)
    alone = connection.execute(
        select(func.count())
        .select_from(segment_copies)
        .join(segments, live[1])
        .where(live[0], segment_copies.c.roots == root.bit)
    ).scalar_one()
    if alone:
        raise InvalidArgumentError(
            f"{alone} segments lie in the root {name!r} alone.", "Run `txnlog maintain`, which copies them, and repeat."
        )
    without = segment_copies.c.roots.op("&")(~root.bit)
    has_it = segment_copies.c.roots.op("&")(root.bit) != 0
    connection.execute(delete(segment_copies).where(has_it, without == 0))
    connection.execute(update(segment_copies).where(has_it).values(roots=without))
    connection.execute(delete(segment_copies).where(segment_copies.c.roots == ONLY_MAIN))
    connection.execute(delete(roots).where(roots.c.root_id == root.root_id))


def segment_page(connection: Connection, topic_id: int, after: int) -> list[HotSegment]:
    """Return a topic's segments with entries, by id; one more than a page if there are more."""
    last = (
        select(entries.c.offset + entries.c.length)
        .where(entries.c.segment_id == segments.c.segment_id)
        .order_by(entries.c.offset.desc())
        .limit(1)
        .scalar_subquery()
    )
    count = select(func.count()).where(entries.c.segment_id == segments.c.segment_id).scalar_subquery()
    query = (
        select(segments.c.segment_id, segments.c.path, func.coalesce(segment_copies.c.roots, ONLY_MAIN), last, count)
        .outerjoin(segment_copies, segment_copies.c.segment_id == segments.c.segment_id)
        .where(segments.c.topic_id == topic_id, segments.c.deleted == 0, segments.c.segment_id > after)
        .order_by(segments.c.segment_id)
        .limit(PAGE_SEGMENTS + 1)
    )
    return [HotSegment(row[0], row[1], row[2], row[3] or 0, row[4]) for row in connection.execute(query)]


def segment_entries(connection: Connection, topic_id: int, path: str) -> list[tuple[Any, ...]]:
    """Return position, offset, length and checksum of all entries of a segment, by offset."""
    query = (
        select(entries.c.position, entries.c.offset, entries.c.length, entries.c.crc32c)
        .join(segments, segments.c.segment_id == entries.c.segment_id)
        .where(segments.c.topic_id == topic_id, segments.c.path == path, segments.c.deleted == 0)
        .order_by(entries.c.offset)
    )
    return [tuple(row) for row in connection.execute(query)]


def change(connection: Connection, topic_id: int, changes: Sequence[RootChange]) -> None:
    """Note which roots have segments, and which don't any more; entries that have their copies now are short no more.

    What was added counts only if the segment has not grown meanwhile. A segment keeps one root at least: what is in
    none is lost, and whoever reads it is told so.
    """
    known = known_bits(all_roots(connection))
    for start in range(0, len(changes), _PORTION):
        wanted = {one.path: one for one in changes[start : start + _PORTION]}
        for found in _found(connection, topic_id, wanted):
            one = wanted[found.path]
            added = one.added & known if one.end >= found.end else 0
            new = (found.roots | added) & ~one.removed or found.roots
            if new != found.roots:
                _store(connection, found.segment_id, new)
            settle(connection, found.segment_id, new)
    note_change(connection, topic_id)


def settle(connection: Connection, segment_id: int, of_roots: int) -> None:
    """Drop the short entries of a segment that have enough copies in a set of roots."""
    mine = (short_entries.c.segment_id == segment_id, short_entries.c.needed <= of_roots.bit_count())
    connection.execute(delete(short_entries).where(*mine))


def settle_topic(connection: Connection, topic_id: int, acknowledge: int) -> None:
    """Have the short entries of a topic need no more copies than its policy says by now."""
    of_topic = select(segments.c.segment_id).where(segments.c.topic_id == topic_id)
    more = (short_entries.c.segment_id.in_(of_topic), short_entries.c.needed > acknowledge)
    ids = set(connection.execute(select(short_entries.c.segment_id).where(*more)).scalars())
    if not ids:
        return
    connection.execute(update(short_entries).where(*more).values(needed=acknowledge))
    for segment_id in ids:
        found = connection.execute(
            select(segment_copies.c.roots).where(segment_copies.c.segment_id == segment_id)
        ).scalar_one_or_none()
        settle(connection, segment_id, ONLY_MAIN if found is None else found)
    note_change(connection, topic_id)


def check_policies(connection: Connection, scope: Scope, configured: Mapping[str, Any]) -> None:
    """Look at what policies say of all topics of a scope, after they were changed.

    Raises:
        InvalidArgumentError: a topic's can't be: they name no root, or more copies than roots.
    """
    there = all_roots(connection)
    if scope.topic is not None:
        names = [scope.topic]
    else:
        names = [TopicName.parse(name) for name in topics.names(connection, scope.namespace)]
        _check_alone(connection, scope, configured)
    for topic in topics.find_all(connection, names) if names else []:
        found = copies_of(connection, topic.name, topic.topic_id, configured, there)
        settle_topic(connection, topic.topic_id, found.acknowledge)


def check_new_topic(connection: Connection, name: TopicName, topic_id: int, configured: Mapping[str, Any]) -> None:
    """Raise INVALID_ARGUMENT if the policies of a topic that is being made contradict each other."""
    copies_of(connection, name, topic_id, configured, all_roots(connection))


def _check_alone(connection: Connection, scope: Scope, configured: Mapping[str, Any]) -> None:
    """Look at what is set for the scope itself: there may be no topic yet."""
    found = policies.set_in(connection, scope)
    layer = found if scope.namespace is not None else {**configured, **found}
    names = layer.get("hot_copies")
    if names is not None:
        hot_copies(names, layer.get("acknowledge_copies"), all_roots(connection))


def _found(connection: Connection, topic_id: int, paths: Iterable[str]) -> list[HotSegment]:
    last = (
        select(entries.c.offset + entries.c.length)
        .where(entries.c.segment_id == segments.c.segment_id)
        .order_by(entries.c.offset.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = (
        select(segments.c.segment_id, segments.c.path, func.coalesce(segment_copies.c.roots, ONLY_MAIN), last)
        .outerjoin(segment_copies, segment_copies.c.segment_id == segments.c.segment_id)
        .where(segments.c.topic_id == topic_id, segments.c.path.in_(list(paths)), segments.c.deleted == 0)
    )
    return [HotSegment(row[0], row[1], row[2], row[3] or 0, 0) for row in connection.execute(query)]


def _store(connection: Connection, segment_id: int, of_roots: int) -> None:
    connection.execute(delete(segment_copies).where(segment_copies.c.segment_id == segment_id))
    if of_roots != ONLY_MAIN:
        connection.execute(insert(segment_copies).values(segment_id=segment_id, roots=of_roots))


def _shown(connection: Connection, scope: str) -> str:
    kind, _, rest = scope.partition(":")
    if kind == "topic":
        name = connection.execute(select(topic_rows.c.name).where(topic_rows.c.topic_id == int(rest))).scalar()
        return f"topic {TopicName.parse(name).short!r}" if name else scope
    return f"namespace {rest!r}" if kind == "namespace" else "the broker"
