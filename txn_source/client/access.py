"""The way to a log: all that reading and planning need of it."""

from __future__ import annotations

from pathlib import Path

from txn_source.client.target import Target, reachable
from txn_source.storage.forks import belongs_to_process, keep_for_ever


class Access:
    """The service's calls (``metadata``), and the folder of the segments (``root``), of a log that was opened."""

    def __init__(self, target: Target) -> None:
        self.metadata, storage_uri = target.open()
        try:
            self.root: Path = reachable(target, storage_uri)
        except BaseException:
            self.metadata.close()
            raise
        belongs_to_process(self)

    def inherited(self) -> None:
        """Take notice that this is a fork: the log is used by both, what it has open isn't."""
        keep_for_ever(self.metadata)

    def close(self) -> None:
        """Close this process's connection."""
        self.metadata.close()
