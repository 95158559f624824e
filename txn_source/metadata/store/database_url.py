"""Where a metadata database is: a URL that never shows its password."""

from __future__ import annotations

import re
from typing import Any

from txn_source.model.errors import InvalidArgumentError

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")
_SCRUBBED_FROM = 3
"""A shorter password isn't looked for in texts: it would be found in ordinary words."""


class DatabaseUrl:
    """The URL of a SQLite file or a PostgreSQL database.

    Its text and repr leave the password out, and one of PostgreSQL can't be pickled; ``revealed`` is for the driver
    alone.
    """

    __slots__ = ("_masked", "_password", "_text")

    def __init__(self, text: str) -> None:
        """Take a URL.

        Raises:
            InvalidArgumentError: it is of neither kind, or can't be read; the error has nothing of it.
        """
        self._text = text
        self._password: str | None = None
        if text.startswith(_SQLITE):
            self._masked = text
        elif text.startswith(_POSTGRES):  # nothing else of a text that isn't understood is shown
            self._masked, self._password = _parsed(text)
        else:
            scheme = re.match(r"[A-Za-z][\w+.-]*(?=://)", text)
            raise InvalidArgumentError(
                f"{'A URL of ' + scheme.group() if scheme else 'That'} is not a metadata database.",
                "Use sqlite:///<path> or postgresql://<user>@<host>/<database>.",
            )

    @classmethod
    def of(cls, url: str | DatabaseUrl) -> DatabaseUrl:
        """Return the URL in a text, or itself."""
        return url if isinstance(url, DatabaseUrl) else cls(url)

    @property
    def is_postgres(self) -> bool:
        """True if it names a PostgreSQL database."""
        return not self._text.startswith(_SQLITE)

    @property
    def sqlite_path(self) -> str | None:
        """The path of a SQLite file, as it stands in the URL; None for PostgreSQL."""
        return None if self.is_postgres else self._text.removeprefix(_SQLITE)

    @property
    def revealed(self) -> str:
        """All of the URL, for the driver."""
        return self._text

    def scrubbed(self, text: str) -> str:
        """Return a text without the password, should it be in there."""
        if self._password is None or len(self._password) < _SCRUBBED_FROM:
            return text
        return text.replace(self._password, "***")

    def __str__(self) -> str:
        return self._masked

    def __repr__(self) -> str:
        return f"DatabaseUrl({self._masked!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatabaseUrl) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[DatabaseUrl], tuple[str]]:
        if not self.is_postgres:
            return DatabaseUrl, (self._text,)
        raise InvalidArgumentError(
            "The URL of a metadata database is not pickled: it may have a password.",
            "Connect other processes to the service, by endpoint=.",
        )


def _parsed(text: str) -> tuple[str, str | None]:
    """Return what of a PostgreSQL URL may be shown, and its password."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise InvalidArgumentError(
            "A metadata database on PostgreSQL needs the package psycopg.", "Install txn-source[postgres]."
        ) from None
    try:
        parts: dict[str, Any] = conninfo_to_dict(text)
    except ProgrammingError:  # its text may have the password
        raise _unreadable() from None
    shown = {name: str(parts.get(name) or "") for name in ("user", "host", "hostaddr", "port", "dbname")}
    # What isn't percent-encoded in a password ends up in these.
    if any("@" in value or "/" in shown["dbname"] for value in shown.values()):
        raise _unreadable()
    if not re.fullmatch(r"[\d,]*", shown["port"]):
        raise _unreadable()
    user = f"{shown['user']}@" if shown["user"] else ""
    port = f":{shown['port']}" if shown["port"] else ""
    password = parts.get("password")
    masked = f"postgresql://{user}{shown['host'] or shown['hostaddr']}{port}/{shown['dbname']}"
    return masked, None if password is None else str(password)


def _unreadable() -> InvalidArgumentError:
    return InvalidArgumentError(
        "The URL of the metadata database can't be read.",
        "Use postgresql://<user>:<password>@<host>:<port>/<database>, with special characters percent-encoded (@ as"
        " %40, / as %2F).",
    )
