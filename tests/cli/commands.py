"""The commands of ``txnlog``, made once: Typer makes them anew for each run, which takes longer than most of them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from unittest.mock import patch

import typer.main
import typer.testing

command_of = cache(typer.main.get_command)


def kept() -> AbstractContextManager[object]:
    """Let all runs in this process share the commands until the block ends."""
    return patch.object(typer.testing, "_get_command", command_of)
