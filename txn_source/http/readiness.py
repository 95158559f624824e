"""Whether a service can do its work: its database, the version of its tables, its root."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store.log_identity import read_info
from txn_source.metadata.store.table_version import SCHEMA_VERSION, read_version
from txn_source.model.door import translated
from txn_source.model.errors import LogVersionError, TxnLogError, UnavailableError
from txn_source.storage.object_root import Root

PATIENCE_S = 3.0
_KNOWN_S = 1.0
_OLD_S = 30.0
Check = Callable[[], None]
"""Raises if something isn't as it must be."""


class Readiness:
    """Checks, each of which runs in a thread of its own, one at a time, however many ask."""

    def __init__(self, checks: Mapping[str, Check], patience_s: float = PATIENCE_S) -> None:
        self._checks = {name: _Asked(name, check) for name, check in checks.items()}
        self.patience_s = patience_s
        """A check that takes longer has failed."""
        """What takes longer has failed."""

    def ask(self) -> dict[str, TxnLogError | None]:
        """Return what is wrong, by check; one that takes too long is."""
        until = time.monotonic() + self.patience_s
        for check in self._checks.values():
            check.begin()
        return {name: check.outcome(until) for name, check in self._checks.items()}

    def last(self) -> dict[str, bool]:
        """Return which checks held when they were last asked for; those that never were are left out.

        One that was asked for long ago is begun again, for whoever asks next: who asks ordinarily may hang.
        """
        known = {name: check.known(self.patience_s) for name, check in self._checks.items()}
        return {name: held for name, held in known.items() if held is not None}


class _Asked:
    """A check, and what came of it."""

    def __init__(self, name: str, check: Check) -> None:
        self._name = name
        self._check = check
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._running = False
        self._began_at = self._ended_at = float("-inf")
        self._error: TxnLogError | None = None
        self._held: bool | None = None

    def begin(self) -> None:
        with self._lock:
            if self._running or time.monotonic() - self._ended_at < _KNOWN_S:
                return
            self._running, self._began_at = True, time.monotonic()
            self._done.clear()
        threading.Thread(target=self._run, name=f"txnlog-ready-{self._name}", daemon=True).start()

    def outcome(self, until: float) -> TxnLogError | None:
        if not self._done.wait(max(0.0, until - time.monotonic())):
            self._held = False
            return UnavailableError(f"The check {self._name} takes too long.", "See what it waits for.")
        return self._error

    def known(self, patience_s: float) -> bool | None:
        """Return whether it held when it was last asked for; None if it never was."""
        now = time.monotonic()
        with self._lock:
            held = False if self._running and now - self._began_at > patience_s else self._held
            is_old = held is not None and now - max(self._began_at, self._ended_at) > _OLD_S
        if is_old:
            self.begin()
        return held

    def _run(self) -> None:
        error: TxnLogError | None = None
        try:
            self._check()
        except Exception as failure:
            error = translated(failure, f"The check {self._name}")
        with self._lock:
            self._error, self._ended_at, self._running, self._held = error, time.monotonic(), False, error is None
        self._done.set()


def checks_of(service: MetadataService, root: Root) -> dict[str, Check]:
    """Return the checks of a service over a root."""
    log_id = service.log_id

    def database() -> None:
        service.look(read_info)

    def schema() -> None:
        found = service.look(read_version)
        if found != SCHEMA_VERSION:
            raise LogVersionError(
                f"The metadata database has schema version {found}, and this release works with {SCHEMA_VERSION}.",
                "Stop this service, and start it with the release of the others.",
            )

    def storage() -> None:
        if isinstance(root, Path):
            from txn_source.storage.root import LogRoot

            LogRoot.at(root).check()
        else:
            from txn_source.storage.root_marker import check_marker

            check_marker(root, log_id)

    return {"database": database, "schema": schema, "root": storage}
