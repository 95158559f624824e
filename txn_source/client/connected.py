"""What a log is connected to, and what is open over the connection."""

from __future__ import annotations

import html
from typing import Self

from txn_source.client.access import Access
from txn_source.client.open_handles import OpenHandles
from txn_source.client.subscriptions import Subscriptions
from txn_source.client.target import Target
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.door import guarded
from txn_source.model.errors import TxnLogError
from txn_source.process import forks
from txn_source.storage.object_root import Root


@guarded
class Connected:
    """A connection to a log: where it goes, its ends, and what it opened.

    It can be pickled. In a forked child it is refused, and another one can be opened.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._process = forks.this_process
        self._access = Access.open(target)
        self._stub, self._root = self._access.metadata, self._access.root
        self._open = OpenHandles()
        self._subscriptions = Subscriptions(self._access, self._open)

    def __reduce__(self) -> tuple[type[Self], tuple[Target]]:
        return type(self), (self._target,)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._target}>"

    def _repr_html_(self) -> str:
        from txn_source.client.notebook import MOST_ROWS, html_table

        try:
            names = self._stub.list_topics()
            views = self._stub.get_view(names[:MOST_ROWS]).topics
        except TxnLogError as error:
            return f"<p>{html.escape(f'{self!r}: {error}')}</p>"
        rows = []
        for view in views:
            messages, size = (sum(getattr(p, what) for p in view.partitions) for what in ("messages", "bytes"))
            rows.append((view.topic.name.short, len(view.partitions), messages, size))
        return html_table(f"Log {self._target}", ("Topic", "Partitions", "Messages", "Bytes"), rows, len(names))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the producers and consumers that are still open, which flushes them, and the connection.

        In a forked child nothing happens.
        """
        if self._process is not forks.this_process:
            return
        try:
            self._open.close()
            self._leave_a_snapshot()
        finally:
            self._access.close()

    def _leave_a_snapshot(self) -> None:
        """Make a snapshot of the metadata, if this process has it and one is due."""
        service = self._stub.service
        if service is not None and service.has_written:
            from txn_source.client.tiering.snapshot_making import make_snapshot

            make_snapshot(self._access, quick=True)

    @property
    def target(self) -> Target:
        """What was connected to: a value that other processes can open."""
        return self._target

    @property
    def access(self) -> Access:
        """The service's calls and the place of the segments together, for the layers above."""
        return self._access

    @property
    def root(self) -> Root:
        """Where the segments lie: a folder, or a prefix of an object store."""
        return self._root

    @property
    def metadata(self) -> MetadataStub:
        """The service's calls, for the layers above."""
        return self._stub
