"""A consumer that goes and can't be taken off the list: its lease ends, and others of its process take its place."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from tests.log.consuming import VALUES, due_in_s, numbered, receive, subscribe, take
from tests.log.holding import settle
from tests.log.reading import eventually
from tests.log.sites import ManualClock, Site
from txn_source import UnavailableError
from txn_source.metadata.delivery.consumer_hub import ConsumerHub
from txn_source.metadata.store import consumers


@pytest.mark.parametrize("kind", ["failover", "shared"])
def test_consumer_that_could_not_be_removed_is_followed_when_its_lease_ends(
    clocked_site: Site, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Close one while the database can't be written: what it had comes to the next one, though nothing else happens."""
    monkeypatch.setattr(consumers, "RENEW_MS", 50)
    log = clocked_site.connect()
    numbered(log)
    first = subscribe(log, type=kind)
    assert take(first, 10) == VALUES
    second = subscribe(log, type=kind)
    assert second.receive(0.0) is None

    tried: list[object] = []

    def remove(*_: object) -> None:
        tried.append(first)
        raise UnavailableError("The database is locked.", "Try again.")

    with patch.object(consumers, "remove", remove):
        first.close()
        eventually(lambda: bool(tried))
    with patch.object(ConsumerHub, "tell", lambda *_: None):  # of what was changed before, too
        settle(second)
        eventually(lambda: 0 < (due_in_s(clocked_site, log, second) or 0) <= 0.05)  # it has looked, and sleeps
        assert second.receive(0.0) is None
        clock.advance(consumers.LEASE_MS / 1000 + 1)
        assert sorted(receive(second).value for _ in range(10)) == VALUES
