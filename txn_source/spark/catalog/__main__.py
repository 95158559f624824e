"""The process that catalogs and the format ask about logs: ``python -m txn_source.spark.catalog``.

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
from functools import lru_cache
from threading import Lock
from typing import Any

from txn_source.client.log import Log
from txn_source.client.target import Target, check_needless
from txn_source.metadata.stub.credentials import credentials_in
from txn_source.metadata.stub.request_ids import repeatable_as
from txn_source.model.door import translated
from txn_source.model.foreign_path import is_foreign
from txn_source.spark.catalog.calls import CatalogCalls
from txn_source.spark.catalog.format_calls import FORMAT_CALLS
from txn_source.spark.connection import identity_of

CALLS_AT_ONCE = 256
_LOGS = 16
"""So many logs of each kind stay open: those that were asked about last."""


def main() -> None:
    """Answer until the input ends."""
    answers, turn = os.fdopen(os.dup(1), "w", encoding="utf-8"), Lock()
    os.dup2(2, 1)  # whatever prints must not come between the answers

    def answer(asked: Mapping[str, Any]) -> None:
        line = json.dumps(_answer(asked)) + "\n"
        with turn:
            answers.write(line)
            answers.flush()

    with ThreadPoolExecutor(CALLS_AT_ONCE) as calls:
        for line in sys.stdin:
            calls.submit(answer, json.loads(line))


def calls_about(path: str | None = None, endpoint: str | None = None, **shown: str) -> Mapping[str, Callable[..., Any]]:
    """Return the calls about a log by their names: the format's without a log. Raise the error if it can't be opened.

    ``shown`` is what the service is shown, as options name it.
    """
    if path is None and endpoint is None:
        return FORMAT_CALLS
    credentials: Any = credentials_in(shown)
    if path is not None and is_foreign(path):
        check_needless(credentials)
        return _calls_about_others(path)
    target = Target.of(path, endpoint, credentials=credentials)
    return _calls_about_ours(target, identity_of(target))


@lru_cache(_LOGS)  # it has no lock while a log is opened: if a service hangs, only its own calls wait
def _calls_about_ours(target: Target, identity: tuple[int, ...]) -> Mapping[str, Callable[..., Any]]:
    """Return those of a log of ours. One that is made anew at its path has another identity, and is opened anew."""
    return CatalogCalls(Log(target)).by_name


@lru_cache(_LOGS)
def _calls_about_others(path: str) -> Mapping[str, Callable[..., Any]]:
    """Return those of a log that others wrote."""
    from txn_source.foreign.target import ForeignTarget
    from txn_source.spark.catalog.foreign_calls import ForeignCatalogCalls

    target = ForeignTarget.parse(path)
    target.open()
    return ForeignCatalogCalls(target).by_name


def _answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    try:
        with repeatable_as(asked["id"]):
            return {"id": asked["id"], "answer": calls_about(**asked["target"])[asked["call"]](**asked["arguments"])}
    except Exception as error:
        ours = translated(error, "The catalog")
        return {"id": asked["id"], "error": {"code": ours.code, "message": str(ours)}}


if __name__ == "__main__":
    main()
