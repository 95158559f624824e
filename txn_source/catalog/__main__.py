"""The process that a catalog asks: ``python -m txn_source.catalog``.

A line of JSON each: first the target, ``{"path": ...}`` or ``{"endpoint": ...}``; then calls, ``{"call": ...,
"arguments": {...}}``, each answered by ``{"answer": ...}`` or ``{"error": {"code": ..., "message": ...}}``. It ends with
its input.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from txn_source.model.door import passes, translated
from txn_source.model.errors import TxnLogError


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints must not come between the answers
    lines = iter(sys.stdin)
    first = next(lines, None)
    if first is None:
        return
    calls: dict[str, Any] = {}
    for line in (first, *()):
        calls = _answer(answers, lambda line=line: _open(json.loads(line)), quiet=True) or {}
    for line in lines:
        asked = json.loads(line)
        _answer(answers, lambda asked=asked: calls[asked["call"]](**asked["arguments"]))


def _open(target: dict[str, str]) -> dict[str, Any]:
    from txn_source.catalog.calls import CatalogCalls
    from txn_source.client.connecting import connect

    return dict(CatalogCalls(connect(**target)).by_name)


def _answer(answers: Any, call: Any, *, quiet: bool = False) -> Any:
    try:
        answer = call()
        said: dict[str, Any] = {"answer": None if quiet else answer}
    except Exception as error:
        if passes(error) and not isinstance(error, TxnLogError):
            raise
        ours = error if isinstance(error, TxnLogError) else translated(error, "catalog")
        answer, said = None, {"error": {"code": ours.code, "message": str(ours)}}
    answers.write(json.dumps(said) + "\n")
    answers.flush()
    return answer


if __name__ == "__main__":
    main()
