"""How a call reaches the service in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from txn_source.model.door import passes, translated
from txn_source.model.errors import InvalidArgumentError
from txn_source.observing.spans import calling
from txn_source.storage.forks import (
    belongs_to_process,
    close_before_forks,
    keep_for_ever,
    no_fork,
    note_inherited,
    was_inherited,
)

if TYPE_CHECKING:
    from txn_source.metadata.service.service import MetadataService

_PATIENCE_S = 30.0


class InProcessTransport:
    """The service in this process: the embedded log.

    A fork may use it, too. A fork that inherited the database open may not (``storage/forks.py``).
    """

    timeout_s = _PATIENCE_S

    def __init__(self, service: MetadataService) -> None:
        self.service = service
        self._database = service.database_file
        self._usable = self._database is None or not was_inherited(self._database)
        close_before_forks(self)
        belongs_to_process(self)

    def before_fork(self) -> None:
        """Close the database."""
        self.service.close_database()

    def inherited(self) -> None:
        """Take notice that this is a fork."""
        keep_for_ever(self.service)
        if self._database is not None:
            note_inherited(self._database)
            self._usable = not was_inherited(self._database)

    def call(self, method: str, request: Message) -> Any:
        try:
            with no_fork(), calling(method):
                self._check_usable()
                return self.service.call(method, request)
        except Exception as error:
            if passes(error):
                raise
            raise translated(error, method) from error

    def _check_usable(self) -> None:
        if not self._usable:
            raise InvalidArgumentError(
                f"The log at {self.service.storage_uri} was in use when this process was forked, by a consumer, a"
                " reader or a stream, and SQLite can't be used on both sides of a fork.",
                "Close those before forking, start the process without a fork (spawn), or use `txnlog serve`.",
            )

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        self._check_usable()
        try:
            yield from self.service.converse(method, requests)
        except Exception as error:
            if passes(error):
                raise
            raise translated(error, method) from error

    def close(self) -> None:
        self.service.close()
