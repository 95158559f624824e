"""Maintenance: what policies say, done by ``txnlog serve`` in the background and by ``Log.maintain`` now.

0. Bring hot segments back to full copies, where the log has several roots.
1. Offload ledgers that are old enough, or of which a partition has too many bytes.
2. Delete hot copies whose deletion lag has passed.
3. Trim what retention no longer keeps.
4. Make a snapshot of the metadata, if one is due.
5. Delete the files that nothing refers to any more.

Each step takes what it finds; running it twice, or in two processes, does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from txn_source.client.access import Access
from txn_source.client.ledgers import ledgers_of
from txn_source.client.tiering.copy_deletion import Deletion
from txn_source.client.tiering.deletion import delete_doomed_files
from txn_source.client.tiering.hot_repair import RepairReport, reachable_places, repair_topic
from txn_source.client.tiering.offload import Offloader, OffloadReport
from txn_source.client.tiering.snapshot_making import INTERVAL_S, keep_none, make_snapshot
from txn_source.model.copies import Tier
from txn_source.model.errors import OnlyCopyError, SegmentUnreadableError, TopicNotFoundError, TxnLogError
from txn_source.model.ledger import OffloadableLedger
from txn_source.model.retention import CopyPolicies
from txn_source.model.topic_name import TopicName

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What was done: ledgers offloaded, hot copies deleted, ledgers trimmed, files deleted; ``failures`` by topic."""

    offloaded: OffloadReport = field(default_factory=OffloadReport)
    hot_copies_deleted: int = 0
    ledgers_trimmed: int = 0
    files_deleted: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    copies: RepairReport = field(default_factory=RepairReport)
    """Of hot segments: see ``hot_repair.py``."""
    snapshot: str = ""
    """Of the metadata, if one was made: its path below the root."""

    @property
    def idle(self) -> bool:
        """True if there was nothing to do, but for a snapshot."""
        return self == MaintenanceReport(snapshot=self.snapshot)


def maintain(
    access: Access,
    *,
    verify: bool = False,
    snapshot_interval_s: float | None = INTERVAL_S,
    told: Callable[[int, int], object] = lambda *_: None,
) -> MaintenanceReport:
    """Do what the policies of all topics say now. A topic that fails keeps no other from its turn.

    ``verify``: read all copies of hot segments, and check them. ``snapshot_interval_s``: so old is the newest snapshot
    of the metadata before the next one is made; None: none are kept. ``told`` is given how many topics are done, of how
    many.
    """
    stub = access.metadata
    offloaded = OffloadReport()
    deleted = trimmed = 0
    failures = []
    copies = RepairReport()
    places, unreachable = reachable_places(access)
    failures += [(f"root {name}", f"it can't be reached: {why}") for name, why in unreachable.items()]
    topics = stub.list_topics()
    for done_before, topic in enumerate(topics):
        told(done_before, len(topics))
        try:
            policies = CopyPolicies.of(stub.policies_in_force(topic))
            if stub.roots:
                done = repair_topic(access, topic, places, verify=verify)
                copies += done
                if done.lost:
                    raise SegmentUnreadableError(
                        f"{done.lost} segments have entries of which no root has a sound copy.",
                        "Restore a copy from a backup; the log says which.",
                    )
            if policies.offloads:
                offloaded += Offloader(access, topic).offload(_due(access, topic, policies))
            if policies.deletion_lag_s is not None:
                count, kept = Deletion(access, topic, Tier.BOOKKEEPER).delete_due()
                deleted += count
                if kept:
                    raise OnlyCopyError(
                        f"The hot copies of {len(kept)} ledgers were kept past their lag: {kept[0][1]}",
                        "Mend the objects; or delete them (`txnlog topics delete-offloaded`) and offload again.",
                    )
            if policies.trims:
                trimmed += sum(t.ledgers for t in stub.trim_topic(topic, {}, None, None, apply_retention=True))
        except TopicNotFoundError:
            continue  # deleted since it was listed
        except TxnLogError as error:
            _log.warning("maintenance of topic %s failed and is tried again: %s", topic.short, error)
            failures.append((topic.short, str(error)))
        except Exception as error:  # our bug, or a disk's, but no reason to leave the other topics alone
            what = f"{type(error).__name__}: {error}"
            _log.warning("maintenance of topic %s failed and is tried again: %s", topic.short, what, exc_info=True)
            failures.append((topic.short, what))
    made = None
    if snapshot_interval_s is None:
        keep_none(access)
    else:
        made = make_snapshot(access, snapshot_interval_s)
    files = delete_doomed_files(access)
    at = "" if made is None else made.path
    return MaintenanceReport(offloaded, deleted, trimmed, files, tuple(failures), copies, at)


def _due(access: Access, topic: TopicName, policies: CopyPolicies) -> list[OffloadableLedger]:
    """Return the ledgers that the policies want to have offloaded now."""
    ledgers, now_ms = access.metadata.list_offloadable(topic)
    hot_only: dict[int, int] = {}
    if policies.offload_after_bytes is not None:
        [view] = access.metadata.get_view([topic]).topics
        for partition in view.partitions:
            of_partition = ledgers_of(access.metadata, partition)
            hot_only[partition.partition_id] = sum(ledger.bytes for ledger in of_partition if not ledger.tiered)
    return policies.to_offload(ledgers, hot_only, now_ms)
