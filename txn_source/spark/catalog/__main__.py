"""The process that a catalog asks about a log: ``python -m txn_source.spark.catalog``.

A line of JSON for each call: ``{"id": ..., "target": {"path": ...} or {"endpoint": ...}, "call": ..., "arguments":
{...}}``, where an endpoint comes with what it is shown, ``"tokenfile": ...``. It is answered by ``{"id": ..., "answer":
...}`` or ``{"id": ..., "error": {"code": ..., "message": ...}}`` as soon as it is done: one that waits for a service
keeps no other waiting. A call with an id that was used before, in another process too, changes nothing twice. It ends
with its input.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

from txn_source.client.connecting import connect
from txn_source.client.target import Target, check_needless
from txn_source.metadata.stub.credentials import credentials_in
from txn_source.metadata.stub.request_ids import repeatable_as
from txn_source.model.door import translated
from txn_source.model.foreign_path import is_foreign
from txn_source.spark.catalog.calls import CatalogCalls
from txn_source.spark.catalog.format_calls import FORMAT_CALLS
from txn_source.spark.connection import identity_of

CALLS_AT_ONCE = 64


def main() -> None:
    """Answer until the input ends."""
    answers, turn = os.fdopen(os.dup(1), "w", encoding="utf-8"), Lock()
    os.dup2(2, 1)  # whatever prints must not come between the answers
    log = _OpenLog()

    def answer(asked: Mapping[str, Any]) -> None:
        line = json.dumps(_answer(log, asked)) + "\n"
        with turn:
            answers.write(line)
            answers.flush()

    with ThreadPoolExecutor(CALLS_AT_ONCE) as calls:
        for line in sys.stdin:
            calls.submit(answer, json.loads(line))


class _OpenLog:
    """The log and its calls, opened at its first use; one that is made anew at its path is opened anew."""

    def __init__(self) -> None:
        self._opened: tuple[object, Mapping[str, Callable[..., Any]]] | None = None

    def calls(
        self, path: str | None = None, endpoint: str | None = None, **shown: str
    ) -> Mapping[str, Callable[..., Any]]:
        """Return the calls by their names: the format's without a log. Raise the error if the log can't be opened.

        ``shown`` is what the service is shown, as options name it.
        """
        if path is None and endpoint is None:
            return FORMAT_CALLS
        credentials: Any = credentials_in(shown)
        if path is not None and is_foreign(path):
            check_needless(credentials)
            return self._foreign_calls(path)
        target = Target.of(path, endpoint, credentials=credentials)
        wanted = target, identity_of(target)
        opened = self._opened
        if opened is None or opened[0] != wanted:  # no lock: a service that hangs would have all wait for one
            log = connect(path, endpoint=endpoint, create=False, **credentials)
            self._opened = opened = wanted, CatalogCalls(log).by_name
        return opened[1]

    def _foreign_calls(self, path: str) -> Mapping[str, Callable[..., Any]]:
        """Return those of a log that others wrote."""
        if self._opened is None or self._opened[0] != path:
            from txn_source.foreign.target import ForeignTarget
            from txn_source.spark.catalog.foreign_calls import ForeignCatalogCalls

            target = ForeignTarget.parse(path)
            target.open()
            self._opened = path, ForeignCatalogCalls(target).by_name
        return self._opened[1]


def _answer(log: _OpenLog, asked: Mapping[str, Any]) -> dict[str, Any]:
    try:
        with repeatable_as(asked["id"]):
            return {"id": asked["id"], "answer": log.calls(**asked["target"])[asked["call"]](**asked["arguments"])}
    except Exception as error:
        ours = translated(error, "The catalog")
        return {"id": asked["id"], "error": {"code": ours.code, "message": str(ours)}}


if __name__ == "__main__":
    main()
