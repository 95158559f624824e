"""Objects of this process that a forked child must not go on using: they are told so in the child, first of all."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """Something with threads, locks or connections, none of which a child has."""

    def disown(self) -> None:
        """Forget, in a child, what belongs to the parent, without waiting for a lock: its holder isn't there."""


_made_here: weakref.WeakSet[Inherited] = weakref.WeakSet()


def tell_children(made: Inherited) -> None:
    """Have ``disown`` called in each child that is forked from now on."""
    _made_here.add(made)


def _in_child() -> None:
    for made in list(_made_here):
        made.disown()
        _made_here.discard(made)


os.register_at_fork(after_in_child=_in_child)
