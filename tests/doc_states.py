"""States of a log that runbooks tell of, made so that the commands there print what an operator would see."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import suppress

import pyarrow as pa

import txn_source
from tests.doc_blocks import TIMEOUT_S, Runner
from tests.doc_surroundings import keys
from tests.log.reading import eventually
from tests.log.sites import give_up_after
from tests.upkeep.doctored import change
from txn_source.client.tiering.snapshot_making import make_snapshot
from txn_source.storage.root_health import roots


def not_ready(address: str) -> None:
    """Wait until each check of a service whose root has gone has failed; what it found last it keeps for a second."""

    def have_failed() -> bool:
        try:
            urllib.request.urlopen(address, timeout=30).close()
        except urllib.error.HTTPError as refusal:
            failed = json.load(refusal)["failed"]
            return failed.keys() == {"database", "schema", "root"}
        return False

    eventually(have_failed)


def hanging(page: Runner, age_s: float = 372) -> None:
    """Leave a transaction of the producer ``loader-7`` open, and 600 messages behind it on its partition."""
    log: txn_source.Log = page.names["log"]
    with log.producer("orders", name="loader-7") as producer, log.producer("orders") as behind:
        producer.send(b"not decided yet", partition=0, txn=log.begin_transaction(timeout=900))
        producer.flush()
        behind.send_batch(_batch(600), partition=0)
        behind.flush()
        _age(page, age_s)


def _batch(rows: int) -> pa.Table:
    return pa.table({"value": [b"waits behind it"] * rows})


def _age(page: Runner, by_s: float) -> None:
    statement = (
        "UPDATE transactions SET created_at_ms = created_at_ms - ?, deadline_ms = deadline_ms - ? WHERE state = 0"
    )
    change(page.folder / "bank", statement, (by_s * 1000, by_s * 1000))


def lost(page: Runner) -> None:
    """Make another log that has stored something since the newest snapshot of its metadata."""
    with txn_source.connect(page.folder / "lost") as log:
        log.create_topic("orders")
        for number in range(2):
            with log.producer("orders") as producer:
                producer.send(b"%d" % number)
            if not number:
                make_snapshot(log.access, 0.0)


def decided(page: Runner) -> None:
    """End all that is open."""
    log: txn_source.Log = page.names["log"]
    for txn in log.transactions():
        log.abort_transaction(txn.id)


def timed_out(page: Runner) -> None:
    """Let a transaction pass its timeout."""
    hanging(page, age_s=901)
    page.names["log"].stats("orders")


def root_away(page: Runner) -> None:
    """Want two copies, and take the second root away."""
    log: txn_source.Log = page.names["log"]
    log.add_root("b", page.folder / "mnt" / "b")
    log.set_policies("orders", hot_copies="main,b")
    (page.folder / "mnt").rename(page.folder / "away")
    producer = page.names["short"] = log.producer("orders")
    producer.send_batch(_batch(640), partition=0)
    with suppress(txn_source.UnavailableError):
        producer.flush()


def root_back(page: Runner) -> None:
    """Bring it back, and leave it out."""
    log: txn_source.Log = page.names["log"]
    (page.folder / "away").rename(page.folder / "mnt")
    roots.works(str(page.folder / "mnt" / "b"), "b")  # it is tried at once, not in a while
    page.names["short"].close()
    log.set_policies("orders", hot_copies=None)
    log.maintain()


def object_lost(page: Runner) -> None:
    """Offload what there is, and lose an object of two."""
    log: txn_source.Log = page.names["log"]
    log.roll_ledger("orders")
    log.offload("orders")
    min(page.folder.glob("bank/tiered/**/ledger-*.parquet")).unlink()


def refused(page: Runner) -> None:
    """Have a service refuse who has no token and who calls too often; ``page.printed`` is its line about the first."""
    keys(page, writer="produce *")
    words = ("--token-keys", "signing.pub", "--max-calls", "1")
    service = page.serve("serve", "--root", str(page.folder / "guarded"), *words)
    endpoint = "localhost" + page.stands_for[":6650"]
    for token in (None, page.folder / "writer.token"):
        with suppress(txn_source.TxnLogError), txn_source.connect(endpoint=endpoint, token_file=token) as log:
            give_up_after(log, 0.5)
            for _ in range(1000):  # until it is too often, however long a call takes
                with suppress(txn_source.UnavailableError):
                    log.topics()
    service.terminate()
    lines = service.communicate(timeout=TIMEOUT_S)[0].splitlines()
    page.printed, page.names["limited"] = (next(line for line in lines if why in line) for why in ("missing:", "rate:"))
