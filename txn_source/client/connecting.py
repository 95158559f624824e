"""Opening a log: ``txn_source.connect``."""

from __future__ import annotations

import os

from txn_source.client.log import Log
from txn_source.client.target import Target
from txn_source.model.door import guard
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.units import is_number


@guard
def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    endpoint: str | None = None,
    create: bool = True,
    timeout: float = 30.0,
    metadata: str | os.PathLike[str] | None = None,
) -> Log:
    """Open a log.

    Args:
        path: the root of an embedded log; nothing needs to run, and many processes may use it at once. It is a folder,
            or a prefix of an object store, ``s3://bucket/log``; then ``metadata`` is needed, too.
        endpoint: ``host:port`` of a metadata service (``txnlog serve``), or of several of one log with commas
            between them, instead of a path.
        create: make a new log at the path if the folder is missing or empty.
        timeout: deadline of each call to a service, in seconds.
        metadata: where an embedded log on an object store has its metadata: the path of a SQLite file of this machine,
            or ``postgresql://...``.

    Raises:
        InvalidArgumentError: a path, an endpoint or a timeout that can't be.
        LogNotFoundError: no log lies at the path, and none was to be made.
        UnavailableError: the service didn't answer.
    """
    if not is_number(timeout):
        raise InvalidArgumentError(f"{timeout!r:.80} is not a timeout.", "Use seconds, more than 0.")
    return Log(Target.of(path, endpoint, create=create, timeout_s=timeout, metadata=metadata))
