"""Finding notes that lie apart (``storage/apart_notes.py``) and tell of no segment any more.

Of each topic the oldest are looked at first, until so many were found that still tell of something: segments mostly go
in the order in which they came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress

from txn_source.client.hot_roots import Place
from txn_source.storage.apart_notes import read_apart, topic_of_note

_MOST_NEEDED = 100
"""So many notes of a topic are read that still tell of something; each is a request."""


def idle_notes(places: Sequence[Place], listed: Collection[str]) -> list[str]:
    """Return the paths of the notes that tell of no segment that is there.

    Args:
        places: all roots of the log, its own one first, which has the notes.
        listed: what lay among the segments a moment ago. A note is put after its segments, so of a note that was
            there then all segments are found now, unless they are gone.

    Raises:
        OSError: the log's own root can't be listed.
    """
    known = {path for path in listed if topic_of_note(path) is not None}
    if not known:
        return []
    there: set[str] = set()
    notes: list[tuple[float, str]] = []
    for place in places:
        try:
            place.check()
            for found in place.segments.stored():
                there.add(found.path)
                if place is places[0] and found.path in known:
                    notes.append((found.modified_at_s, found.path))
        except OSError as error:
            if place is places[0]:
                raise
            place.failed(error)
            return []  # what lies there isn't known
    idle = []
    needed: Counter[int | None] = Counter()
    for _, path in sorted(notes):
        topic = topic_of_note(path)
        if needed[topic] >= _MOST_NEEDED:
            continue
        with suppress(FileNotFoundError, ValueError):  # what isn't ours isn't our garbage
            if there.isdisjoint(read_apart(places[0].root, path).of):
                idle.append(path)
            else:
                needed[topic] += 1
    return idle
