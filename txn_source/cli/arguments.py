"""What several commands take in the same way: a topic's name, and the answer to "are you sure?"."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from txn_source.cli import completion

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="orders, or persistent://tenant/namespace/orders.",
        show_default=False,
        autocompletion=completion.topics,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


def confirm(question: str, *, yes: bool) -> None:
    """Ask at the terminal, unless the answer was given with the command; a no ends the command with status 1."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("There is no terminal to ask at. Give it if you are sure.", param_hint="'--yes'")
    typer.confirm(question, abort=True, err=True)
