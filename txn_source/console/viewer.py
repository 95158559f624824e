"""Somebody who looks at the log: what of it they see, and their way to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from txn_source.client.access import Access
from txn_source.console.guarded import access_of
from txn_source.console.snapshot import Snapshot, Snapshots, TopicFigures
from txn_source.metadata.access.door import Visitor
from txn_source.metadata.service.guard import Guard
from txn_source.metadata.service.requirements import ADMIN, ANY, CONSUME
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store import topics
from txn_source.metadata.store.entries_before import Before, entries_before
from txn_source.metadata.store.figures import Blocker
from txn_source.model.errors import PermissionDeniedError, TopicNotFoundError, shown
from txn_source.model.roles import Role
from txn_source.model.topic_name import TopicName
from txn_source.storage.object_root import Root


class Viewer:
    """A visitor of the console.

    Figures are shown of the topics that it has a role for, of all to whoever watches the whole log (``MONITOR``).
    """

    def __init__(
        self,
        visitor: Visitor,
        service: MetadataService,
        guard: Guard,
        root: Root,
        snapshots: Snapshots,
        pages: Callable[[Mapping[str, str], Viewer], Any],
    ) -> None:
        """``pages`` reads pages of messages."""
        self.visitor = visitor
        self.service = service
        self.snapshots = snapshots
        self._guard = guard
        self.root = root
        self._pages = pages
        self.sees_all = visitor.roles.allow_everything((*ANY, Role.MONITOR))

    @cached_property
    def access(self) -> Access:
        """The way to the log, each call of which is judged."""
        return access_of(self._guard, self.visitor, self.root)

    @cached_property
    def snapshot(self) -> Snapshot:
        """The figures of the log now, of what it doesn't see, too."""
        return self.snapshots.current()

    def read(self, query: Mapping[str, str]) -> Any:
        """Return a page of messages; see ``api.messages.page``."""
        return self._pages(query, self)

    def entries_before(self, partition_id: int, end: int, messages: int, of_bytes: int) -> Before | None:
        """See ``store.entries_before``.

        Raises:
            TxnLogError: the visitor may not read the partition.
        """
        self._guard.check_partition(partition_id, self.visitor)
        return self.service.look(lambda connection: entries_before(connection, partition_id, end, messages, of_bytes))

    def look_again(self) -> None:
        """Have the next look at the snapshot find the log as it is then."""
        self.snapshots.forget()
        self.__dict__.pop("snapshot", None)

    def sees(self, topic: TopicName) -> bool:
        """True if it may know a topic's figures."""
        return self.sees_all or self.has_role(topic)

    def has_role(self, topic: TopicName) -> bool:
        """True if it has a role for a topic, and so may know its columns and where its objects lie, as whoever only
        watches may not."""
        return self.visitor.roles.allow(ANY, topic)

    def sees_subscriptions(self, topic: TopicName) -> bool:
        """True if it may know who consumes a topic."""
        return self._watches or self.visitor.roles.allow(CONSUME, topic)

    def administers(self, topics: Iterable[TopicName]) -> bool:
        """True if it may change all of some topics."""
        return all(self.visitor.roles.allow(ADMIN, topic) for topic in topics)

    @property
    def administers_all(self) -> bool:
        """True if it may change all of the log."""
        return self.visitor.roles.allow_everything(ADMIN)

    def sees_any(self, found: Iterable[Blocker]) -> bool:
        """True if it sees a topic that a transaction wrote to."""
        return any(self.sees(self.snapshot.topic_of(each.partition_id)) for each in found)

    def producers(self, txn: int) -> list[str]:
        """Return the names of the producers of topics that it sees that wrote in an open transaction."""
        began, names = self.snapshot.began.get(txn), self.snapshot.names
        found = () if began is None else began.producers
        return [name for topic_id, name in found if topic_id in names and self.sees(names[topic_id])]

    def topics(self) -> list[TopicFigures]:
        """Return the topics that it sees, by name."""
        found = self.snapshot.topics
        return [topic for name, topic in found.items() if self.sees(name)]

    def topic(self, name: str) -> TopicFigures:
        """Return one.

        Raises:
            TopicNotFoundError: there is none of that name.
            PermissionDeniedError: it has no role for it, whether or not it is there.
        """
        parsed = TopicName.parse(name)
        if not self.sees(parsed):
            raise PermissionDeniedError(
                f"The token of {shown(self.visitor.name)} has no role for {parsed.short}.",
                "Use one that was made with it; `txnlog tokens show` tells what a token has.",
            )
        if parsed not in self.snapshot.topics:
            self.service.look(lambda connection: topics.find(connection, parsed))  # who guesses costs no snapshot
            self.look_again()
        found = self.snapshot.topics.get(parsed)
        if found is None:
            raise TopicNotFoundError(f"There is no topic {parsed.short!r}.", "Choose another one.")
        return found

    @cached_property
    def _watches(self) -> bool:
        return self.visitor.roles.allow_everything((*CONSUME, Role.MONITOR))
