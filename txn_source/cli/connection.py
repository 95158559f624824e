"""Which log a command works on, and opening it.

``--root`` and ``--endpoint``, and what the service is shown, are understood before and after the subcommand; what comes
later wins, and the environment counts only where neither is given.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer

from txn_source.cli.output import reports_errors
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.foreign_path import is_foreign
from txn_source.storage.object_uri import is_object_uri
from txn_source.storage.root import check_no_memory

if TYPE_CHECKING:
    from txn_source.client.log import Log

ROOT_VARIABLE, ENDPOINT_VARIABLE, METADATA_VARIABLE = "TXNLOG_ROOT", "TXNLOG_ENDPOINT", "TXNLOG_METADATA"
_PANEL = "Which log"

Root = Annotated[
    str | None,
    typer.Option(
        "--root",
        metavar="PATH",
        help="Folder of an embedded log, its prefix on an object store, whose metadata is where"
        f" {METADATA_VARIABLE} says, or kafka:/folder, pulsar:/folder (or set {ROOT_VARIABLE}).",
        rich_help_panel=_PANEL,
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
FormatOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="What the format of a log that others wrote has to be told, as Pulsar's managedLedgers.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
_SHOWN = "What the service is shown"


def _file(text: str, variable: str) -> Any:
    return typer.Option(metavar="FILE", help=f"{text} (or set {variable}).", rich_help_panel=_SHOWN, show_default=False)


TlsCa = Annotated[
    str | None,
    _file('Speak TLS: authorities of the service\'s certificate; "system": those of this machine', "TXNLOG_TLS_CA"),
]
TlsCert = Annotated[str | None, _file("This client's certificate", "TXNLOG_TLS_CERT")]
TlsKey = Annotated[str | None, _file("Its private key", "TXNLOG_TLS_KEY")]
TokenFile = Annotated[str | None, _file("The token that says who calls", "TXNLOG_TOKEN_FILE, or TXNLOG_TOKEN itself")]
CREDENTIALS = {"tls_ca": TlsCa, "tls_cert": TlsCert, "tls_key": TlsKey, "token_file": TokenFile}
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Address:
    """What was said about the log so far: its root, its service's endpoint, or nothing yet.

    ``credentials`` are what the service is shown, as ``connect`` takes them.
    """

    root: str | None = None
    endpoint: str | None = None
    credentials: Mapping[str, Any] = field(default_factory=dict)

    def showing(self, **credentials: str | None) -> Address:
        """Return the address with what was given later of what the service is shown."""
        given = {name: value for name, value in credentials.items() if value is not None}
        return replace(self, credentials={**self.credentials, **given})

    def override(self, root: str | None, endpoint: str | None) -> Address:
        """Return the address with what was given later."""
        return replace(
            self,
            root=self.root if root is None else root,
            endpoint=self.endpoint if endpoint is None else endpoint,
        )

    def resolve(self) -> Address:
        """Return the address of exactly one log, or fail as wrong usage."""
        found = self
        if found.root is None and found.endpoint is None:
            found = found.override(os.environ.get(ROOT_VARIABLE) or None, os.environ.get(ENDPOINT_VARIABLE) or None)
        if (found.root is None) == (found.endpoint is None):
            given = "Neither is given" if found.root is None else "Both are given"
            raise typer.BadParameter(
                f"{given}. Name one log: --root PATH (or {ROOT_VARIABLE}) for an embedded one,"
                f" --endpoint HOST:PORT (or {ENDPOINT_VARIABLE}) for a service.",
                param_hint="'--root' / '--endpoint'",
            )
        check_no_memory(found.root or "")
        return found


_FORMAT_OPTIONS = inspect.Parameter(
    "format_options", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=FormatOptions
)


def on_log(
    *, create: bool = False, foreign: Callable[..., None] | None = None
) -> Callable[[Callable[Concatenate[Log, P], None]], Callable[..., None]]:
    """Make a command of a function whose first parameter is an open log.

    The command has ``--root``, ``--endpoint`` and the credentials beside the function's own options, opens the log
    that they name, closes it at the end and reports errors. With ``create`` a missing root is made. ``foreign`` does
    it, with the same options, on a log that others wrote; without it the command is refused there.
    """

    def decorate(function: Callable[Concatenate[Log, P], None]) -> Callable[..., None]:
        @reports_errors
        def command(context: typer.Context, root: str | None, endpoint: str | None, **options: Any) -> None:
            shown = {name: options.pop(name) for name in CREDENTIALS}
            told = options.pop("format_options", None)
            address = address_of(context).override(root, endpoint).showing(**shown).resolve()
            if is_foreign(address.root) and foreign is None:
                raise InvalidArgumentError(
                    f"{str(address.root).partition('?')[0]} is only read: there is no `{context.command_path}` for it.",
                    "Use topics list, topics stats, transactions list or consume; or import to a log of txnlog's own.",
                )
            from txn_source.client.connecting import connect  # takes most of a second: not for --help

            os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own lines would come before ours
            makes = create and address.root is not None
            given = {**address.credentials, "metadata": metadata_of(address.root)}
            if told and not is_foreign(address.root):
                raise typer.BadParameter("It is for logs that others wrote.", param_hint="'--option'")
            if told:
                given["options"] = options_of(told)
            with connect(address.root, endpoint=address.endpoint, create=makes, **given) as log:
                act: Callable[..., None] = foreign if foreign and is_foreign(address.root) else function
                act(log, **options)

        hints = get_type_hints(function, localns={"Log": Any}, include_extras=True)
        own = list(inspect.signature(function).parameters.values())[1:]
        parameters = [
            inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name]) for p in own),
            inspect.Parameter("root", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Root),
            inspect.Parameter("endpoint", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Endpoint),
            *(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
                for name, option in CREDENTIALS.items()
            ),
            *([] if foreign is None else [_FORMAT_OPTIONS]),
        ]
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def options_of(given: Sequence[str]) -> dict[str, str]:
    """Return options of a format from texts such as ``managedLedgers=/file``."""
    for text in given:
        if not text.partition("=")[0].strip() or "=" not in text:
            raise typer.BadParameter(f"{text!r} is no NAME=VALUE.", param_hint="'--option'")
    return {name.strip(): value for name, _, value in (text.partition("=") for text in given)}


def database_of(option: str | None) -> str | None:
    """Return the metadata database that an option names, or the environment where it isn't given; None: none."""
    return (os.environ.get(METADATA_VARIABLE) if option is None else option) or None


def metadata_of(root: str | None) -> str | None:
    """Return where the environment says that the metadata of a root on an object store is; other roots have it."""
    return database_of(None) if is_object_uri(root) and not is_foreign(root) else None


def address_of(context: typer.Context) -> Address:
    """Return what was said about the log before the subcommand."""
    return context.find_object(Address) or Address()
