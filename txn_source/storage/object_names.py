"""Names of offloaded ledgers' objects, below whatever folder they are put in."""

from __future__ import annotations

import re
import uuid

from txn_source.model.topic_name import TopicName
from txn_source.storage.object_uri import object_uri

_OWN_FOLDER = "tiered"
_WORD = r"(?!\.{1,2}/)[A-Za-z0-9_.=:-]+"
_NAME = re.compile(r"(?:.*/)?(ledger-([0-9]+)-[0-9a-f]{12})\.parquet", re.DOTALL)
_PATH = re.compile(rf"(?:.*/)?{_WORD}/{_WORD}/{_WORD}/[0-9]+/ledger-[0-9]+-[0-9a-f]{{12}}\.parquet", re.DOTALL)
_SECOND_PATH = re.compile(rf"(?:.*/)?{_WORD}/{_WORD}/{_WORD}/[0-9]+/_ledger-[0-9]+-[0-9a-f]{{12}}\.aborted", re.DOTALL)


def new_object_uri(folder: str | None, topic: TopicName, partition: int, ledger_id: int) -> str:
    """Return a fresh URI for a ledger's object in a folder (None: the log's own one)."""
    return _uri(folder, topic, partition, ledger_id, uuid.uuid4().hex[:12])


def is_object_of(uri: str, folder: str | None, topic: TopicName, partition: int, ledger_id: int) -> bool:
    """True if a URI is one that ``new_object_uri`` can have made from the same arguments."""
    unique = re.findall(r"-([0-9a-f]{12})\.parquet", uri)  # folder and topic may have such parts, too
    return any(uri == _uri(folder, topic, partition, ledger_id, part) for part in unique)


def may_be_object(uri: str) -> bool:
    """True if a URI has the form of an object of ours, in whatever folder; a relative one must stay in the root."""
    path, _ = _split(uri)
    inside = "://" in path or path.startswith("/") or ".." not in path.split("/")
    return inside and _PATH.fullmatch(path) is not None


def ledger_of_object(uri: str) -> int | None:
    """Return the id of the ledger that an object is named after; None if it has no such name."""
    found = _NAME.fullmatch(_split(uri)[0])
    return None if found is None else int(found[2])


def may_be_second_file(path: str) -> bool:
    """True if a path has the form of that of a file with aborted messages."""
    return _SECOND_PATH.fullmatch(path) is not None


def aborted_uri(uri: str) -> str:
    """Return the URI of the file with the aborted messages that lies beside an object.

    Neither a pattern such as ``*.parquet`` finds it nor a tool that leaves out names with an underscore in front.
    """
    path, rest = _split(uri)
    found = _NAME.fullmatch(path)
    if found is None:
        raise ValueError(f"{uri!r} is not the name of an object")
    return f"{path[: found.start(1)]}_{found[1]}.aborted{rest}"


def object_of_second_file(uri: str) -> str:
    """Return the URI of the object beside which a file with aborted messages lies."""
    path, rest = _split(uri)
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.removeprefix('_').removesuffix('.aborted')}.parquet{rest}"


def _split(uri: str) -> tuple[str, str]:
    """Return a URI's path, with what is before it, and its parameters."""
    path, mark, parameters = uri.partition("?") if "://" in uri else (uri, "", "")
    return path, mark + parameters


def _uri(folder: str | None, topic: TopicName, partition: int, ledger_id: int, unique: str) -> str:
    path = f"{topic.tenant}/{topic.namespace}/{topic.name}/{partition}/ledger-{ledger_id}-{unique}.parquet"
    return object_uri(folder, path if folder else f"{_OWN_FOLDER}/{path}")
