"""The way to a log: what reading, writing and planning need of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from txn_source.client.target import Target, reachable
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.process.forks import keep_in_children
from txn_source.storage.object_root import Root

if TYPE_CHECKING:
    from txn_source.storage.segment_store import SegmentStore


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Access:
    """The service's calls (``metadata``), and where its segments lie (``root``), of one log."""

    metadata: MetadataStub
    root: Root

    @property
    def segments(self) -> SegmentStore:
        """The segments below the root."""
        from txn_source.storage.segment_store import segments_at  # with Arrow's messages, which planning doesn't need

        return segments_at(self.root, self.metadata.log_id)

    @classmethod
    def open(cls, target: Target) -> Access:
        """Connect to a log, making a new one if the target says so.

        Raises:
            LogNotFoundError: there is no such log, or its segments can't be reached from here.
            UnavailableError: the service didn't answer.
        """
        metadata, storage_uri = target.open()
        try:
            access = cls(metadata, reachable(target, storage_uri, has_others=bool(metadata.roots)))
        except BaseException:
            metadata.close()
            raise
        keep_in_children(metadata)
        return access

    def close(self) -> None:
        """Close this process's connection."""
        self.metadata.close()
