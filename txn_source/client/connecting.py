"""Opening a log: ``txn_source.connect``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from txn_source.client.log import Log
from txn_source.client.target import Target, check_needless
from txn_source.model.door import guard
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.foreign_path import is_foreign
from txn_source.model.units import is_number
from txn_source.storage.root import MEMORY


@guard
def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    endpoint: str | None = None,
    create: bool = True,
    timeout: float = 30.0,
    options: Mapping[str, str] | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    token_file: str | os.PathLike[str] | None = None,
    token: str | None = None,
    metadata: str | os.PathLike[str] | None = None,
) -> Log:
    """Open a log.

    Args:
        path: the root of an embedded log; nothing needs to run, and many processes may use it at once. It is a folder,
            or a prefix of an object store, ``s3://bucket/log``; then ``metadata`` is needed, too. Or a log that others
            wrote, ``kafka:/folder``, ``pulsar:s3://bucket/prefix?...``: a ``ReadOnlyLog``, which writes nothing. Or
            ``memory:``, a new log for a test, which is gone when it is closed.
        endpoint: ``host:port`` of a metadata service (``txnlog serve``), or of several of one log with commas
            between them, instead of a path.
        create: make a new log at the path if the folder is missing or empty.
        timeout: deadline of each call to a service, in seconds.
        options: what the format of a log that others wrote has to be told, such as Pulsar's ``managedLedgers``.
        tls_ca: speak TLS to the service, whose certificate must be of an authority in this file; ``"system"`` takes
            those that this machine trusts. Without it, and ``TXNLOG_TLS_CA``, calls go in plain text.
        tls_cert: the client's own certificate, for a service that wants one (``TXNLOG_TLS_CERT``).
        tls_key: its key (``TXNLOG_TLS_KEY``).
        token_file: a file with the token that says who calls (``TXNLOG_TOKEN_FILE``, or the token itself in
            ``TXNLOG_TOKEN``). It is read again when it changes.
        token: the token itself; a log that was opened with it can't be pickled.
        metadata: where an embedded log on an object store has its metadata: the path of a SQLite file of this machine,
            or ``postgresql://...``.

    Raises:
        InvalidArgumentError: a path, an endpoint or a timeout that can't be.
        LogNotFoundError: no log lies at the path, and none was to be made.
        UnavailableError: the service didn't answer.
        UnauthenticatedError: the service wants a token, or another one.
    """
    if not is_number(timeout):
        raise InvalidArgumentError(f"{timeout!r:.80} is not a timeout.", "Use seconds, more than 0.")
    credentials = {"tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key, "token_file": token_file, "token": token}
    if path == MEMORY and endpoint is None:
        check_needless(credentials)
        if metadata is not None or options or not create:
            raise InvalidArgumentError("A log in memory is new, and takes no options.", "Leave out all but the path.")
        from txn_source.client.memory_log import MemoryLog

        return MemoryLog()
    if is_foreign(path) and endpoint is None:
        check_needless(credentials)
        if metadata is not None:
            raise InvalidArgumentError("A log that others wrote has no metadata of ours.", "Leave metadata= out.")
        from txn_source.foreign.read_only_log import ReadOnlyLog
        from txn_source.foreign.target import ForeignTarget

        return cast("Log", ReadOnlyLog(ForeignTarget.parse(cast("str", path), options)))
    if options:
        raise InvalidArgumentError(f"The log takes no options, and has {', '.join(options)}.", "Leave them out.")
    target = Target.of(path, endpoint, create=create, timeout_s=timeout, credentials=credentials, metadata=metadata)
    return Log(target)
