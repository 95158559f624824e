"""A log's root: the folder that holds its segments and, unless a service keeps it elsewhere, its metadata.

<root>/txnlog.json        the format's version; written last, so a folder without it is no log yet. If a service keeps
                          the metadata in PostgreSQL, that, and the id of the log there
<root>/metadata.db        SQLite, unless a service keeps the metadata elsewhere
<root>/metadata.db-migrated   what SQLite had when the metadata was moved to PostgreSQL; nobody opens it
<root>/segments/...       see segment_path
<root>/tiered/...         offloaded ledgers, unless a policy names another place
<root>/broker.conf        the broker's policies, if there are any
"""

from __future__ import annotations

import json
import os
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from txn_source.model.errors import (
    InvalidArgumentError,
    LogNotFoundError,
    LogVersionError,
    StorageWriteError,
    UnavailableError,
)
from txn_source.model.foreign_path import is_foreign
from txn_source.storage.folders import make_folder, sync_folder

FORMAT_VERSION = 3
MEMORY = "memory:"
"""In the place of a path, to ``connect``: a log in memory."""
_MARKER = "txnlog.json"
_COPIES_MARKER = "txnlog-copies.json"
_CLAIM = f"{_MARKER}.claim"
_DATABASE = "metadata.db"
_CONFIGURATION = "broker.conf"
_POSTGRES = "postgresql"
_CLAIMS = 100
_SETTLED: set[tuple[str, int, int]] = set()
"""The logs of which this process knows that their markers are safe: path, file and time of the marker."""
_ADDRESS = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")


def check_no_memory(text: str) -> None:
    """Raise INVALID_ARGUMENT where a log in memory is named, and it can't be one."""
    if text == MEMORY:
        raise InvalidArgumentError(
            "A log in memory belongs to the program that connects to it.",
            f"Name a folder, or ./{MEMORY} if one is to have that name; in Python, connect({MEMORY!r}).",
        )


