"""A log's root: the folder that holds its segments and, unless a service keeps it elsewhere, its metadata.

<root>/txnlog.json        the format's version; written last, so a folder without it is no log yet
<root>/metadata.db        SQLite
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

from txn_source.model.errors import InvalidArgumentError, LogNotFoundError, LogVersionError, StorageWriteError
from txn_source.storage.folders import make_folder, sync_folder

FORMAT_VERSION = 3
_MARKER = "txnlog.json"
_DATABASE = "metadata.db"
_CONFIGURATION = "broker.conf"
_SETTLED: set[tuple[str, int, int]] = set()
"""The logs of which this process knows that their markers are safe: path, file and time of the marker."""
_ADDRESS = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")


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

    def check_creatable(self) -> None:
        """Raise LOG_NOT_FOUND unless a log may be made here: in an empty folder (what is left of a creation that failed
        is ours), or in a new one of a folder that is there. A path with a slip in it mostly names none."""
        try:
            foreign = self._foreign()
            missing = not foreign and not self.path.parent.is_dir()
        except OSError as error:
            raise self._refused(error) from error
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

    def finish(self) -> None:
        """Write the marker: from now on the folder is a log, and would be so after a power cut."""
        temporary = self.path / f"{_MARKER}.{uuid.uuid4().hex[:8]}"
        try:
            try:
                with temporary.open("x", encoding="utf-8") as file:
                    json.dump({"format_version": FORMAT_VERSION}, file)
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
            return self.path.name if os.path.lexists(self.path) else None
        names = (_DATABASE, _MARKER, _CONFIGURATION, ".")
        return min((p.name for p in self.path.iterdir() if not p.name.startswith(names)), default=None)

    def _refused(self, error: OSError) -> StorageWriteError:
        return StorageWriteError(
            f"A log can't be made at {self.path}: {error.strerror}.", "Check the path, permissions and free space."
        )
