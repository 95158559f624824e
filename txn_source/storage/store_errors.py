"""What object stores refuse, or don't answer."""

from __future__ import annotations


class StoreError(OSError):
    """Why a store did not do what it was asked for.

    ``passing``: it may do so later. ``unreachable``: it didn't answer at all.
    """

    def __init__(self, text: str, *, passing: bool = False, unreachable: bool = False) -> None:
        super().__init__(text)
        self.passing = passing or unreachable
        self.unreachable = unreachable


class AlreadyThereError(StoreError):
    """An object is there that was to be put only if none was."""
