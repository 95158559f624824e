"""Which log a command works on, and opening it.

``--root`` and ``--endpoint`` are understood before and after the subcommand; what comes later wins, and the
environment counts only where neither is given.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer

from txn_source.cli.output import reports_errors
from txn_source.model.values import dataclass
from txn_source.storage.object_uri import is_object_uri

if TYPE_CHECKING:
    from txn_source.client.log import Log

ROOT_VARIABLE, ENDPOINT_VARIABLE, METADATA_VARIABLE = "TXNLOG_ROOT", "TXNLOG_ENDPOINT", "TXNLOG_METADATA"
_PANEL = "Which log"

Root = Annotated[
    str | None,
    typer.Option(
        "--root", metavar="PATH", help=f"Folder of an embedded log (or set {ROOT_VARIABLE}).", rich_help_panel=_PANEL
    ),
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="HOST:PORT[,...]",
        help=f"Address of a service, `txnlog serve`, or of several of one log (or set {ENDPOINT_VARIABLE}).",
        rich_help_panel=_PANEL,
    ),
]
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Address:
    """What was said about the log so far: its root, its service's endpoint, or nothing yet."""

    root: str | None = None
    endpoint: str | None = None

    def override(self, root: str | None, endpoint: str | None) -> Address:
        """Return the address with what was given later."""
        return Address(self.root if root is None else root, self.endpoint if endpoint is None else endpoint)

    @property
    def on_objects(self) -> bool:
        """True if the root is on an object store, so that its metadata is elsewhere."""
        return is_object_uri(self.root)

    def resolve(self) -> Address:
        """Return the address of exactly one log, or fail as wrong usage."""
        found = self
        if found == Address():
            found = Address(os.environ.get(ROOT_VARIABLE) or None, os.environ.get(ENDPOINT_VARIABLE) or None)
        if (found.root is None) == (found.endpoint is None):
            given = "Neither is given" if found.root is None else "Both are given"
            raise typer.BadParameter(
                f"{given}. Name one log: --root PATH (or {ROOT_VARIABLE}) for an embedded one,"
                f" --endpoint HOST:PORT (or {ENDPOINT_VARIABLE}) for a service.",
                param_hint="'--root' / '--endpoint'",
            )
        return found


def on_log(*, create: bool = False) -> Callable[[Callable[Concatenate[Log, P], None]], Callable[..., None]]:
    """Make a command of a function whose first parameter is an open log.

    The command has ``--root`` and ``--endpoint`` beside the function's own options, opens the log that they name,
    closes it at the end and reports errors. With ``create`` a missing root is made.
    """

    def decorate(function: Callable[Concatenate[Log, P], None]) -> Callable[..., None]:
        @reports_errors
        def command(context: typer.Context, root: str | None, endpoint: str | None, **options: Any) -> None:
            address = address_of(context).override(root, endpoint).resolve()
            from txn_source.client.connecting import connect  # takes most of a second: not for --help

            metadata = os.environ.get(METADATA_VARIABLE) if address.on_objects else None
            with connect(
                address.root,
                endpoint=address.endpoint,
                create=create and address.root is not None,
                metadata=metadata or None,
            ) as log:
                function(log, **options)  # type: ignore[call-arg]

        hints = get_type_hints(function, localns={"Log": Any}, include_extras=True)
        own = list(inspect.signature(function).parameters.values())[1:]
        parameters = [
            inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name]) for p in own),
            inspect.Parameter("root", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Root),
            inspect.Parameter("endpoint", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Endpoint),
        ]
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def address_of(context: typer.Context) -> Address:
    """Return what was said about the log before the subcommand."""
    return context.find_object(Address) or Address()
