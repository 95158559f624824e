"""Tiered objects: is each there, whole, and of the ledger that the database says; and what else lies beside them."""

from __future__ import annotations

import enum
from collections.abc import Iterator

import pyarrow as pa

from txn_source.client.ledgers import ledgers_of
from txn_source.metadata.store import checkup
from txn_source.model.copies import LedgerCopies, TieredCopy
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.ledger import Ledger
from txn_source.model.position import Position, PositionRange
from txn_source.model.topic import PartitionView
from txn_source.model.topic_name import TopicName
from txn_source.model.units import format_count
from txn_source.storage.object_names import aborted_uri, may_be_object, may_be_second_file
from txn_source.storage.object_root import located
from txn_source.storage.object_store import file_system_of, is_passing, is_refused, reason
from txn_source.storage.object_uri import is_object_uri, parts_of
from txn_source.storage.tiered import Footer, checked_footer
from txn_source.storage.tiered_check import first_damage, owner_of
from txn_source.upkeep.doctor.codes import Severity
from txn_source.upkeep.doctor.extent import copies_now
from txn_source.upkeep.doctor.findings import Finding, finding, some_files
from txn_source.upkeep.doctor.listing import Stored, Target, targets
from txn_source.upkeep.doctor.subject import DAY_S, Checksums, Subject
from txn_source.upkeep.reading_ahead import read_ahead

_SAMPLED = 8
"""One of so many parts of an object is read in a sample, and its first one."""


def check_objects(subject: Subject) -> Iterator[Finding]:
    """Look at the objects of all ledgers: their sizes, footers, and as many of their bytes as was asked for."""
    yield from subject.of_each_topic(lambda topic: _of_topic(subject, topic))


def _of_topic(subject: Subject, topic: TopicName) -> Iterator[Finding]:
    stub = subject.access.metadata
    [view] = stub.get_view([topic]).topics
    for partition in view.partitions:
        ledgers = {ledger.ledger_id: ledger for ledger in ledgers_of(stub, partition) if ledger.tiered}
        if not ledgers:
            continue
        found = [
            (ledgers[copies.ledger_id], copies.tiered)
            for copies in _copies(subject, partition)
            if copies.tiered is not None and copies.ledger_id in ledgers and _is_near(subject, copies.tiered)
        ]
        is_remote = any(is_object_uri(located(subject.access.root, copy.uri)) for _, copy in found)
        for (ledger, copy), result in read_ahead(found, lambda of: _looked_at(subject, of[1]), is_remote=is_remote):
            yield from _of_ledger(subject, topic, partition, ledger, copy, result)


def _is_near(subject: Subject, copy: TieredCopy) -> bool:
    return subject.has_storage or parts_of(copy.uri)[0] != "" or copy.uri.startswith("/")


def _copies(subject: Subject, partition: PartitionView) -> Iterator[LedgerCopies]:
    at, end = partition.bounds.log_start, partition.bounds.log_end
    while at < end:
        listed = subject.access.metadata.list_copies(partition.partition_id, PositionRange(at, end)).ledgers
        if not listed:
            return
        yield from listed
        at = Position(listed[-1].ledger_id + 1, 0)


def _looked_at(subject: Subject, copy: TieredCopy) -> tuple[bool, str] | OSError | None:
    """Return ``damage_of`` an object, or why it can't be looked at."""
    try:
        return damage_of(subject, copy)
    except OSError as error:
        return error


def _of_ledger(
    subject: Subject,
    topic: TopicName,
    partition: PartitionView,
    ledger: Ledger,
    copy: TieredCopy,
    found: tuple[bool, str] | OSError | None,
) -> Iterator[Finding]:
    if isinstance(found, OSError):
        if not is_refused(found):
            raise found
        subject.may_not_read("objects", located(subject.access.root, copy.uri), found)
        return
    if found is None:
        footer = checked_footer(subject.access.root, copy)
        yield from _differs(topic, ledger, copy, footer)
        return
    now = copies_now(subject.access.metadata, partition.partition_id, ledger.ledger_id)
    if now is None or now.tiered != copy:
        return  # trimmed, or deleted, meanwhile
    is_missing, why = found
    shown = copy.uri.partition("?")[0]
    elsewhere = "; the hot copy is there" if now.hot else ""
    yield finding(
        "object-missing" if is_missing else "object-damaged",
        f"topic {topic.short}",
        f"The object {shown} of ledger {ledger.ledger_id} ({ledger.messages:,} messages): {why}{elsewhere}.",
        Severity.WARNING if now.hot else None,
        topic=topic.short,
        uri=shown,
        partition_id=partition.partition_id,
        ledgers=(ledger.ledger_id,),
        ledger=ledger.ledger_id,
        hot=now.hot,
    )


