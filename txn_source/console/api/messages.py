"""Messages of a topic, page by page, forwards or from its end backwards, or those with a key."""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from txn_source.client.access import Access
from txn_source.client.reading.count import count
from txn_source.client.reading.source import ReadPartition, Source, resolve
from txn_source.console.browsing import Browser, Key
from txn_source.console.message_rows import Row
from txn_source.console.query import MAX_LIMIT, MAX_SEARCH, choice, flag, number, text
from txn_source.console.values import SHORT, WHOLE
from txn_source.model.errors import (
    InvalidArgumentError,
    OutOfRangeError,
    TopicNotFoundError,
    TxnLogError,
    shown,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import key_of, message_key, position_of
from txn_source.model.position import EARLIEST, LATEST, MessageId, Position
from txn_source.reading.places import Side
from txn_source.reading.request import ReadRequest, Selection

if TYPE_CHECKING:  # a page's process does without
    from starlette.requests import Request

    from txn_source.console.viewer import Viewer
    from txn_source.metadata.store.entries_before import Before

_TOGETHER = 64
"""So many partitions are read for one page."""
_MOST_KEY = 1 << 96
Places = dict[int, int]
"""Places (``message_key``) by partition index."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next page begins. ``searched`` and ``to_search`` count the messages of a search."""

    backwards: bool
    places: Places
    searched: int = 0
    to_search: int | None = None

    def text(self) -> str:
        """Return it as the page hands it back."""
        value = [self.backwards, {str(k): str(v) for k, v in self.places.items()}, self.searched, self.to_search]
        return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode()

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Return what a text says.

        Raises:
            InvalidArgumentError: it is none of ours.
        """
        try:
            backwards, places, searched, to_search = json.loads(base64.urlsafe_b64decode(text.encode()))
            found = {int(index): int(key) for index, key in places.items()}
        except (ValueError, TypeError, AttributeError, binascii.Error, RecursionError):
            raise _no_cursor() from None
        counts = (searched, 0 if to_search is None else to_search)
        if not all(isinstance(n, int) and 0 <= n < 1 << 62 for n in counts):
            raise _no_cursor()
        if not all(0 <= index < 1 << 31 and 0 <= key < _MOST_KEY for index, key in found.items()):
            raise _no_cursor()
        return cls(bool(backwards), found, searched, to_search)


class Reading(Protocol):
    """What a page needs of the log, as a visitor may have it."""

    @property
    def access(self) -> Access:
        """The way to the log."""

    def entries_before(self, partition_id: int, end: int, messages: int, of_bytes: int) -> Before | None:
        """See ``store.entries_before``."""


def messages(request: Request, viewer: Viewer) -> Any:
    """Return a page of messages, and where the next one begins."""
    name = viewer.topic(text(request, "topic")).name
    return {"now_ms": viewer.service.now_ms(), **viewer.read({**request.query_params, "topic": str(name)})}


def page(request: Any, reading: Reading) -> dict[str, Any]:
    """Return a page of the messages of the topic ``query_params["topic"]``, and where the next one begins."""
    level = IsolationLevel(choice(request, "level", [level.value for level in IsolationLevel]))
    limit = number(request, "limit", 50, 1, MAX_LIMIT)
    source = resolve(reading.access.metadata, Selection.of(text(request, "topic")))
    parts = _wanted(request, source)
    whole = flag(request, "full")
    browser = Browser(reading.access, reading.entries_before, source, level, WHOLE if whole else SHORT)
    wanted = _key(request)
    if whole:
        found = _whole(request, browser, parts)
    elif wanted is not None:
        found = _search(request, browser, reading.access, source, parts, wanted, limit)
    else:
        found = _page(request, browser, parts, limit)
    return {"level": level.value, **found}


def _page(request: Request, browser: Browser, parts: Sequence[ReadPartition], limit: int) -> dict[str, Any]:
    """Return the next messages of all partitions by their time: from the end, the newest ones first."""
    if len(parts) > _TOGETHER:
        raise InvalidArgumentError(
            f"The topic has {len(parts):,} partitions, and {_TOGETHER} are read together.", "Choose a partition."
        )
    cursor = _cursor(request)
    backwards = request.query_params.get("from", LATEST) == LATEST if cursor is None else cursor.backwards
    places = _start(request, browser, parts) if cursor is None else cursor.places
    read = browser.backwards if backwards else browser.forwards
    lists: list[list[Row]] = []
    reached: Places = {}
    for before, part in enumerate(parts):
        browser.budget.share(len(parts) - before)
        index, (low, high) = part.view.index, browser.bounds(part)
        places[index] = min(max(places.get(index, high if backwards else low), low), high)
        rows, reached[index] = read(part, places[index], limit)
        lists.append(rows[::-1] if backwards else rows)
    taken = list(islice(merge(*lists, key=lambda row: row.published_us, reverse=backwards), limit))
    last = {row.shown["partition"]: row.key for row in taken}
    counts = Counter(row.shown["partition"] for row in taken)
    for part, rows in zip(parts, lists, strict=True):
        index = part.view.index
        if counts[index] < len(rows):  # the others come with the next page
            reached[index] = places[index] if index not in last else last[index] + (0 if backwards else 1)
    edges = {part.view.index: browser.bounds(part) for part in parts}
    done = all(reached[i] <= low if backwards else reached[i] >= high for i, (low, high) in edges.items())
    return {
        "order": "newest_first" if backwards else "oldest_first",
        "rows": [row.shown for row in taken],
        "next": None if done and backwards else Cursor(backwards, reached).text(),
        "searched_messages": None,
        "to_search": None,
        "done": done,
    }


def _search(
    request: Request,
    browser: Browser,
    access: Access,
    source: Source,
    parts: Sequence[ReadPartition],
    wanted: Key,
    limit: int,
) -> dict[str, Any]:
    """Return messages with a key, partition after partition, as many as were found in a moment.

    From the end the newest ones of each partition come first.
    """
    cursor = _cursor(request)
    if cursor is None:
        backwards = request.query_params.get("from", EARLIEST) == LATEST
        places = {} if backwards else _start(request, browser, parts)
        cursor = Cursor(backwards, places, 0, _to_search(access, source, parts, browser, places))
    backwards, places, reached = cursor.backwards, dict(cursor.places), 0
    search = browser.search_backwards if backwards else browser.search
    rows: list[Row] = []
    for part in parts:
        index, (low, high) = part.view.index, browser.bounds(part)
        first, last = (high, low) if backwards else (low, high)
        at = min(max(places.get(index, first), low), high)
        if at != last and len(rows) < limit and not browser.budget.spent:
            found, at = search(part, at, wanted, limit - len(rows))
            rows += found
        if at != first:
            places[index] = at
        reached += at == last
    done = reached == len(parts)
    searched = cursor.searched + browser.budget.messages
    if cursor.to_search is not None:
        searched = cursor.to_search if done else min(searched, cursor.to_search)
    return {
        "order": "newest_first" if backwards else "oldest_first",
        "by_partition": len(parts) > 1,
        "rows": [row.shown for row in rows],
        "next": None if done else Cursor(backwards, places, searched, cursor.to_search).text(),
        "searched_messages": searched,
        "to_search": cursor.to_search,
        "done": done,
    }


def _whole(request: Request, browser: Browser, parts: Sequence[ReadPartition]) -> dict[str, Any]:
    """Return one message, whole if it isn't gigantic."""
    at = _place(text(request, "position"))
    rows, _ = browser.forwards(_one(parts), at, 1)
    if not rows or rows[0].key != at:
        raise OutOfRangeError(
            f"There is no message {shown(request.query_params['position'])} that {browser.level} shows.",
            "It may have been trimmed; look at those there are.",
        )
    row = rows[0].shown
    return {"order": "oldest_first", "rows": [row], "next": None, "searched_messages": None, "done": True}


def _to_search(
    access: Access, source: Source, parts: Sequence[ReadPartition], browser: Browser, places: Places
) -> int | None:
    """Return how many messages a search goes through; None if that can't be told."""
    if len(parts) < len(source.partitions):
        source = Source(tuple(parts), source.payload, source.decisions)
    positions: dict[Any, Any] = {
        (part.topic, part.view.index): position_of(places[part.view.index])
        for part in parts
        if part.view.index in places
    }
    wanted = ReadRequest(browser.level, Side(EARLIEST, positions), consistent_cut=False)
    try:
        return count(access, source, wanted)
    except TxnLogError:
        return None  # something was trimmed at this moment


def _start(request: Request, browser: Browser, parts: Sequence[ReadPartition]) -> Places:
    """Return where a page begins that no other one came before; nothing of partitions that it begins all of."""
    given = request.query_params.get("from", LATEST)
    if given in (EARLIEST, LATEST):
        return {}
    if given.startswith("@"):
        digits = given[1:]
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 15):
            raise InvalidArgumentError(f"from is {shown(given)}.", "Use @ and milliseconds since the epoch.")
        return browser.at_time(parts, int(digits) * 1000)
    return {_one(parts).view.index: _place(given)}


