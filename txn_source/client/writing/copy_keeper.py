"""A producer's copies: files that follow the topic's policy, and copies that are made after the entry was registered.

Where an entry has too few copies when it is registered, readers don't see it, and its producer isn't told that it is
stored. With each flush the copies are made that lack, by its producer from memory, or by whoever repairs the log, and
the service is asked once more, by the same append.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from txn_source.client.access import Access
from txn_source.client.hot_roots import places_of
from txn_source.client.segment_copying import copy_segment
from txn_source.client.writing.entry_files import EntryFiles, wanted_copies
from txn_source.client.writing.parcel import Parcel
from txn_source.client.writing.uploads import placed
from txn_source.metadata.stub.roots import SegmentRoots
from txn_source.model.errors import SegmentUnreadableError, TxnLogError, UnavailableError
from txn_source.model.topic_name import TopicName

_WHOLE = 1 << 40
LOOK_EVERY_S = 60.0
"""A log that has several roots is asked so often for the topic's policy."""


class CopyKeeper:
    """What a producer knows of the copies of its topic."""

    def __init__(self, access: Access, topic: TopicName, reopen: Callable[[], EntryFiles]) -> None:
        """``reopen`` returns files as the policy is by now."""
        self._access = access
        self._topic = topic
        self._reopen = reopen
        self._wanted = wanted_copies(access, topic)
        self._roots = access.metadata.roots
        self._looked = time.monotonic()
        self._has_changed = False

    def current(self, files: EntryFiles) -> EntryFiles:
        """Return the files to write to: others, if the policy has changed."""
        stub = self._access.metadata
        due = bool(stub.roots) and time.monotonic() - self._looked > LOOK_EVERY_S
        if not (due or self._has_changed):
            return files
        self._looked, self._has_changed = time.monotonic(), False
        try:
            stub.get_log()
            wanted = wanted_copies(self._access, self._topic)
            if (wanted, stub.roots) == (self._wanted, self._roots):
                return files
            reopened = self._reopen()
        except TxnLogError:
            return files  # it goes on with those it has, and the service says what is missing
        files.close()
        self._wanted, self._roots = wanted, stub.roots
        return reopened

    def make(self, parcel: Parcel, *, lacks: bool) -> None:
        """Make the copies that a registered parcel lacks, and tell the service, as far as that can be done now.

        ``lacks`` False: it has all that were wanted when it was written, and the policy asks for more by now.
        """
        entries = parcel.entries or []
        if not lacks or parcel.upload is None:
            self._has_changed = True
            self._repair({entry.segment for entry in entries})
            return
        done = {entry.segment: entry.roots for entry in placed(entries, parcel.upload.complete())}
        # A segment was put whole, so a copy reaches up to its end, with entries of other groups.
        changes = [SegmentRoots(path, roots, 0, _WHOLE) for path, roots in done.items()]
        self._access.metadata.change_segment_roots(self._topic, changes)

    def lacking(self, messages: int) -> UnavailableError:
        """Return what is told of messages that lack copies."""
        return UnavailableError(
            f"{messages:,} messages to topic {self._topic.short!r} have too few copies: not all roots of the policy"
            " hot_copies could be written. Nothing is lost, and readers don't see them yet.",
            "Call flush() or commit() again when the roots can be written; `txnlog roots list` tells which can't.",
        )

    def _repair(self, paths: set[str]) -> None:
        """Copy segments that aren't kept in memory."""
        stub = self._access.metadata
        stub.get_log()
        places = [place for place in places_of(self._access) if not place.rests]
        for segment in stub.list_hot_segments(self._topic):
            if segment.path in paths and segment.wanted & ~segment.roots:
                try:
                    change = copy_segment(stub, self._topic, segment, places)
                except SegmentUnreadableError:
                    continue
                stub.change_segment_roots(
                    self._topic, [replace(change, removed=0)]
                )  # only an administrator may report a lost copy
