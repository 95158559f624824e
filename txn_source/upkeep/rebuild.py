"""Making a log's metadata again from what lies in its root, after the database was lost.

1. Each topic is found by its description, its segments are read, and the footers of its objects.
2. Entries get their places: most are told exactly, others are worked out (``placing.py``).
3. It is found out how transactions ended (``rebuild_decisions.py``), and markers get their places.
4. All of it goes into a new database, beside the place of the lost one, in one transaction; the log goes on behind a
   gap, as one that was put back (``lost_future.py``).
5. The database takes its place, the root is marked, and the log is scanned.

Until the last step nothing that was there is changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import numpy as np

from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.log import create_log
from txn_source.metadata.store.lost_future import GAP, pass_over
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.rebuilt_rows import add_policies, add_rows, check_empty, set_counts
from txn_source.model.errors import (
    InvalidArgumentError,
    StorageWriteError,
    TopicNotFoundError,
    TxnLogError,
    UnavailableError,
)
from txn_source.model.position import ledger_of
from txn_source.model.read_priority import ReadPriority
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import EndReason
from txn_source.model.values import dataclass
from txn_source.storage.object_store import reason
from txn_source.storage.segment import SegmentName
from txn_source.storage.tiered_summary import FoundObject
from txn_source.upkeep.rebuild_batches import add_batches
from txn_source.upkeep.rebuild_decisions import Decisions, Undecided, decide
from txn_source.upkeep.rebuild_place import RebuildPlace, place_of
from txn_source.upkeep.rebuild_report import RebuildReport, report_of
from txn_source.upkeep.rebuild_sources import (
    DescribedTopic,
    FoundTopic,
    ListedRoot,
    find_objects,
    find_topic,
    list_segments,
    list_topics,
    objects_below,
)
from txn_source.upkeep.rebuild_tables import EndedTransactions, add_topic
from txn_source.upkeep.scanning import scan_all
from txn_source.upkeep.segment_scan import SegmentCopy, scan_segments
from txn_source.upkeep.worked_out import note_all

_TIMEOUT_MS = 60_000
Progress = Callable[[str], object]


def rebuild(
    root: str | os.PathLike[str],
    topics: Sequence[str] = (),
    *,
    into: str | os.PathLike[str] | None = None,
    metadata: DatabaseUrl | None = None,
    undecided: str = "refuse",
    check: bool = True,
    progress: Progress = lambda _: None,
    clock: Callable[[], float] = time.time,
) -> RebuildReport:
    """Make a log's metadata again.

    Args:
        root: the log's folder, or its URI on an object store.
        topics: those to make; none: all that are described there.
        into: the file of a database to have a look at; None: it is to be the log's own, which must be missing.
        metadata: what is to be the log's own, where that isn't in its folder: an empty PostgreSQL database, or, of a
            log on an object store, a new SQLite file; not together with ``into``.
        undecided: what becomes of transactions whose end nobody has noted: ``refuse``, ``abort`` or ``commit``.
        check: read all of it, at both isolation levels, before it counts; what can't be read is told.
        progress: is told of each step, in a line.
        clock: seconds since the epoch.

    Raises:
        InvalidArgumentError: there is a database, or no description, or something is undecided. Nothing was changed.
        TopicNotFoundError: a topic is not described.
        LogNotFoundError: the root is no log's.
        StorageWriteError: the database can't be written.
        UnavailableError: the root can't be read, or the database can't be reached.
    """
    how = Undecided.parse(undecided)
    place = place_of(root, into, metadata)
    try:
        listed = ListedRoot.of(place.root)
        tiered = objects_below(place.root)
    except OSError as error:
        raise UnavailableError(
            f"The log at {place.shown} can't be listed: {reason(error)}.", "Mend that, and rebuild again."
        ) from error
    described, unreadable = list_topics(listed)
    notes = [f"The description {why} can't be read, so its topic is left out." for why in unreadable]
    chosen = _chosen(place, described, topics, notes.append)
    log_id = _log_id(place, chosen)
    segments = list_segments(listed, chosen, notes.append)
    if not topics:
        notes += [
            f"{len(segments[topic_id])} segments lie in segments/{topic_id}, which is no topic's (it was deleted)."
            for topic_id in sorted(segments.keys() - described.keys())
        ]
    objects = find_objects(place.root, tiered, notes.append)
    new_ledger = _new_ledgers(chosen, segments, objects).__next__
    found = _find(listed, chosen, segments, objects, new_ledger, notes.append, progress)
    decisions = decide(found, how)
    for topic in found:
        for placed in topic.placed.values():
            placed.add_markers(decisions.states)
            placed.settle()
    content = _Content(log_id, found, decisions, new_ledger, int(clock() * 1e6))
    notes += _write(place, content, progress, check=check)
    if not place.is_look:
        notes += note_all(place.root, log_id, found, decisions)
        place.mark(content.now_us // 1000)
    report = report_of(log_id, place.made, found, decisions, notes)
    progress(
        f"Made {report.database}: {sum(t.messages for t in report.topics)} messages of {len(report.topics)} topics."
    )
    return report


@dataclass(frozen=True, slots=True)
class _Content:
    """What goes into the new database; ``new_ledger`` gives ids of ledgers that nobody has known, ``now_us`` is the
    time in microseconds since the epoch."""

    log_id: str
    topics: Sequence[FoundTopic]
    decisions: Decisions
    new_ledger: Callable[[], int]
    now_us: int


def _chosen(
    place: RebuildPlace, described: dict[int, DescribedTopic], names: Sequence[str], told: Callable[[str], object]
) -> list[DescribedTopic]:
    """Return the topics that are to be made, or raise TOPIC_NOT_FOUND, or INVALID_ARGUMENT if there are none."""
    by_name: dict[TopicName, DescribedTopic] = {}
    for _, of in sorted(described.items()):  # a topic that was deleted, and made again, has the higher id
        if of.is_going and not names:
            told(
                f"Topic {of.name.short} is left out: its deletion was begun. If it never came to its end, name the"
                " topic by --topic."
            )
        else:
            by_name[of.name] = of
    wanted = [TopicName.parse(name) for name in names] or sorted(by_name, key=str)
    for name in wanted:
        if name not in by_name:
            raise TopicNotFoundError(
                f"Topic {name.short!r} is not described in the root.", "Check the name; `ls segments/*/topic.json`."
            )
    if not wanted and described:
        raise InvalidArgumentError(
            f"The deletion of all topics below {place.shown} was begun.", "Name those that are to be made by --topic."
        )
    if not wanted:
        raise InvalidArgumentError(
            f"No topic is described below {place.shown}.",
            "Topics are since this release, when they are made and whenever the log is maintained; restore a backup.",
        )
    return [by_name[name] for name in dict.fromkeys(wanted)]


def _log_id(place: RebuildPlace, chosen: Sequence[DescribedTopic]) -> str:
    """Return the id of the log that topics are of; raise INVALID_ARGUMENT if it isn't one, or another one's root."""
    log_id, *others = {str(of.text["log_id"]) for of in chosen}
    if others:
        raise InvalidArgumentError(
            "The descriptions are of different logs.", "Name the topics of one of them by --topic, one at a time."
        )
    if place.log_id not in (None, log_id):
        raise InvalidArgumentError(
            f"The descriptions are of the log {log_id}, and the root is of {place.log_id}.", "Check the root."
        )
    return log_id


def _find(
    listed: ListedRoot,
    chosen: Sequence[DescribedTopic],
    segments: dict[int, list[SegmentCopy]],
    objects: dict[str, list[FoundObject]],
    new_ledger: Callable[[], int],
    told: Callable[[str], object],
    progress: Progress,
) -> list[FoundTopic]:
    scanned = {}
    apart = listed.notes
    for of in chosen:
        mine = segments.get(of.topic_id, [])
        scanned[of.topic_id] = scan_segments(mine, listed.root, apart.get(of.topic_id, []), told)
        progress(f"Read topic {of.name.short}: {scanned[of.topic_id].entries} entries in segments.")
    for topic_id, part in [one for each in scanned.values() for one in each.batches]:
        if topic_id in scanned:
            scanned[topic_id].take_part(part)
    found = []
    for of in chosen:
        scanned[of.topic_id].settle()
        named = objects.get(of.name.short, []) + objects.get(str(of.name), [])
        own = [each for each in named if _is_of(each, of)]
        found.append(find_topic(of, scanned[of.topic_id], own, new_ledger))
    return found


def _new_ledgers(
    chosen: Sequence[DescribedTopic],
    segments: dict[int, list[SegmentCopy]],
    objects: dict[str, list[FoundObject]],
) -> Iterator[int]:
    """Return ids for ledgers that nobody has known, behind a gap: those that were lost had ids, too."""
    known = [ledger_of(int(each.get("log_end", 0))) for of in chosen for each in of.partitions.values()]
    names = (SegmentName.parse(each.path) for of in segments.values() for each in of)
    known += [name.ledger_id or 0 for name in names if name is not None]
    known += [each.summary.ledger.ledger_id for of in objects.values() for each in of]
    return count(max(known, default=0) + GAP)


def _is_of(found: FoundObject, of: DescribedTopic) -> bool:
    """True if an object is of this topic, and not of one of its name that was deleted."""
    return bool(found.summary.ledger.created_at_ms >= int(of.text["created_at_ms"]))


def _write(place: RebuildPlace, content: _Content, progress: Progress, *, check: bool) -> list[str]:
    """Make the database beside its place, and put it there once it is whole; return what is to be said of it."""
    try:
        with place.scratch() as temporary:
            notes = _make(place, temporary, content, progress, check=check)
            place.take(temporary, progress)
            return notes
    except OSError as error:
        raise StorageWriteError(
            f"{place.made} can't be made: {error.strerror}.", "Check the folder and its space."
        ) from error


def _make(place: RebuildPlace, temporary: Path, content: _Content, progress: Progress, *, check: bool) -> list[str]:
    database = open_database(f"sqlite:///{temporary}")
    try:
        create_log(database, content.log_id)
        database.write(lambda connection: _fill(connection, content, progress))
        database.write(lambda connection: pass_over(connection, content.now_us))
    finally:
        database.close()
    if check:
        progress("Reading all of it.")
        try:
            scan_all(place.root, temporary, (ReadPriority.BOOKKEEPER_FIRST,))
        except TxnLogError as error:
            return [f"Not all of it can be read. {error.fact}"]
    return []


def _fill(connection: Connection, content: _Content, progress: Progress) -> None:
    check_empty(connection)
    now_ms = content.now_us // 1000
    ended = _add_transactions(connection, content)
    policies: dict[tuple[str, str], str] = {}
    roots: dict[int, tuple[str, str]] = {}
    for topic in content.topics:
        for scope, values in topic.described.text.get("policies", {}).items():
            policies |= {(scope, name): value for name, value in values.items()}
        roots |= {int(id_): (name, uri) for id_, name, uri in topic.described.text.get("roots", ())}
    add_policies(connection, policies, roots)
    for topic in content.topics:
        add_topic(connection, topic, ended, content.new_ledger, now_ms)
        progress(f"Wrote topic {topic.described.name.short}.")
    add_batches(connection, content.topics)
    set_counts(connection, ended.begun, len(ended.decisions), now_ms)


def _add_transactions(connection: Connection, content: _Content) -> EndedTransactions:
    """Insert all transactions, which are decided in the order in which they ended."""
    states, undecided = content.decisions.states, content.decisions.undecided
    times = _times(content)
    numbers = {txn: number for number, txn in enumerate(sorted(times, key=lambda txn: (times[txn][1], txn)), 1)}
    rows = []
    for txn in sorted(numbers):
        first_ms, last_ms = (time_us // 1000 for time_us in times[txn])
        reason = EndReason.FORCED if txn in undecided else EndReason.CLIENT
        deadline_ms = first_ms + _TIMEOUT_MS
        rows.append((txn, states[txn], _TIMEOUT_MS, first_ms, deadline_ms, last_ms, reason.value, numbers[txn]))
    names = (
        "txn", "state", "timeout_ms", "created_at_ms", "deadline_ms", "ended_at_ms", "end_reason", "decision",
    )  # fmt: skip
    add_rows(connection, "transactions", names, rows)
    return EndedTransactions(states, numbers, max(numbers, default=-1) + 1)


def _times(content: _Content) -> dict[int, tuple[int, int]]:
    """Return about when each transaction wrote first, and ended, in microseconds since the epoch."""
    found: dict[int, tuple[int, int]] = {}
    for topic in content.topics:
        for placed in topic.placed.values():
            mine = np.flatnonzero(placed.rows["txn"] >= 0)
            columns = (placed.rows[name][mine].tolist() for name in ("txn", "time_us"))
            for txn, time_us in zip(*columns, strict=True):
                first, last = found.get(txn, (time_us, time_us))
                found[txn] = min(first, time_us), max(last, time_us)
    return {txn: of for txn, of in found.items() if txn in content.decisions.states}
