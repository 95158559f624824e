"""What a log knows of a file in its places."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What the database says of a segment or an object, by its name."""

    KNOWN = "known"
    """The log refers to it."""
    WRITING = "writing"
    """Nothing was registered from it, and its writer may still do so."""
    RELEASED = "released"
    """It waits to be deleted, as the log has said."""
    LEFTOVER = "leftover"
    """Nothing can be registered from it any more: its writer has ended, or its topic was deleted."""
    UNKNOWN = "unknown"
    """Nobody knows whether somebody needs it."""
    AHEAD = "ahead"
    """It has a number that the log hasn't given out yet: the database is older than its files."""


class Doom(StrEnum):
    """Which files are to be deleted when they are judged, beside those that are released already."""

    LEFTOVER = "leftover"
    UNKNOWN = "unknown"
    """What nobody knows, and leftovers."""
