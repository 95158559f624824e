"""Opening a log: ``txn_source.connect``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from txn_source.client.log import Log
from txn_source.client.target import Target
from txn_source.model.door import guard
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.foreign_path import is_foreign
from txn_source.model.units import is_number


@guard
def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    endpoint: str | None = None,
    create: bool = True,
    timeout: float = 30.0,
    options: Mapping[str, str] | None = None,
) -> Log:
    """Open a log.

    Args:
        path: the root of an embedded log; nothing needs to run, and many processes may use it at once. Or a log that
            others wrote, ``kafka:/folder``, ``pulsar:s3://bucket/prefix?...``: a ``ReadOnlyLog``, which writes nothing.
        endpoint: ``host:port`` of a metadata service (``txnlog serve``), or of several of one log with commas
            between them, instead of a path.
        create: make a new log at the path if the folder is missing or empty.
        timeout: deadline of each call to a service, in seconds.
        options: what the format of a log that others wrote has to be told, such as Pulsar's ``managedLedgers``.

    Raises:
        InvalidArgumentError: a path, an endpoint or a timeout that can't be.
        LogNotFoundError: no log lies at the path, and none was to be made.
        UnavailableError: the service didn't answer.
    """
    if not is_number(timeout):
        raise InvalidArgumentError(f"{timeout!r:.80} is not a timeout.", "Use seconds, more than 0.")
    if is_foreign(path) and endpoint is None:
        from txn_source.foreign.read_only_log import ReadOnlyLog
        from txn_source.foreign.target import ForeignTarget

        return cast("Log", ReadOnlyLog(ForeignTarget.parse(cast("str", path), options)))
    if options:
        raise InvalidArgumentError(f"The log takes no options, and has {', '.join(options)}.", "Leave them out.")
    return Log(Target.of(path, endpoint, create=create, timeout_s=timeout))
