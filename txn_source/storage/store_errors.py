"""What object stores refuse, or don't answer."""

from __future__ import annotations


class StoreError(OSError):
    """Why a store did not do what it was asked for.

    ``passing``: it may do so later. ``unreachable``: it didn't answer at all. ``refused``: it refused who asked, or
    couldn't be asked, so that nothing is known of the object.
    """

    def __init__(self, text: str, *, passing: bool = False, unreachable: bool = False, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused
        self.passing = passing or unreachable
        self.unreachable = unreachable


class AlreadyThereError(StoreError):
    """An object is there that was to be put only if none was."""
