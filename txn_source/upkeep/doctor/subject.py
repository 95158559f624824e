"""The log under examination: the ways to its database, its service and its files. None of them changes it."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar

from txn_source.client.access import Access
from txn_source.client.hot_roots import Place, places_of
from txn_source.client.tiering.targets import Target, targets
from txn_source.model.errors import TopicNotFoundError
from txn_source.model.topic_name import TopicName
from txn_source.storage import root_health
from txn_source.storage.object_store import reason
from txn_source.upkeep.doctor.pace import Pace

if TYPE_CHECKING:
    from txn_source.metadata.service.service import MetadataService
    from txn_source.metadata.store.connection import Connection

T = TypeVar("T")
DAY_S = 24 * 3600.0
"""What is younger may be somebody's work."""


class Checksums(StrEnum):
    """Which bytes are read and checked."""

    NONE = "none"
    SAMPLE = "sample"
    """Some of every file."""
    ALL = "all"


class Watch(Protocol):
    """Is told how an examination goes on."""

    def begin(self, what: str, unit: str, total: int | None) -> None:
        """A part begins; ``total`` is how much there is to do, if that is known."""

    def advance(self, count: int = 1) -> None:
        """So much more of it is done."""


class Unwatched:
    """Nobody is told."""

    def begin(self, what: str, unit: str, total: int | None) -> None:
        pass

    def advance(self, count: int = 1) -> None:
        pass


@dataclass(frozen=True)
class Surroundings:
    """What the machine tells: the time (seconds since the epoch), the size and the free bytes of a folder's disk, and
    whether a path may be used. ``service_clock`` is the time of the log's deadlines, in microseconds; None: the
    database's own."""

    now_s: Callable[[], float] = time.time
    disk: Callable[[Path], tuple[int, int]] = lambda path: (lambda use: (use.total, use.free))(shutil.disk_usage(path))
    may: Callable[[Path, int], bool] = os.access
    service_clock: Callable[[], int] | None = None


class Options(TypedDict, total=False):
    """How a log is looked at: what of ``Subject`` may be chosen."""

    topics: Sequence[TopicName]
    checksums: Checksums
    surroundings: Surroundings
    pace: Pace
    watch: Watch


@dataclass
class Subject:
    """A log that is looked at; ``access`` makes no call that changes it.

    ``service`` is the one in this process that shows what is stored, None if there is only an endpoint, and
    ``has_storage`` False if its files can't be reached from here. ``topics`` are those that were asked for, none: all.
    """

    access: Access
    shown: str
    service: MetadataService | None = None
    has_storage: bool = True
    topics: Sequence[TopicName] = ()
    checksums: Checksums = Checksums.SAMPLE
    surroundings: Surroundings = field(default_factory=Surroundings)
    pace: Pace = field(default_factory=Pace)
    watch: Watch = field(default_factory=Unwatched)
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    unreadable: dict[str, dict[str, str]] = field(default_factory=dict)
    """Files of which nothing is known since this user may not read them: by kind of place and path, why."""

    @property
    def log_id(self) -> str:
        """Which log it is."""
        return self.access.metadata.log_id

    @property
    def now_s(self) -> float:
        """This machine's time, in seconds since the epoch."""
        return self.surroundings.now_s()

    @property
    def now_ms(self) -> int:
        """The time that the log's deadlines go by, in milliseconds since the epoch."""
        return int(self.now_s * 1000) if self.service is None else self.service.now_ms()

    def look(self, action: Callable[[Connection], T]) -> T:
        """Return what the database says in one moment; only where there is one."""
        assert self.service is not None
        return self.service.look(action)

    def may_not_read(self, kind: str, path: str, error: BaseException) -> None:
        """Note a file that this user may not read, with its whole path."""
        self.unreadable.setdefault(kind, {})[path.partition("?")[0]] = reason(error)

    def topic_names(self) -> Iterator[TopicName]:
        """Yield the topics that are to be looked at."""
        names = self.access.metadata.list_topics()
        self.watch.begin("topics", "topics", len(self.topics or names))
        for name in self.topics or names:
            yield name
            self.watch.advance()

    def of_each_topic(self, look: Callable[[TopicName], Iterator[T]]) -> Iterator[T]:
        """Yield what a look at each topic gives; one that is deleted meanwhile gives no more."""
        for name in self.topic_names():
            with suppress(TopicNotFoundError):
                yield from look(name)

    @cached_property
    def places(self) -> Sequence[Place]:
        """The hot roots that can be reached; ``unreachable`` has the others."""
        return [place for place in self._all_places if place.bit not in self.unreachable]

    @cached_property
    def unreachable(self) -> dict[int, tuple[Place, str]]:
        """The hot roots that can't be reached, by their bits, with the reason."""
        found = {}
        for place in self._all_places:
            try:
                root_health.bounded(place.look, root_health.READ_S)
            except OSError as error:
                found[place.bit] = (place, reason(error))
        return found

    @property
    def targets(self) -> list[Target]:
        """The places that the topics are offloaded to."""
        return targets(self.access, self.topics, own=self.has_storage)

    @cached_property
    def _all_places(self) -> Sequence[Place]:
        self.access.metadata.get_log()
        return places_of(self.access)
