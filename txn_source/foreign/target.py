"""Which log of another system: its format, where it lies, and what its format has to be told. A small value."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.foreign_path import FORMATS, is_foreign
from txn_source.storage.object_uri import parts_of

if TYPE_CHECKING:
    from txn_source.foreign.foreign_log import ForeignLog
    from txn_source.foreign.formats import Format

__all__ = ["ForeignTarget", "is_foreign", "shown_place"]

_BETWEEN = re.compile(r",(?=/|\.{0,2}/|~|[A-Za-z][A-Za-z0-9+.-]*:)")
"""A comma inside a name divides nothing: what comes behind one that does is a path or a URI."""


@dataclass(frozen=True, slots=True)
class ForeignTarget:
    """A log that others wrote. Credentials are no part of it: file systems look for them where they always do."""

    format: str
    places: tuple[str, ...]
    """Absolute paths, and URIs of object stores."""
    options: tuple[tuple[str, str], ...] = ()
    """What the format has to be told, by lower-case names of its own options."""

    @classmethod
    def parse(cls, text: str, options: Mapping[str, str] | None = None) -> ForeignTarget:
        """Return the target that a text such as ``kafka:/a,/b`` or ``pulsar:s3://bucket/prefix?region=...`` names.

        Raises:
            InvalidArgumentError: no format, or no place.
        """
        name, _, rest = text.partition(":")
        places = tuple(_absolute(place) for part in _BETWEEN.split(rest) if (place := part.strip()))
        if name not in FORMATS or not places:
            raise InvalidArgumentError(
                f"{shown_place(text)!r} names no log of another system.",
                "Write kafka:/folder, kafka:/folder1,/folder2 or kafka:s3://bucket/prefix?..., or pulsar: likewise.",
            )
        return cls(name, places, tuple(sorted((n.lower(), v) for n, v in (options or {}).items())))

    def __str__(self) -> str:
        return f"{self.format}:{','.join(shown_place(place) for place in self.places)}"

    def with_options(self, options: Mapping[str, str]) -> ForeignTarget:
        """Return the same log with other options of its format."""
        return ForeignTarget(self.format, self.places, tuple(sorted((n.lower(), v) for n, v in options.items())))

    @property
    def text(self) -> str:
        """What ``parse`` takes, without the options."""
        return f"{self.format}:{','.join(self.places)}"

    @property
    def rules(self) -> Format:
        """The format."""
        from txn_source.foreign.formats import format_of

        return format_of(self.format)

    def open(self) -> ForeignLog:
        """Look at what is there now.

        Raises:
            LogNotFoundError: no log of the format lies there.
            InvalidArgumentError: an option, or a place, that can't be.
        """
        from txn_source.storage.object_store import file_system_of

        return self.rules.open([file_system_of(place) for place in self.places], dict(self.options))


def shown_place(place: str) -> str:
    """Return a path or URI without parameters and without what may stand before a host."""
    base = place.partition("?")[0] if "://" in place else place
    return re.sub(r"://[^/@]*@", "://", base)


def _absolute(place: str) -> str:
    scheme, _, path, _ = parts_of(place)
    if scheme:
        return place
    if "\0" in path:
        raise InvalidArgumentError(f"{place!r:.80} is no path.", "Check the path.")
    return os.path.abspath(os.path.expanduser(place))
