"""``txnlog roots promote``: a log whose own root is lost goes on in one that has copies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import txn_source
from tests.log.reading import send_each, values
from tests.log.roots import Roots
from tests.log.roots import log as log  # with the roots main, b and c
from tests.log.roots import roots as roots
from tests.log.sites import Site
from tests.selection import mostly_long
from tests.upkeep.filled import end_at
from txn_source import InvalidArgumentError, Log, LogNotFoundError, TxnLogError
from txn_source.cli.app import app
from txn_source.client.target import open_service
from txn_source.client.tiering.snapshot_making import make_snapshot
from txn_source.metadata.service.server import Server
from txn_source.storage import copies_marker
from txn_source.upkeep import promotion
from txn_source.upkeep.promotion import promote


def fill(log: Log) -> None:
    """Store messages in the roots main, b and c, and some in main alone; offload a ledger of each. Make a snapshot
    before the last message."""
    log.create_topic("alone", hot_copies="main", acknowledge_copies=1)
    log.set_policies("t", hot_copies="main,b,c", acknowledge_copies=3)
    for topic in ("t", "alone"):
        send_each(log.producer(topic), [b"1"])
        log.roll_ledger(topic)
        log.offload(topic)
        send_each(log.producer(topic), [b"2"])
    make_snapshot(log.access, 0.0)
    send_each(log.producer("t"), [b"later"])
    log.close()


def checked(root: Path | str, **options: Any) -> None:
    """Read, write, repair, and back up."""
    with txn_source.connect(root, **options) as log:
        assert values(log, "t") == [b"1", b"2"]
        send_each(log.producer("t"), [b"3"])
        assert values(log, "t") == [b"1", b"2", b"3"]
        assert [found.name for found in log.roots()] == ["main", "c"]
        assert log.maintain().failures == ()
        assert [found.short_entries for found in log.roots()] == [0, 0]
        assert log.policies("t")["hot_copies"].value == "main,c"
        assert log.policies("t")["acknowledge_copies"].value == 2


def test_log_goes_on_in_another_root(log: Log, roots: Roots, tmp_path: Path) -> None:
    """Lose the own root with the database: connect names what to do; the old root may come back, and does no harm."""
    fill(log)
    roots.main.rename(tmp_path / "old")
    with pytest.raises(LogNotFoundError, match=r"holds copies of a log.*`txnlog roots promote "):
        txn_source.connect(roots.b)
    done = CliRunner().invoke(app, ["roots", "promote", str(roots.b)])
    assert done.exit_code == 3, done.output
    assert "is the log's own root now; it was b." in done.output
    missing = [line for line in done.output.splitlines() if line.startswith("missing: ")]
    assert len(missing) == 4, "two segments of the topic that lay in main alone, and the objects"
    assert done.output.count("unknown: segments/") == 2, "that of the last message, in b and in c"
    checked(roots.b)
    with txn_source.connect(roots.b) as log:
        with pytest.raises(TxnLogError):
            values(log, "alone")
        log.delete_topic("alone")
        for ledger in log.stats("t").ledgers[:1]:
            log.delete_offloaded("t", ledgers=[ledger.ledger_id])
    txn_source.backup(roots.b, tmp_path / "backup")
    with txn_source.connect(tmp_path / "old") as old:
        others = {found.name: found.why for found in old.roots() if not found.reachable}
    assert others == {
        "b": "its txnlog-copies.json is missing",
        "c": "its txnlog-copies.json is that of another log",
    }


@pytest.mark.parametrize("at", mostly_long(range(6), 1, 4))
def test_promotion_may_be_interrupted_anywhere(
    log: Log, roots: Roots, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    fill(log)
    shutil.rmtree(roots.main)
    steps = ("unpacked", "hand_over", "promoted", "put_in_place", "retire", "snapshot_now")
    with monkeypatch.context() as patch:
        end_at(patch, at, *((promotion, name) for name in steps))
        with pytest.raises(KeyboardInterrupt):
            promote(roots.b)
    if copies_marker.owner_of(roots.b) is not None:
        promote(roots.b)
    checked(roots.b)
    assert json.loads((roots.c / "txnlog-copies.json").read_text())["log_id"] == _id_of(roots.b)


def _id_of(root: Path) -> str:
    with txn_source.connect(root) as log:
        return log.metadata.log_id


def test_promotion_is_refused_where_it_cannot_be(log: Log, roots: Roots, tmp_path: Path) -> None:
    fill(log)
    for place in (roots.main, tmp_path / "away"):
        with pytest.raises(InvalidArgumentError, match="is no root for copies"):
            promote(place)
    shutil.rmtree(roots.b / "snapshots")
    with pytest.raises(LogNotFoundError, match="There are no snapshots in"):
        promote(roots.b)
    checked_before = values(txn_source.connect(roots.main), "t")
    assert checked_before == [b"1", b"2", b"later"]


def test_log_on_postgresql_goes_on_in_another_root(tmp_path: Path) -> None:
    """Lose the folder of a log whose metadata is in PostgreSQL: the service names what to do, and nothing is lost."""
    with Site("postgres", tmp_path / "log") as site:
        log = site.connect()
        for name in ("b", "c"):
            log.add_root(name, tmp_path / name)
        log.create_topic("t", hot_copies="main,b,c")
        send_each(log.producer("t"), [b"1", b"2"])
        log.close()
        assert site.url is not None
        url = site.url.revealed
        shutil.rmtree(site.root)
        for creating in (False, True):
            with pytest.raises(TxnLogError, match=f"`txnlog roots promote {tmp_path / 'b'}` with the same --metadata"):
                open_service(str(site.root), site.url, create=creating)
        report = promote(tmp_path / "b", url)
        assert (report.log.missing, report.log.unknown, report.left) == ((), (), ())
        with pytest.raises(InvalidArgumentError, match="is no root for copies"):
            promote(tmp_path / "b", url)
        with (
            Server(open_service(str(tmp_path / "b"), site.url), "127.0.0.1", 0) as server,
            txn_source.connect(endpoint=server.address) as log,
        ):
            assert values(log, "t") == [b"1", b"2"]
