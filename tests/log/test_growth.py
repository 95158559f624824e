"""What a log keeps of what has gone: nothing grows with the time that it lives."""

from __future__ import annotations

import pytest

from tests.log.reading import send_each
from tests.log.sites import ManualClock, Site
from tests.log.test_garbage import pass_days
from txn_source import Log
from txn_source.metadata.store import tables


def rows_of(site: Site) -> dict[str, int]:
    """Count the rows of each table, and the files in folders."""
    found = {name: site.execute(f'SELECT COUNT(*) FROM "{name}"')[0][0] for name in tables.metadata.tables}
    suffixes = (".arrow", ".arrows", ".parquet", ".aborted")
    return found | {"files": sum(path.suffix in suffixes for path in site.root.parent.rglob("*.*"))}


def live_a_day(site: Site, log: Log, clock: ManualClock, day: int) -> None:
    """Write by short-lived producers, in transactions and not, consume, and do what is done each night."""
    for number in range(3):
        with log.producer("t", transactional_id="teller" if number else None) as producer:
            with log.begin_transaction() as transaction:
                producer.send(b"in it", txn=transaction)
            send_each(producer, [b"%d" % day])
    with log.subscribe("t", "s") as consumer:
        for _ in range(6):
            message = consumer.receive(timeout=20)
            assert message is not None
            consumer.acknowledge(message)
    log.roll_ledger("t")
    clock.advance(86_400)
    pass_days(site, log, 1)
    log.maintain()
    log.collect_garbage(older_than=0)


@pytest.mark.long
@pytest.mark.kinds("embedded")
@pytest.mark.also("objects", "copies")
def test_twenty_days_with_a_retention_of_one_are_flat(clocked_site: Site, clock: ManualClock) -> None:
    """Live for twenty days: the rows of no table, and no files, are more after twenty than they were after ten."""
    log = clocked_site.connect()
    log.create_topic("t", retention_age="1d", offload_after_age="1h", offload_deletion_lag="1h")
    log.create_subscription("t", "s", initial_position="earliest")
    seen = {}
    for day in range(20):
        live_a_day(clocked_site, log, clock, day)
        if day in (9, 19):
            seen[day] = rows_of(clocked_site)
    grown = {name: (seen[9][name], count) for name, count in seen[19].items() if count > seen[9][name]}
    assert grown == {}
    assert sum(seen[19].values()) < 300