@dataclass(frozen=True, slots=True)
class LogRoot:
    """The folder of a log that exists, or may be made (``create``)."""

    path: Path

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> LogRoot:
        """Return the root at a local path, or at a ``file:`` URI as Spark hands it over.

        Raises:
            InvalidArgumentError: it is no path, or one of another storage, or a service's address.
        """
        try:
            text = os.fsdecode(path)
            os.path.abspath(text).encode()  # the database and the service take no others
        except (TypeError, ValueError):
            raise InvalidArgumentError(
                f"{path!r} is not a path in UTF-8.", "Name the folder that holds the log."
            ) from None
        if not text:
            raise InvalidArgumentError("The path of the log is empty.", "Name the folder that holds it.")
        if is_foreign(text):
            raise InvalidArgumentError(
                f"{text.partition('?')[0]} is no folder of a log of txnlog's own, but one that others wrote.",
                "It can be read, and imported with `txnlog import`; name a folder here.",
            )
        check_no_memory(text)
        if "\0" in text:
            raise InvalidArgumentError(f"The path {text!r} has a NUL in it.", "Name the folder that holds the log.")
        if text.startswith("file:"):
            text = "/" + text.removeprefix("file:").lstrip("/")
        elif "://" in text:
            raise InvalidArgumentError(
                f"{text!r} is not a local path.", "Use a folder of this machine, or connect by endpoint."
            )
        elif _ADDRESS.fullmatch(text) and not os.path.lexists(text):
            raise InvalidArgumentError(
                f"{text!r} is the address of a service, not a path.",
                f"Use endpoint={text!r} (--endpoint {text}), or ./{text} if a folder is to have that name.",
            )
        expanded = os.path.expanduser(text)
        if expanded.startswith("~") and not os.path.lexists(expanded):
            user = expanded.partition("/")[0]
            raise InvalidArgumentError(
                f"{text!r} names the home folder of {user[1:]!r}, whom this machine doesn't know.",
                f"Check the name, or write ./{text} if a folder is to have that name.",
            )
        return cls(Path(expanded).absolute())

    @property
    def database(self) -> Path:
        """The file of the metadata database."""
        return self.path / _DATABASE

    @property
    def database_url(self) -> str:
        """The URL of the metadata database."""
        return f"sqlite:///{self.path / _DATABASE}"

    @property
    def retired_database(self) -> Path:
        """What the file is called once its content lies in PostgreSQL."""
        return self.path / f"{_DATABASE}-migrated"

    @property
    def configuration(self) -> Path:
        """The broker's configuration, a file that need not be there."""
        return self.path / _CONFIGURATION

    @property
    def exists(self) -> bool:
        """True if a log was made here."""
        return os.path.isfile(self.path / _MARKER)

    def check(self) -> None:
        """Raise LOG_NOT_FOUND or LOG_VERSION unless the folder holds a log that this release can use."""
        try:
            text = (self.path / _MARKER).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            self._check_own()
            what = "is not a txnlog root" if os.path.exists(self.path) else "does not exist"
            raise LogNotFoundError(
                f"There is no log at {self.path}: it {what}.",
                "Check the path, or make a log there with txn_source.connect(path) or `txnlog topics create`.",
            ) from None
        except OSError as error:
            raise LogNotFoundError(
                f"The log at {self.path} can't be read: {error.strerror}.", "Check the path and its permissions."
            ) from error
        try:
            version = int(json.loads(text)["format_version"])
            self._id_in(text)
        except (ValueError, KeyError, TypeError):
            raise LogNotFoundError(
                f"There is no log at {self.path}: its {_MARKER} is not one of txnlog's.", "Check the path."
            ) from None
        if version > FORMAT_VERSION:
            raise LogVersionError(
                f"The log at {self.path} has format version {version}; this release reads up to {FORMAT_VERSION}.",
                "Upgrade txn-source.",
            )
        if version < FORMAT_VERSION:
            raise LogVersionError(
                f"The log at {self.path} has format version {version}, from before the first release; this release"
                f" reads {FORMAT_VERSION}.",
                "Make the log again, or read it with the version of txn-source that wrote it.",
            )

    def _check_own(self) -> None:
        if os.path.exists(self.path / _COPIES_MARKER):
            raise LogNotFoundError(
                f"{self.path} holds copies of a log, and isn't its own root.",
                f"Connect to the log's own root. If that is lost: `txnlog roots promote {self.path}`.",
            ) from None

    @property
    def id_on_postgres(self) -> str | None:
        """The id of the log if its metadata lies in a PostgreSQL database; None if it lies in SQLite here, or there is
        no log."""
        try:
            return self._id_in((self.path / _MARKER).read_bytes())
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _id_in(self, text: bytes) -> str | None:
        marker = json.loads(text)
        return str(marker["log_id"]) if marker.get("metadata") == _POSTGRES else None

    def check_embedded(self) -> None:
        """Raise INVALID_ARGUMENT if the metadata of the log that is here lies in a PostgreSQL database."""
        if self.id_on_postgres is not None:
            raise InvalidArgumentError(
                f"The log at {self.path} keeps its metadata in PostgreSQL, so only a service can open it.",
                "Connect to its service by endpoint= (--endpoint). To run one: `txnlog serve --root"
                f" {self.path} --metadata postgresql://...`.",
            )

    def check_database(self) -> None:
        """Raise LOG_NOT_FOUND if the log that is here has lost its SQLite file: it is made before the marker is."""
        if not os.path.isfile(self.database):
            raise LogNotFoundError(
                f"The log at {self.path} has lost its metadata: there is no {self.database.name}.",
                "Put the file back, or make it of the newest snapshot (`txnlog recover`), or restore a backup (`txnlog"
                f" restore`). Until then remove nothing from {self.path}.",
            )

    def check_on_postgres(self) -> str:
        """Return the id of the log that is here; raise INVALID_ARGUMENT if its metadata lies in SQLite."""
        log_id = self.id_on_postgres
        if log_id is None:
            raise InvalidArgumentError(
                f"The log at {self.path} keeps its metadata in SQLite, in {self.database}.",
                "Serve it without --metadata (and TXNLOG_METADATA), or name another root for a new log.",
            )
        return log_id

    def claim(self) -> str:
        """Return the id of the log that is to be made here, the same for all who try at once.

        It is noted before the log is, so that whoever comes after a creation that failed goes on with it.
        """
        claimed = self.path / _CLAIM
        try:
            for _ in range(_CLAIMS):
                if (known := self.id_on_postgres) is not None:
                    return known
                with suppress(FileNotFoundError):
                    return claimed.read_text(encoding="utf-8")
                temporary = self.path / f"{_MARKER}.{uuid.uuid4().hex[:8]}"
                with suppress(FileExistsError, FileNotFoundError):  # somebody was faster, or has finished
                    temporary.write_text(uuid.uuid4().hex, encoding="utf-8")
                    os.link(temporary, claimed)
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from error
        raise UnavailableError(f"Others are making a log at {self.path}.", "Try again.")

    def check_creatable(self) -> None:
        """Raise LOG_NOT_FOUND unless a log may be made here: in an empty folder (what is left of a creation that failed
        is ours), or in a new one of a folder that is there. A path with a slip in it mostly names none."""
        self._check_own()
        try:
            foreign = self._foreign()
            missing = not foreign and not self.path.parent.is_dir()
        except OSError as error:
            raise self._refused(error) from error
        if foreign and os.path.lexists(self.path) and not self.path.is_dir():
            raise LogNotFoundError(
                f"There is no log at {self.path}: it is not a folder.",
                "Name an empty or new folder to make a log, or the root of one that exists.",
            )
        if foreign and not self.exists:  # another process may just have made it
            raise LogNotFoundError(
                f"There is no log at {self.path}, and the folder is not empty (it has {foreign!r}).",
                "Name an empty or new folder to make a log, or the root of one that exists.",
            )
        if missing:
            raise LogNotFoundError(
                f"There is no log at {self.path}, and no folder {self.path.parent} to make one in.",
                "Check the path, or make that folder first.",
            )

    def make_folder(self) -> None:
        """Make the empty folder."""
        try:
            make_folder(self.path)
        except OSError as error:
            raise self._refused(error) from error

    def finish(self, id_on_postgres: str | None = None) -> None:
        """Write the marker: from now on the folder is a log, and would be so after a power cut.

        ``id_on_postgres``: its id, if its metadata lies in PostgreSQL.
        """
        marker: dict[str, object] = {"format_version": FORMAT_VERSION}
        if id_on_postgres is not None:
            marker |= {"metadata": _POSTGRES, "log_id": id_on_postgres}
        temporary = self.path / f"{_MARKER}.{uuid.uuid4().hex[:8]}"
        try:
            try:
                with temporary.open("x", encoding="utf-8") as file:
                    json.dump(marker, file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, self.path / _MARKER)
            except FileNotFoundError:
                if not self.exists:  # else another process was faster, and has cleared away
                    raise
            for left in self.path.glob(f"{_MARKER}.*"):  # of processes that ended here, or come too late
                left.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        self.settle()

    def retire_database(self) -> None:
        """Give the database's file another name, if it is there: the metadata lies in PostgreSQL."""
        if not self.database.exists() or self.retired_database.exists():
            return
        try:
            os.replace(self.database, self.retired_database)
            sync_folder(self.path)
            beside = self.database.with_name(f"{_DATABASE}-wal")
            if beside.exists() and not beside.stat().st_size:
                beside.unlink(missing_ok=True)
            for name in ("-shm", "-turn"):
                self.database.with_name(f"{_DATABASE}{name}").unlink(missing_ok=True)
        except FileNotFoundError:
            pass  # another process was faster
        except OSError as error:
            raise StorageWriteError(
                f"The file {self.database} can't be renamed: {error.strerror}.", "Check the folder's permissions."
            ) from error

    def settle(self) -> None:
        """Return when a log that is there would still be there after a power cut, whoever made it.

        The process that made it may have ended before it could see to that. Done once in a process.
        """
        try:
            state = (self.path / _MARKER).stat()
            known = (str(self.path), state.st_ino, state.st_mtime_ns)
            if known not in _SETTLED:
                sync_folder(self.path)
                _SETTLED.add(known)
        except PermissionError:
            pass  # whoever may not list the folder didn't make the log, and writes nothing to it
        except OSError as error:
            raise self._refused(error) from error

    def _foreign(self) -> str | None:
        """Return the name of something in the folder's place, or in it, that no creation of a log has left."""
        if not self.path.is_dir():
            in_its_place = os.path.lexists(self.path) and not self.path.is_dir()  # somebody may just have made it
            return self.path.name if in_its_place else None
        names = (_DATABASE, _MARKER, _CONFIGURATION, ".")
        return min((p.name for p in self.path.iterdir() if not p.name.startswith(names)), default=None)

    def _refused(self, error: OSError) -> StorageWriteError:
        return StorageWriteError(
            f"A log can't be made at {self.path}: {error.strerror}.", "Check the path, permissions and free space."
        )
