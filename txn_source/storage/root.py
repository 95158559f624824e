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
import tempfile
from dataclasses import dataclass
from pathlib import Path

from txn_source.model.errors import InvalidArgumentError, LogNotFoundError, LogVersionError, StorageWriteError

FORMAT_VERSION = 3
_MARKER = "txnlog.json"
_DATABASE = "metadata.db"
_CONFIGURATION = "broker.conf"


@dataclass(frozen=True, slots=True)
class LogRoot:
    """The folder of a log that exists, or may be made (``create``)."""

    path: Path

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> LogRoot:
        """Return the root at a local path, or at a ``file:`` URI as Spark hands it over."""
        text = os.fspath(path)
        if not text:
            raise InvalidArgumentError("The path of the log is empty.", "Name the folder that holds it.")
        if text.startswith("file:"):
            text = "/" + text.removeprefix("file:").lstrip("/")
        elif "://" in text:
            raise InvalidArgumentError(
                f"{text!r} is not a local path.", "Use a folder of this machine, or connect by endpoint."
            )
        return cls(Path(os.path.expanduser(text)).absolute())

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
        return (self.path / _MARKER).is_file()

    def check(self) -> None:
        """Raise LOG_NOT_FOUND or LOG_VERSION unless the folder holds a log that this release can use."""
        try:
            text = (self.path / _MARKER).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            what = "is not a txnlog root" if self.path.exists() else "does not exist"
            raise LogNotFoundError(
                f"There is no log at {self.path}: it {what}.",
                "Check the path, or make a log there with txn_source.connect(path) or `txnlog topics create`.",
            ) from None
        except OSError as error:
            raise LogNotFoundError(
                f"The log at {self.path} can't be read: {error.strerror}.", "Check the permissions."
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
        """Raise LOG_NOT_FOUND if the folder holds something that isn't a log (half-made ones are ours)."""
        if self.path.is_dir():
            foreign = [
                p.name for p in self.path.iterdir() if not p.name.startswith((_DATABASE, _MARKER, _CONFIGURATION, "."))
            ]
        else:
            foreign = [self.path.name] if self.path.exists() else []
        if foreign:
            raise LogNotFoundError(
                f"There is no log at {self.path}, and the folder is not empty (it has {sorted(foreign)[0]!r}).",
                "Name an empty or new folder to make a log, or the root of one that exists.",
            )

    def make_folder(self) -> None:
        """Make the empty folder."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refused(error) from error

    def finish(self) -> None:
        """Write the marker: from now on the folder is a log."""
        try:
            with tempfile.NamedTemporaryFile(
                "w", dir=self.path, prefix=f"{_MARKER}.", delete=False, encoding="utf-8"
            ) as file:
                json.dump({"format_version": FORMAT_VERSION}, file)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, self.path / _MARKER)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> StorageWriteError:
        return StorageWriteError(
            f"A log can't be made at {self.path}: {error.strerror}.", "Check permissions and free space."
        )
