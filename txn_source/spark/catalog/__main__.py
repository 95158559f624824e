"""The process that a catalog asks: ``python -m txn_source.spark.catalog``.

A line of JSON each: first ``{"target": {"path": ...} or {"endpoint": ...}, "options": {...}}``, the catalog's; then
calls, ``{"call": ..., "arguments": {...}}``. Each line is answered by ``{"answer": ...}`` or ``{"error": {"code": ...,
"message": ...}}``. It ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

from txn_source.client.connecting import connect
from txn_source.model.door import passes, translated
from txn_source.model.errors import TxnLogError
from txn_source.spark.catalog.calls import CatalogCalls
from txn_source.spark.options import check_catalog_options


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints must not come between the answers
    calls: dict[str, Callable[..., Any]] = {}

    def opened(target: dict[str, Any], options: dict[str, str]) -> None:
        check_catalog_options(options)
        calls.update(CatalogCalls(connect(**target, create=False)).by_name)

    for line in sys.stdin:
        asked = json.loads(line)
        _answer(answers, partial(calls[asked["call"]], **asked["arguments"]) if calls else partial(opened, **asked))


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
