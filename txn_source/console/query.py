"""What a request says: parameters of its address, and a JSON body."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txn_source.model.errors import InvalidArgumentError, shown

if TYPE_CHECKING:  # a page's process does without
    from starlette.requests import Request

MAX_LIMIT = 500
MAX_SEARCH = 200
_MOST = (1 << 53) - 1


def number(request: Request, name: str, default: int, least: int = 0, most: int = _MOST) -> int:
    """Return a whole number of the address.

    Raises:
        InvalidArgumentError: it is none, or out of bounds.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 16 and least <= int(text) <= most):
        raise InvalidArgumentError(f"{name} is {shown(text)}.", f"Use a whole number from {least} to {most}.")
    return int(text)


def text(request: Request, name: str) -> str:
    """Return a text of the address that must be there."""
    found = request.query_params.get(name)
    if not found:
        raise InvalidArgumentError(f"The request has no {name}.", f"Give it: ?{name}=...")
    return found


def choice(request: Request, name: str, allowed: Sequence[str]) -> str:
    """Return one of some texts, the first of them if nothing is said."""
    found = request.query_params.get(name, allowed[0])
    if found not in allowed:
        raise InvalidArgumentError(f"{name} is {shown(found)}.", f"Use {', '.join(allowed)}.")
    return found


def flag(request: Request, name: str) -> bool:
    """Return whether something is wished."""
    return request.query_params.get(name, "") not in ("", "0", "false")


def page(request: Request, rows: Sequence[Mapping[str, Any]], now_ms: int, search_in: Sequence[str]) -> dict[str, Any]:
    """Return the rows that a request wants of all of them: searched, sorted, from an offset on.

    Names are sorted as the pages show them. Values that are absent come last.
    """
    found = list(rows)
    if wanted := request.query_params.get("search", "").strip().lower():
        if len(wanted) > MAX_SEARCH:
            raise InvalidArgumentError(
                f"The text searched for has {len(wanted):,} characters.", f"Use {MAX_SEARCH} at most."
            )
        found = [row for row in found if any(wanted in str(row[name]).lower() for name in search_in)]
    if found and "sort" in request.query_params:
        nested = {name for row in found for name, value in row.items() if isinstance(value, list | dict)}
        by = choice(request, "sort", [name for name in found[0] if name not in nested])
        there = [row for row in found if row[by] is not None]
        there.sort(key=lambda row: in_order(row[by]), reverse=flag(request, "descending"))
        found = there + [row for row in found if row[by] is None]
    offset, limit = number(request, "offset", 0), number(request, "limit", 100, 1, MAX_LIMIT)
    return {"now_ms": now_ms, "total": len(found), "rows": found[offset : offset + limit]}


def in_order(value: Any) -> Any:
    """Return what values are sorted by: texts as people look for them, names of topics as the page shows them."""
    return (value.removeprefix("persistent://").casefold(), value) if isinstance(value, str) else value


def given(body: bytes, names: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """Return the fields of a JSON object that is the body of a request.

    Raises:
        InvalidArgumentError: it is no object, or lacks a field, or has another one.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidArgumentError("The body is no JSON.", "Send an object.") from None
    if not isinstance(found, dict) or not set(names) <= found.keys() <= {*names, *optional}:
        raise InvalidArgumentError("The body has other fields.", f"Send an object with {', '.join(names)}.")
    return found
