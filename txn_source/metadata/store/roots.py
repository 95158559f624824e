"""Hot roots in the database, and which of them have which segments.

A segment is in the log's own root alone unless ``segment_copies`` says where it is: a set of roots, each of which has
all of its registered entries. So a root that misses one append to a segment leaves its set.

An entry that is registered with fewer copies than are to be acknowledged is a short one until they are there. Short
entries are only made at the end of the log, and the first of a partition is its high watermark, which so never goes
back. A copy that is lost later makes none short: it is to be made again, and until then there are others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from txn_source.metadata.store import policies
from txn_source.metadata.store.prepared import Lookup, Prepared
from txn_source.model.roots import ONE_COPY, ONLY_MAIN, HotCopies, HotRoot, hot_copies
from txn_source.model.topic_name import TopicName

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


def all_roots(connection: Connection) -> list[HotRoot]:
    """Return the roots beside the log's own one, by id."""
    return [HotRoot(*row) for row in _ROOTS.rows(connection, {})]


def copies_of_topics(
    connection: Connection, topic_ids: set[int], configured: Mapping[str, Any], there: list[HotRoot]
) -> dict[int, HotCopies]:
    """Return what policies say of some topics; ``configured`` is the broker's configuration."""
    found = {}
    for topic_id, name in _NAMES.rows(connection, topic_ids):
        found[topic_id] = copies_of(connection, TopicName.parse(name), topic_id, configured, there)
    return found


def copies_of(
    connection: Connection, name: TopicName, topic_id: int, configured: Mapping[str, Any], there: list[HotRoot]
) -> HotCopies:
    """Return what policies say of a topic, or raise INVALID_ARGUMENT if it can't be."""
    in_force = policies.in_force(connection, name, topic_id, configured)
    wanted, acknowledge = in_force["hot_copies"].value, in_force["acknowledge_copies"].value
    return hot_copies(wanted, acknowledge, there) if there or acknowledge != 1 else ONE_COPY


def known_bits(there: list[HotRoot]) -> int:
    """Return the set of all roots."""
    return ONLY_MAIN | sum(root.bit for root in there)


_ROOTS = Prepared("SELECT root_id, name, uri FROM roots ORDER BY root_id")
_NAMES = Lookup("SELECT topic_id, name FROM topics WHERE topic_id IN (:values)")
