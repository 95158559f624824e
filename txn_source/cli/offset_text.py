"""A place in a topic as people write it: a position, JSON, or a publish time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from txn_source.client.places import Offsets

_TIME = re.compile(r"\d{4}-.*|-?\d+")


def offsets_of(text: str | None, default: str) -> Offsets:
    """Return the offsets that a text means; ``default``, earliest or latest, is what None stands for."""
    from txn_source.client.places import Offsets

    if text is not None and _TIME.fullmatch(text.strip()):
        return Offsets.at_time(text, default)
    return Offsets.parse(text, default)