def _place(text: str) -> int:
    """Return the place of a message or of an entry."""
    if text.count(":") == 2:
        return key_of(MessageId.parse(text))
    return message_key(Position.parse(text))


def _wanted(request: Request, source: Source) -> list[ReadPartition]:
    """Return the partition that a request names, or all."""
    if not request.query_params.get("partition"):
        return list(source.partitions)
    index = number(request, "partition", 0)
    found = [part for part in source.partitions if part.view.index == index]
    if not found:
        topic = source.partitions[0].topic.short
        raise TopicNotFoundError(
            f"Topic {topic!r} has no partition {index}.", f"It has {len(source.partitions)}, numbered from 0."
        )
    return found


def _one(parts: Sequence[ReadPartition]) -> ReadPartition:
    """Return the only partition that is looked at: a position is one of a partition."""
    if len(parts) > 1:
        raise InvalidArgumentError("A position is one of a partition, and none is named.", "Name it: ?partition=0.")
    return parts[0]


def _cursor(request: Request) -> Cursor | None:
    given = request.query_params.get("cursor")
    return Cursor.parse(given) if given else None


def _no_cursor() -> InvalidArgumentError:
    return InvalidArgumentError("The cursor is none of the console's.", "Begin with the first page.")


def _key(request: Request) -> Key | None:
    """Return what is searched for: ``key``, a text, or ``key_hex``, bytes."""
    found, in_hex = request.query_params.get("key"), request.query_params.get("key_hex")
    if max(len(found or ""), len(in_hex or "") // 2) > MAX_SEARCH * 10:
        raise InvalidArgumentError("The key is too long to be searched for.", f"Use {MAX_SEARCH * 10} at most.")
    if in_hex:
        try:
            return Key(bytes.fromhex(in_hex), None)
        except ValueError:
            raise InvalidArgumentError(f"{shown(in_hex)} are no bytes.", "Use pairs of 0-9 and a-f.") from None
    return Key(found.encode("utf-8", "surrogatepass"), found) if found else None