def damage_of(subject: Subject, copy: TieredCopy) -> tuple[bool, str] | None:
    """Return what is wrong with an object, with its second file: if one is missing, and why; None if nothing is.

    Raises:
        OSError: the store can't be asked now, or refuses who asks.
    """
    for part in (copy, None):
        try:
            if part is None:
                second = checked_footer(subject.access.root, copy).aborted
                if second is None:
                    return None
                part = second
            footer = checked_footer(subject.access.root, part)
            why = _bytes(subject, part, footer)
        except (SegmentUnreadableError, OSError, pa.ArrowException) as error:
            cause = error.__cause__ if isinstance(error, SegmentUnreadableError) else error
            if isinstance(cause, OSError) and (is_passing(cause) or is_refused(cause)):
                raise cause from None
            return not _is_there(subject, part or copy), reason(cause or error)
        if why is not None:
            return False, why
    return None


def _bytes(subject: Subject, copy: TieredCopy, footer: Footer) -> str | None:
    if subject.checksums is Checksums.NONE:
        return None

    def chosen(number: int) -> bool:
        return subject.checksums is Checksums.ALL or number == 0 or subject.chance.randrange(_SAMPLED) == 0

    return first_damage(subject.access.root, copy, footer.runs, subject.pace.take, chosen)


def _is_there(subject: Subject, copy: TieredCopy) -> bool:
    system, path = file_system_of(located(subject.access.root, copy.uri))
    return bool(system.get_file_info(path).is_file)


def _differs(topic: TopicName, ledger: Ledger, copy: TieredCopy, footer: Footer) -> Iterator[Finding]:
    told = footer.summary.ledger
    pairs = {
        name: (getattr(told, name), getattr(ledger, name)) for name in ("ledger_id", "entries", "messages", "bytes")
    }
    wrong = [f"{name} {found} where the database says {said}" for name, (found, said) in pairs.items() if found != said]
    if wrong:
        shown = copy.uri.partition("?")[0]
        fact = f"The footer of {shown} has {', '.join(wrong)}."
        yield finding("object-differs", f"topic {topic.short}", fact, topic=topic.short, uri=shown)


def check_unreferenced_objects(subject: Subject) -> Iterator[Finding]:
    """Look for old objects that the database doesn't know, and say whose they are."""
    for target in targets(subject):
        if target.why_unreachable():
            continue  # is told by another check
        found = _old(subject, target)
        known = _known(subject)  # after the files: what came meanwhile is too young
        own, twice = [], []
        for one in (one for one in found if one.uri not in known):
            owner = _owner(subject, one)
            if owner is _Owner.FUTURE:
                twice.append(one)
            elif owner is _Owner.OWN or (owner is _Owner.UNKNOWN and target.uri is None):
                own.append(one)
        if twice:
            fact = f"{_objects(twice)} in {target.shown} name this log, and ledgers that it has not made."
            yield finding("log-twice", target.shown, fact, **some_files(_names(twice)))
        if own:
            size = sum(one.size for one in own)
            fact = f"{_objects(own)}, {size:,} bytes, in {target.shown} are nothing that the log knows."
            yield finding("object-unreferenced", target.shown, fact, **some_files(_names(own)))


def _old(subject: Subject, target: Target) -> list[Stored]:
    """Return what lies in a place with the name of an object, or of a second file, and is nobody's work any more."""
    oldest = subject.now_s - DAY_S
    return [one for one in target.stored() if one.modified_at_s <= oldest and _is_of_us(one.uri)]


def _is_of_us(uri: str) -> bool:
    path = uri.partition("?")[0] if parts_of(uri)[0] else uri
    return may_be_object(uri) or may_be_second_file(path)


def _known(subject: Subject) -> set[str]:
    """Return the objects that the database knows now, and their second files."""
    known = subject.look(checkup.known_objects)
    return known | {aborted_uri(uri) for uri in known if may_be_object(uri)}


class _Owner(enum.Enum):
    """Whose an object is, as its footer says."""

    OWN = enum.auto()
    FUTURE = enum.auto()
    """The log's, of a ledger that was never made."""
    OTHER = enum.auto()
    UNKNOWN = enum.auto()
    GONE = enum.auto()


def _owner(subject: Subject, stored: Stored) -> _Owner:
    try:
        told = owner_of(subject.access.root, stored.uri)
    except FileNotFoundError:
        return _Owner.GONE
    if told is None:
        return _Owner.UNKNOWN
    if told.log_id != subject.log_id:
        return _Owner.OTHER
    return _Owner.FUTURE if told.ledger_id > subject.look(checkup.given).ledger_id else _Owner.OWN


def _objects(found: list[Stored]) -> str:
    return format_count(len(found), "object")


def _names(found: list[Stored]) -> list[str]:
    return [one.uri.partition("?")[0] for one in found]
