"""Hot roots: where a log's segments lie. Its own one is always there; others have names, and copies of entries.

A set of roots is a bit mask, a bit for each root's id. Ids are never given twice, so a mask that is old names no root
that came later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from txn_source.model.errors import InvalidArgumentError

MAIN = "main"
"""The name of the log's own root."""
ONLY_MAIN = 1
"""The set of the log's own root alone."""
MAX_ROOT_ID = 61
_NAME = re.compile("[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class HotRoot:
    """A root beside the log's own one: its id, its name, and its path or URI, which clients reach too."""

    root_id: int
    name: str
    uri: str

    @property
    def bit(self) -> int:
        """The set of this root alone."""
        return 1 << self.root_id


@dataclass(frozen=True, slots=True)
class HotCopies:
    """Where each hot entry of a topic is to lie: a set of roots, and in how many of them it must be safe before its
    producer is told so."""

    roots: int = ONLY_MAIN
    acknowledge: int = 1

    def lacks(self, roots: int) -> bool:
        """True if an entry in a set of roots has too few copies to be acknowledged."""
        return roots.bit_count() < self.acknowledge


ONE_COPY = HotCopies()


def parse_root_name(value: str) -> str:
    """Return the name of a root, or raise INVALID_ARGUMENT."""
    if not _NAME.fullmatch(value):
        raise InvalidArgumentError(
            f"{value!r:.80} is not the name of a root.", "Use up to 63 lowercase letters, digits, '-' and '_'."
        )
    return value


def parse_roots(value: object) -> str:
    """Return the names of roots, with commas between them, as a policy has them."""
    text = value if isinstance(value, str) else ",".join(map(str, value)) if isinstance(value, list | tuple) else ""
    names = [parse_root_name(name.strip()) for name in text.split(",")] if text.strip() else []
    if not names or len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"{value!r:.80} is not a list of different roots.", "Name some with commas between them, such as main,b."
        )
    return ",".join(names)


def hot_copies(names: str, acknowledge: int | None, there: Iterable[HotRoot]) -> HotCopies:
    """Return what the policies ``hot_copies`` and ``acknowledge_copies`` mean.

    Raises:
        InvalidArgumentError: there is no such root, or more copies are to be acknowledged than there are.
    """
    bits = {MAIN: ONLY_MAIN} | {root.name: root.bit for root in there}
    wanted = names.split(",")
    for name in wanted:
        if name not in bits:
            raise InvalidArgumentError(
                f"The policy hot_copies names the root {name!r}, and the log has none of that name.",
                f"Add it (`txnlog roots add {name} URI`), or use {', '.join(sorted(bits))}.",
            )
    if acknowledge is not None and acknowledge > len(wanted):
        raise InvalidArgumentError(
            f"The policy acknowledge_copies is {acknowledge}, and hot_copies has {len(wanted)} (it is {names}).",
            "Name more roots, or acknowledge with fewer copies.",
        )
    return HotCopies(sum(bits[name] for name in wanted), acknowledge or len(wanted))
