"""Reading all of a log as its readers do, at both isolation levels: the files of a root, and a database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from txn_source.client.access import Access
from txn_source.client.hot_roots import Place, places_of
from txn_source.client.scan import copies_read, count_messages, scan
from txn_source.client.segment_copying import read_sound
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import DataLossError, SegmentUnreadableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.read_priority import ReadPriority
from txn_source.storage.object_root import Root


def priorities(objects: Mapping[int, str], outside: Mapping[str, int], *, spared: bool) -> tuple[ReadPriority, ...]:
    """Return how a backup is read: hot copies first, and then tiered ones, if they are all there.

    ``spared``: some hot copies aren't there, and tiered ones in their place.
    """
    if spared:
        return (ReadPriority.TIERED_FIRST,)
    tiered = (ReadPriority.TIERED_FIRST,) if objects and not outside else ()
    return (ReadPriority.BOOKKEEPER_FIRST, *tiered)


def scan_all(
    root: Root, database: Path, read_first: tuple[ReadPriority, ...]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Read all topics of a log that nobody else uses; every checksum is compared.

    Return the messages that each level sees, by its name, and what is wrong with copies whose messages another one has.

    Args:
        root: where the files are.
        database: the log's database, of this release.
        read_first: which copies are read first, one reading for each.

    Raises:
        DataLossError: a scan reads other than what the database says, or a message can't be read from any copy.
    """
    damaged: dict[str, None] = {}
    with _access_to(root, database) as access:
        found = {level.value: 0 for level in IsolationLevel}
        for topic in (name.short for name in access.metadata.list_topics()):
            for level in IsolationLevel:
                expected = count_messages(access, topic, level, EARLIEST, LATEST, consistent_cut=False, as_of=None)
                found[level.value] += expected
                for priority in read_first:
                    reader = scan(access, topic, level, None, EARLIEST, LATEST, priority, False, None)
                    try:
                        rows = sum(batch.num_rows for batch in reader)
                        why = "" if rows == expected else f"it has {expected} messages, and {rows} are read"
                    except (DataLossError, SegmentUnreadableError) as error:
                        why = error.fact.rstrip(".")
                    if why:
                        raise DataLossError(
                            f"Topic {topic!r} at {level.value} isn't as the database says: {why}.",
                            "Look at the log that it comes from with `txnlog doctor`.",
                        )
                    damaged |= dict.fromkeys(failure.reason for failure in copies_read(reader).failures)
    return found, tuple(damaged)


def mend(root: Path, database: Path, others: Sequence[Place]) -> list[str]:
    """Replace segments of a log that nobody else uses, if a byte isn't what was written and others have it; return
    which. One that is sound nowhere stays as it is."""
    changed = []
    with _access_to(root, database) as access:
        [mine] = places_of(access)
        for topic in access.metadata.list_topics():
            for segment in access.metadata.list_hot_segments(topic):
                with suppress(SegmentUnreadableError):
                    sound = read_sound(access.metadata, topic, segment, [mine, *others])
                    if not sound.whole & mine.bit:
                        mine.segments.put_all(segment.path, sound.end, sound.windows())
                        changed.append(segment.path)
    return changed


@contextmanager
def _access_to(root: Root, database: Path) -> Iterator[Access]:
    opened = open_database(f"sqlite:///{database}")
    stub = MetadataStub(InProcessTransport(MetadataService(opened, str(root), clock=opened.clock)))
    try:
        stub.get_log()
        yield Access(stub, root)
    finally:
        stub.close()
        opened.close()
