from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import txn_source
from txn_source.model.copies import Tier


def topic_with_a_closed_ledger(log: txn_source.Log, name: str, **policies: Any) -> None:
    log.create_topic(name, **policies)
    with log.producer(name) as producer:
        producer.send("a")
    log.roll_ledger(name)


def test_maintenance_by_hand_tells_what_it_did(txnlog: Any, log: txn_source.Log) -> None:
    """One call does what all policies say: have a ledger to offload and one to trim, then nothing more."""
    topic_with_a_closed_ledger(log, "orders", offload_after_bytes=0)
    topic_with_a_closed_ledger(log, "payments", retention_bytes=0)
    result = txnlog("maintain")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Maintenance: offloaded 1 ledger (1 message, ")
    assert result.stdout.endswith(" tiered), trimmed 1 ledger, deleted 1 file.\n")
    assert log.stats("orders").ledgers[0].tiers == (Tier.BOOKKEEPER, Tier.TIERED)
    assert log.stats("payments").messages == 0
    assert txnlog("maintain").stdout == "Maintenance: nothing done.\n"


def test_maintenance_as_json_has_the_numbers(txnlog: Any, log: txn_source.Log) -> None:
    """Programs get the whole report: maintain with a ledger to offload."""
    topic_with_a_closed_ledger(log, "orders", offload_after_bytes=0)
    [first, _] = log.stats("orders").ledgers
    found = json.loads(txnlog("maintain", "--json").stdout)
    assert found["offloaded"]["ledger_ids"] == [first.ledger_id]
    assert (found["hot_copies_deleted"], found["ledgers_trimmed"], found["failures"]) == (0, 0, [])


def test_topic_that_fails_is_named_and_the_others_have_their_turn(
    txnlog: Any, log: txn_source.Log, tmp_path: Path
) -> None:
    """Exit status 1 tells a timer job: give one topic a target that can't be written, and one a good one."""
    (tmp_path / "file").write_text("")
    topic_with_a_closed_ledger(log, "orders", offload_after_bytes=0, offload_uri=str(tmp_path / "file" / "below"))
    topic_with_a_closed_ledger(log, "payments", offload_after_bytes=0)
    result = txnlog("maintain")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("orders: [TXNLOG_STORAGE_WRITE_FAILED]")
    assert result.stdout.startswith("Maintenance: offloaded 1 ledger (1 message, ")
    as_json = txnlog("maintain", "--json")
    assert as_json.exit_code == 1
    [[topic, error]] = json.loads(as_json.stdout)["failures"]
    assert (topic, error.split()[0]) == ("orders", "[TXNLOG_STORAGE_WRITE_FAILED]")
