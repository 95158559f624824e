"""How a call reaches the service in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from txn_source.model.door import passes, translated
from txn_source.observing.spans import calling
from txn_source.process import forks
from txn_source.process.shield import held

if TYPE_CHECKING:
    from txn_source.metadata.service.service import MetadataService

_PATIENCE_S = 30.0


class InProcessTransport:
    """The service in this process: the embedded log. The first Ctrl-C takes effect after the call."""

    timeout_s = _PATIENCE_S

    def __init__(self, service: MetadataService) -> None:
        self.service = service
        self._process = forks.this_process
        forks.close_before_forks(self)

    def before_fork(self) -> Path | None:
        """Close the database's idle connections; return its file, if it is one."""
        self.service.close_database()
        return self.service.database_file

    def call(self, method: str, request: Message) -> Any:
        try:
            with held(), calling(method):
                self._check_process()
                return self.service.call(method, request)
        except Exception as error:
            if passes(error):
                raise
            raise translated(error, method) from error

    def _check_process(self) -> None:
        forks.check(self._process, f"The log at {self.service.storage_uri}")

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        self._check_process()
        try:
            yield from self.service.converse(method, requests)
        except Exception as error:
            if passes(error):
                raise
            raise translated(error, method) from error

    def close(self) -> None:
        if self._process is forks.this_process:
            self.service.close()
