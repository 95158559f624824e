"""Tiered objects: is each there, whole, and of the ledger that the database says; and what else lies beside them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from txn_source.client.ledgers import copies_of, ledgers_of
from txn_source.model.copies import TieredCopy
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.ledger import Ledger
from txn_source.model.topic import PartitionView
from txn_source.model.topic_name import TopicName
from txn_source.storage.object_root import located, resolved
from txn_source.storage.object_store import file_system_of, is_passing, is_refused, reason
from txn_source.storage.object_uri import is_object_uri, parts_of
from txn_source.storage.tiered import Footer, checked_footer
from txn_source.storage.tiered_check import first_damage
from txn_source.upkeep.doctor.codes import Severity
from txn_source.upkeep.doctor.extent import copies_now
from txn_source.upkeep.doctor.findings import Finding, finding
from txn_source.upkeep.doctor.subject import Checksums, Subject
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
            for copies in copies_of(subject.access.metadata, partition)
            if copies.tiered is not None and copies.ledger_id in ledgers and _is_near(subject, copies.tiered)
        ]
        is_remote = any(is_object_uri(resolved(subject.access.root, copy.uri)) for _, copy in found)
        for (ledger, copy), result in read_ahead(found, lambda of: _looked_at(subject, of[1]), is_remote=is_remote):
            yield from _of_ledger(subject, topic, partition, ledger, copy, result)


def _is_near(subject: Subject, copy: TieredCopy) -> bool:
    return subject.has_storage or parts_of(copy.uri)[0] != "" or copy.uri.startswith("/")


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
        subject.may_not_read("objects", resolved(subject.access.root, copy.uri), found)
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
