"""Word of changes between the services over one PostgreSQL database: what is committed is told with the commit.

A notice is the sender, and topic and subscription of each change: ``<sender>:<topic>,<subscription>;...``. One that
would be too long for PostgreSQL is ``<sender>:*``, which means that anything may have changed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import psycopg

from txn_source.metadata.store.database import Change, Wait
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.postgres_connections import SessionPool
from txn_source.metadata.store.postgres_errors import not_connected

_MAX_BYTES = 7000
_ANYTHING = "*"
_SLICE_S = 0.05
"""Whether it is to stop is looked at so often."""


class Notices:
    """The notices of one process, and those that it hears."""

    def __init__(self, url: DatabaseUrl, pool: SessionPool) -> None:
        self._url = url
        self._pool = pool
        self._sender = secrets.token_hex(8)

    def telling(self, changed: set[Change], key: int) -> str:
        """Return the statement that tells of changes, with its semicolon; nothing if there are none."""
        if not changed:
            return ""
        text = ";".join(f"{topic_id},{subscription_id}" for topic_id, subscription_id in sorted(changed))
        if len(text) > _MAX_BYTES:
            text = _ANYTHING
        return f"SELECT pg_notify('{_channel(key)}', '{self._sender}:{text}'); "

    @contextmanager
    def heard(self, stop: Event) -> Iterator[Wait]:
        """A function that waits for notices of other processes, on a connection of its own."""
        raw, key = self._pool.connect()
        try:
            raw.execute(f"LISTEN {_channel(key)}".encode())

            def wait(timeout_s: float) -> set[Change] | None:
                until_s = time.monotonic() + timeout_s
                while not stop.is_set():
                    left_s = max(0.0, min(_SLICE_S, until_s - time.monotonic()))
                    heard = [n.payload for n in raw.notifies(timeout=left_s, stop_after=1)]
                    others = [text for text in heard if not text.startswith(f"{self._sender}:")]
                    if others:
                        return changes_in(others)
                    if time.monotonic() >= until_s:
                        break
                return set()

            yield wait
        except psycopg.Error as error:
            raise not_connected(error, self._url) from error
        finally:
            raw.close()


def changes_in(payloads: list[str]) -> set[Change] | None:
    """Return what notices tell of; None if anything may have changed."""
    found: set[Change] = set()
    for payload in payloads:
        _, _, text = payload.partition(":")
        for part in text.split(";"):
            topic_id, comma, subscription_id = part.partition(",")
            if not (comma and topic_id.isdecimal() and subscription_id.isdecimal()):
                return None
            found.add((int(topic_id), int(subscription_id)))
    return found


def _channel(key: int) -> str:
    return f"txnlog_{key & 0xFFFFFFFF:08x}"
