"""Faults for a log that is whole (``doctored.fill``), each with the code that tells it, and how bad it is."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import txn_source
from tests.log import tiers
from tests.upkeep.doctored import age, ask, change
from txn_source.upkeep.doctor import opening
from txn_source.upkeep.doctor.codes import Severity

E, W, N = Severity
Fault = Callable[[Path], None]
HOUR_MS = 3_600_000


def now_ms() -> int:
    return int(time.time() * 1000)


def ledger_of(root: Path, *, hot: bool, tiered: bool, closed: bool = True) -> int:
    """Return a ledger of ``orders`` with these copies."""
    terms = {"hot_deleted_at_ms": not hot, "offloaded_at_ms": tiered, "closed_at_ms": closed}
    where = " AND ".join(f"l.{name} IS {'NOT ' if there else ''}NULL" for name, there in terms.items())
    rows = ask(
        root,
        "SELECT l.ledger_id FROM ledgers l JOIN partitions p ON p.partition_id = l.partition_id"
        f" JOIN topics t ON t.topic_id = p.topic_id WHERE t.name LIKE '%/orders' AND l.messages > 0 AND {where}",
    )
    return int(rows[0][0])


def segment(root: Path, *, tiered: bool) -> Path:
    """Return a segment of ``orders`` that lies in one ledger, offloaded or not."""
    if tiered:
        return tiers.copy_of(root, ledger_of(root, hot=True, tiered=True), tiers.Tier.BOOKKEEPER)
    [(path,)] = ask(
        root, "SELECT path FROM segments s JOIN topics t USING (topic_id) WHERE t.name LIKE '%/orders' AND deleted = 0"
        " ORDER BY segment_id DESC LIMIT 1",
    )  # fmt: skip
    return root / path


def tiered_object(root: Path, *, hot: bool) -> Path:
    return tiers.copy_of(root, ledger_of(root, hot=hot, tiered=True), tiers.Tier.TIERED)


# Files


def lose_a_segment(root: Path) -> None:
    segment(root, tiered=False).unlink()


def lose_a_segment_that_is_offloaded(root: Path) -> None:
    segment(root, tiered=True).unlink()


def cut_a_segment(root: Path) -> None:
    tiers.cut_last_byte(segment(root, tiered=False))


def flip_in_a_segment(root: Path) -> None:
    tiers.flip_near_end(segment(root, tiered=False))


def flip_in_a_segment_that_is_offloaded(root: Path) -> None:
    tiers.flip_near_end(segment(root, tiered=True))


def flip_a_header(root: Path) -> None:
    tiers.flip(segment(root, tiered=False), 40)


def lose_an_object(root: Path) -> None:
    tiered_object(root, hot=True).unlink()


def lose_the_only_object(root: Path) -> None:
    tiered_object(root, hot=False).unlink()


def flip_in_an_object(root: Path) -> None:
    tiers.flip_in_middle(tiered_object(root, hot=True))


def flip_in_the_only_object(root: Path) -> None:
    tiers.flip(tiered_object(root, hot=False), 100)


def flip_in_a_footer(root: Path) -> None:
    tiers.flip_in_footer(tiered_object(root, hot=True))


def cut_an_object(root: Path) -> None:
    tiers.cut_in_half(tiered_object(root, hot=True))


def flip_in_a_second_file(root: Path) -> None:
    tiers.flip(tiers.second_file(tiered_object(root, hot=True)), 100)


def lose_a_second_file(root: Path) -> None:
    tiers.second_file(tiered_object(root, hot=True)).unlink()


def mistake_an_object_for_another(root: Path) -> None:
    first, second = tiers.objects(root)[:2]
    shutil.copy(first, second)
    shutil.copy(tiers.second_file(first), tiers.second_file(second))
    ids = [int(path.name.split("-")[1]) for path in (first, second)]
    [values] = ask(root, f"SELECT size, footer_bytes, footer_crc32c FROM copies WHERE ledger_id = {ids[0]}")
    statement = "UPDATE copies SET size = ?, footer_bytes = ?, footer_crc32c = ? WHERE ledger_id = ?"
    change(root, statement, (*values, ids[1]))


def leave_an_unregistered_segment(root: Path) -> None:
    like = segment(root, tiered=False)
    age(Path(shutil.copy(like, like.with_name(f"{like.stem[:-12]}0123456789ab.arrow"))))


def bring_a_deleted_segment_back(root: Path) -> None:
    [(path,), *_] = ask(root, "SELECT path FROM segments WHERE deleted = 1")
    (root / path).write_bytes(b"old")
    age(root / path)


def put_a_strange_file(root: Path) -> None:
    (segment(root, tiered=False).parent / "notes.txt").write_text("mine")


def leave_an_unfinished_object(root: Path) -> None:
    like = tiered_object(root, hot=True)
    age(Path(shutil.copy(like, like.with_name(f"{like.stem[:-12]}0123456789ab.parquet"))))


def leave_a_torn_object(root: Path) -> None:
    like = tiered_object(root, hot=True)
    torn = like.with_name(f"_{like.stem[:-12]}0123456789ab.aborted")
    torn.write_bytes(like.read_bytes()[:1000])
    age(torn)


def leave_files_to_delete(root: Path) -> None:
    file = segment(root, tiered=False).parent / "1-1-0123456789ab.arrow"
    file.write_bytes(b"old")
    uri = str(file.relative_to(root))
    change(root, "INSERT INTO doomed_files (uri, forget_after_ms) VALUES (?, ?)", (uri, now_ms() - 48 * HOUR_MS))


def kill_an_offload(root: Path) -> None:
    ledger_id = ledger_of(root, hot=True, tiered=False, closed=True)
    uri = f"tiered/public/default/orders/0/ledger-{ledger_id}-0123456789ab.parquet"
    statement = "INSERT INTO copies (ledger_id, uri, begun_at_ms, complete) VALUES (?, ?, ?, 0)"
    change(root, statement, (ledger_id, uri, now_ms() - 2 * HOUR_MS))


# Transactions and subscriptions


def begin(root: Path, timeout: float, age_s: float) -> None:
    with txn_source.connect(root) as log:
        log.begin_transaction(timeout).id  # noqa: B018, of one that has begun
        producer = log.producer("orders", transactional_id="teller")
        producer.send(b"held", txn=log.begin_transaction(timeout), partition=0)
        producer.flush()
        log.metadata.close()
    change(
        root,
        "UPDATE transactions SET created_at_ms = created_at_ms - ?, deadline_ms = deadline_ms - ? WHERE state = 0",
        (age_s * 1000, age_s * 1000),
    )


def let_a_transaction_hang(root: Path) -> None:
    begin(root, 900, 400)


def fence_without_aborting(root: Path) -> None:
    begin(root, 900, 0)
    change(
        root,
        "INSERT INTO producers (topic_id, name, transactional_id, epoch, purged_sequence) SELECT topic_id, name,"
        " transactional_id, epoch + 1, -1 FROM producers WHERE transactional_id = 'teller'",
    )


def keep_what_retention_would_trim(root: Path) -> None:
    with txn_source.connect(root) as log:
        log.create_subscription("events", "forgotten", initial_position="earliest")
        log.roll_ledger("events")
        log.set_policies("events", retention_age=0.001)
        log.metadata.close()
    change(root, "DELETE FROM subscriptions WHERE name = 'audit'")
    change(root, "DELETE FROM cursors WHERE subscription_id NOT IN (SELECT subscription_id FROM subscriptions)")
    change(root, "UPDATE ledgers SET closed_at_ms = closed_at_ms - 60000 WHERE closed_at_ms IS NOT NULL")


def stand_behind_the_end(root: Path) -> None:
    change(root, "UPDATE cursors SET mark_position = mark_position + 1000000, read_position = read_position + 1000000")


def leave_a_consumer(root: Path) -> None:
    change(
        root,
        "INSERT INTO consumers (subscription_id, token, name, host, connected_at_ms, lease_until_ms, unacknowledged)"
        " SELECT subscription_id, 'token', 'gone', 'elsewhere', ?, ?, 0 FROM subscriptions",
        (now_ms() - HOUR_MS, now_ms() - HOUR_MS),
    )


def hand_out_to_nobody(root: Path) -> None:
    change(
        root,
        "INSERT INTO deliveries (subscription_id, partition_id, start_position, start_index, end_position, end_index,"
        " messages, consumer_id, redeliveries) SELECT subscription_id, partition_id, mark_position, 0,"
        " mark_position + 1, 0, 1, 12345, 0 FROM cursors",
    )


# Policies


def policies(**values: object) -> Fault:
    def set_them(root: Path) -> None:
        with txn_source.connect(root) as log:
            log.set_policies("events", **values)

    return set_them


def acknowledge_more_than_there_are(root: Path) -> None:
    change(root, "INSERT INTO policies (scope, name, value) VALUES ('broker', 'acknowledge_copies', '2')")


def offload_into_a_file(root: Path) -> None:
    (root / "taken").write_text("a file")
    policies(offload_uri=str(root / "taken"), offload_after_age="1d")(root)


def misspell_a_setting(root: Path) -> None:
    (root / "broker.conf").write_text("managedLedgerOffload=1\n")


# Clocks


def publish_in_the_future(root: Path) -> None:
    change(root, "UPDATE partitions SET last_publish_time_us = ?", ((now_ms() + HOUR_MS) * 1000,))


# The database and the root


def spoil_a_total(root: Path) -> None:
    change(root, "UPDATE entries SET messages_before = messages_before + 1 WHERE position = (SELECT MIN(position)"
                 " FROM entries WHERE messages > 0)")  # fmt: skip


def spoil_a_ledger(root: Path) -> None:
    change(root, "UPDATE ledgers SET bytes = bytes + 1 WHERE closed_at_ms IS NULL")


def lose_an_entry(root: Path) -> None:
    change(root, "DELETE FROM entries WHERE kind = 0 AND txn IS NULL AND partition_id = (SELECT MAX(partition_id) FROM"
                 " entries) AND position = (SELECT MIN(position) FROM entries e WHERE e.partition_id ="
                 " entries.partition_id)")  # fmt: skip


def spoil_a_page(root: Path) -> None:
    change(root, "UPDATE entry_pages SET data = substr(data, 1, length(data) - 20)")


def mistake_a_page(root: Path) -> None:
    [(data,), *_] = ask(root, "SELECT data FROM entry_pages ORDER BY first_position DESC")
    change(root, "UPDATE entry_pages SET data = ? WHERE first_position = (SELECT MIN(first_position) FROM entry_pages)",
           (data,))  # fmt: skip


def change_a_state(root: Path) -> None:
    change(root, "UPDATE transaction_partitions SET state = 2 WHERE txn = (SELECT MIN(txn) FROM transaction_partitions"
                 " WHERE state = 1)")  # fmt: skip


def lose_a_marker(root: Path) -> None:
    change(root, "UPDATE transaction_partitions SET marker_position = marker_position - 1 WHERE marker_position ="
                 " (SELECT MAX(marker_position) FROM transaction_partitions)")  # fmt: skip


def count_fewer_decisions(root: Path) -> None:
    change(root, "UPDATE log_info SET decisions = 1")


def refer_to_nothing(root: Path) -> None:
    change(root, "INSERT INTO owners (kind, key, owner, topic_id) VALUES ('producer', '1', 'me', 777)")


def spoil_the_file(root: Path) -> None:
    change(root, "PRAGMA wal_checkpoint(TRUNCATE)")
    with (root / "metadata.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 3 * 4096)


def put_something_else_there(root: Path) -> None:
    (root / "metadata.db").write_bytes(b"no database" * 1000)


def lose_the_database(root: Path) -> None:
    (root / "metadata.db").unlink()


def grow_the_write_ahead_log(root: Path) -> None:
    (root / "metadata.db-wal").touch()
    os.truncate(root / "metadata.db-wal", opening._WAL_BYTES + 1)


def put_files_of_later_there(root: Path) -> None:
    like = segment(root, tiered=False)
    shutil.copy(like, like.with_name("3-777777-0123456789ab.arrow"))


def spoil_the_marker(root: Path) -> None:
    (root / "txnlog.json").write_text("{}")


def open_by_an_older_release(root: Path) -> None:
    change(root, "DELETE FROM schema_versions")
    change(root, "INSERT INTO schema_versions (version) VALUES (4)")


def open_by_a_newer_release(root: Path) -> None:
    change(root, "INSERT INTO schema_versions (version) VALUES (99)")


FAULTS: list[tuple[Fault, str, Severity]] = [
    (lose_a_segment, "segment-missing", E),
    (lose_a_segment_that_is_offloaded, "segment-missing", W),
    (cut_a_segment, "segment-short", E),
    (flip_in_a_segment, "segment-damaged", E),
    (flip_in_a_segment_that_is_offloaded, "segment-damaged", W),
    (flip_a_header, "segment-damaged", E),
    (lose_an_object, "object-missing", W),
    (lose_the_only_object, "object-missing", E),
    (flip_in_an_object, "object-damaged", W),
    (flip_in_the_only_object, "object-damaged", E),
    (flip_in_a_footer, "object-damaged", W),
    (cut_an_object, "object-damaged", W),
    (flip_in_a_second_file, "object-damaged", W),
    (lose_a_second_file, "object-missing", W),
    (mistake_an_object_for_another, "object-differs", E),
    (leave_an_unregistered_segment, "segment-unreferenced", W),
    (bring_a_deleted_segment_back, "segment-unreferenced", W),
    (put_a_strange_file, "file-strange", N),
    (leave_an_unfinished_object, "file-unknown", W),
    (leave_a_torn_object, "file-unknown", W),
    (leave_files_to_delete, "doomed-old", W),
    (kill_an_offload, "offload-stuck", W),
    (let_a_transaction_hang, "transaction-hangs", W),
    (fence_without_aborting, "transaction-fenced", W),
    (keep_what_retention_would_trim, "subscription-keeps-data", W),
    (stand_behind_the_end, "subscription-beyond-end", E),
    (hand_out_to_nobody, "deliveries-orphaned", E),
    (policies(retention_age="1h", offload_after_age="1d"), "policy-trims-first", W),
    (policies(retention_bytes="1m", offload_after_bytes="2m"), "policy-trims-first", W),
    (acknowledge_more_than_there_are, "policy-copies", E),
    (offload_into_a_file, "offload-target-unreachable", E),
    (misspell_a_setting, "configuration-damaged", E),
    (publish_in_the_future, "clock-ahead", W),
    (spoil_a_total, "database-totals", E),
    (spoil_a_ledger, "database-totals", E),
    (lose_an_entry, "database-totals", E),
    (mistake_a_page, "database-pages", E),
    (change_a_state, "database-transactions", E),
    (lose_a_marker, "database-transactions", E),
    (count_fewer_decisions, "database-transactions", E),
    (refer_to_nothing, "database-references", E),
    (spoil_the_file, "database-damaged", E),
    (put_something_else_there, "database-damaged", E),
    (lose_the_database, "database-missing", E),
    (grow_the_write_ahead_log, "database-wal-large", W),
    (put_files_of_later_there, "database-behind", E),
    (spoil_the_marker, "marker-damaged", E),
    (open_by_an_older_release, "schema-old", W),
    (open_by_a_newer_release, "log-version", E),
]
