"""``txnlog tokens``: keys, and the tokens that say who calls a service and what it may do."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from txn_source.cli.access_options import library
from txn_source.cli.output import Json, print_json, reports_errors
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.units import parse_duration

app = typer.Typer(no_args_is_help=True, help="Make keys and tokens for services, and look at tokens.")


def _patterns(what: str) -> Any:
    return typer.Option(
        metavar="PATTERN",
        help=f"Topics that it may {what}: tenant/namespace/topic, tenant/namespace/*, tenant/*, or *. Repeat it.",
        show_default=False,
    )


@app.command("keygen")
@reports_errors
def keygen(
    private: Annotated[Path, typer.Argument(help="File for the private key, which signs tokens. Keep it to yourself.")],
    public: Annotated[Path, typer.Argument(help="File for the public key, which the service checks tokens with.")],
    algorithm: Annotated[str, typer.Option(help="RS256, ES256 or EdDSA.")] = "ES256",
) -> None:
    """Make a pair of keys."""
    with library():
        from txn_source.metadata.access.issuing import make_keys

    make_keys(algorithm, private, public)


@app.command("create")
@reports_errors
def create(
    key: Annotated[Path, typer.Option(metavar="FILE", help="The private key.")],
    subject: Annotated[str, typer.Option(help="Who it is for: producers and transactions belong to it.")],
    expires: Annotated[str, typer.Option(metavar="AGE", help="How long it is valid: 12h, 30d.")],
    produce: Annotated[list[str] | None, _patterns("write to")] = None,
    consume: Annotated[list[str] | None, _patterns("read and subscribe to")] = None,
    admin: Annotated[list[str] | None, _patterns("read, make, change and delete")] = None,
    monitor: Annotated[
        list[str] | None,
        typer.Option(metavar="*", help="It may see the metrics of the whole log: give *.", show_default=False),
    ] = None,
    audience: Annotated[str, typer.Option(help="The service that it is for.")] = "txnlog",
    issuer: Annotated[
        str | None, typer.Option(help="Who says so, if the service asks for that.", show_default=False)
    ] = None,
    starts_in: Annotated[str, typer.Option(metavar="AGE", help="So long it isn't valid yet.")] = "0",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write it there, readable by its owner alone, in place of what is there. Without it: print it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a token, signed with a private key."""
    with library():
        from txn_source.metadata.access.issuing import make_token, write_secret
    from txn_source.model.roles import Role

    roles = {
        Role.PRODUCE: produce or [],
        Role.CONSUME: consume or [],
        Role.ADMIN: admin or [],
        Role.MONITOR: monitor or [],
    }
    lifetime_s, starts_in_s = parse_duration(expires), parse_duration(starts_in)
    token = make_token(key, subject, roles, lifetime_s, audience=audience, issuer=issuer, starts_in_s=starts_in_s)
    if out is None:
        print(token)
    else:
        write_secret(out, f"{token}\n".encode())


@app.command("show")
@reports_errors
def show(
    file: Annotated[
        str | None,
        typer.Argument(
            help="File with the token, - for standard input. Without it: TXNLOG_TOKEN, or the file of"
            " TXNLOG_TOKEN_FILE.",
            show_default=False,
        ),
    ] = None,
    keys: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Check it as a service with these public keys does.", show_default=False),
    ] = None,
    audience: Annotated[str, typer.Option(help="That service's audience.")] = "txnlog",
    as_json: Json = False,
) -> None:
    """Print what a token says, and with --keys whether a service would take it; never the token itself."""
    with library():
        from txn_source.metadata.access.issuing import look_at

    token = _token(file)
    found = look_at(token)
    refusal = _refusal(token, keys, audience) if keys else None
    told = {
        "subject": found.claims.get("sub"),
        "roles": found.claims.get("txnlog", {}),
        "audience": found.claims.get("aud"),
        "issuer": found.claims.get("iss"),
        "valid_from": _time(found.claims.get("nbf")),
        "expires": _time(found.claims.get("exp")),
        "expired": _has_passed(found.claims.get("exp")),
        "algorithm": found.algorithm,
        "key_id": found.key_id,
    }
    if keys:
        told["taken"] = refusal is None
    if as_json:
        print_json(told)
    else:
        _print(told)
    if refusal is not None:
        raise refusal


def _print(told: dict[str, object]) -> None:
    roles = told.pop("roles")
    expired = told.pop("expired")
    for name, value in told.items():
        if value is not None:
            ending = " (has expired)" if name == "expires" and expired else ""
            print(f"{name.replace('_', ' ')}: {value}{ending}")
    for role, patterns in roles.items() if isinstance(roles, dict) else ():
        print(f"{role}: {' '.join(map(str, patterns)) if isinstance(patterns, list) else patterns}")


def _token(file: str | None) -> str:
    if file == "-":
        return sys.stdin.read()
    file = file or (None if os.environ.get("TXNLOG_TOKEN") else os.environ.get("TXNLOG_TOKEN_FILE"))
    if file:
        from txn_source.metadata.access.watched_files import read_file

        return read_file(Path(file)).decode("latin-1")
    token = os.environ.get("TXNLOG_TOKEN")
    if not token:
        raise typer.BadParameter("Name a file, or set TXNLOG_TOKEN or TXNLOG_TOKEN_FILE.", param_hint="'FILE'")
    return token


def _refusal(token: str, keys: list[Path], audience: str) -> Exception | None:
    from txn_source.metadata.access.keys import Keys
    from txn_source.metadata.access.tokens import NotTaken, Verifier

    try:
        Verifier(Keys(keys), audience).verify(token.strip())
    except NotTaken as refusal:
        return refusal.error
    return None


def _time(seconds: object) -> str | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidArgumentError(f"{seconds!r:.40} is no time.", "Use a token with real ones.") from error


def _has_passed(seconds: object) -> bool:
    return not isinstance(seconds, int | float) or seconds <= time.time()
