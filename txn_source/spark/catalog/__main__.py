"""The process that a catalog asks: ``python -m txn_source.spark.catalog``.

A line of JSON each: first the target, ``{"path": ...}`` or ``{"endpoint": ...}``; then calls, ``{"call": ...,
"arguments": {...}}``. Each line is answered by ``{"answer": ...}`` or ``{"error": {"code": ..., "message": ...}}``. It
ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from txn_source.client.connecting import connect
from txn_source.client.log import Log
from txn_source.client.target import Target
from txn_source.model.door import passes, translated
from txn_source.model.errors import TxnLogError
from txn_source.model.foreign_path import is_foreign
from txn_source.spark.catalog.calls import CatalogCalls
from txn_source.spark.connection import identity_of

if TYPE_CHECKING:
    from txn_source.foreign.target import ForeignTarget


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints must not come between the answers
    log = _OpenLog()
    for line in sys.stdin:
        asked = json.loads(line)
        _answer(answers, partial(log.call, **asked) if log.target is not None else partial(log.open, **asked))


class _OpenLog:
    """The log and its calls; one that is made anew at its path is opened anew."""

    def __init__(self) -> None:
        self.target: Target | ForeignTarget | None = None
        self._log: Log | None = None
        self._identity: tuple[int, ...] = ()
        self._calls: Mapping[str, Callable[..., Any]] = {}

    def open(self, path: str | None = None, endpoint: str | None = None) -> None:
        """Open the log, or raise what keeps it from that."""
        if path is not None and is_foreign(path):
            from txn_source.foreign.target import ForeignTarget
            from txn_source.spark.catalog.foreign_calls import ForeignCatalogCalls

            self.target = ForeignTarget.parse(path)
            self.target.open()
            self._calls = ForeignCatalogCalls(self.target).by_name
            return
        target = Target.of(path, endpoint)
        identity = identity_of(target)
        log = connect(path, endpoint=endpoint, create=False)
        if self._log is not None:
            self._log.close()
        self._log, self._calls = log, CatalogCalls(log).by_name
        self.target, self._identity = target, identity

    def call(self, call: str, arguments: dict[str, Any]) -> Any:
        """Return a call's answer."""
        if isinstance(self.target, Target) and identity_of(self.target) != self._identity:
            self.open(self.target.path, self.target.endpoint)
        return self._calls[call](**arguments)


def _answer(answers: TextIO, call: Callable[[], Any]) -> None:
    try:
        said = {"answer": call()}
    except Exception as error:
        if passes(error) and not isinstance(error, TxnLogError):
            raise
        ours = error if isinstance(error, TxnLogError) else translated(error, "catalog")
        said = {"error": {"code": ours.code, "message": str(ours)}}
    answers.write(json.dumps(said) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
