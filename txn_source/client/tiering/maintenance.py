"""What a log does by itself, if somebody lets it: ``txnlog serve`` in the background, ``Log.maintain`` now.

1. Offload ledgers that are old enough, or of which a partition has too many bytes.
2. Delete hot copies whose deletion lag has passed.
3. Trim what retention no longer keeps.
4. Delete the files that nothing refers to any more.

Each step takes what it finds; running it twice, or in two processes, does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from txn_source.client.access import Access
from txn_source.client.tiering.copy_deletion import Deletion
from txn_source.client.tiering.offload import Offloader, OffloadReport, delete_doomed_files
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.copies import OffloadableLedger, Tier
from txn_source.model.errors import OnlyCopyError, TopicNotFoundError, TxnLogError
from txn_source.model.position import PositionRange
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

    @property
    def idle(self) -> bool:
        """True if there was nothing to do."""
        return self == MaintenanceReport()


def maintain(access: Access) -> MaintenanceReport:
    """Do what the policies of all topics say now. A topic that fails keeps no other from its turn."""
    stub = access.metadata
    offloaded = OffloadReport()
    deleted = trimmed = 0
    failures = []
    for topic in stub.list_topics():
        try:
            policies = stub.policies_in_force(topic)
            if policies["offload_after_age"].value is not None or policies["offload_after_bytes"].value is not None:
                age, size = (policies[name].value for name in ("offload_after_age", "offload_after_bytes"))
                offloaded += Offloader(access, topic).offload(_due(stub, topic, age, size))
            if policies["offload_deletion_lag"].value is not None:
                count, kept = Deletion(access, topic, Tier.BOOKKEEPER).delete_due()
                deleted += count
                if kept:
                    raise OnlyCopyError(
                        f"The hot copies of {len(kept)} ledgers were kept past their lag: {kept[0][1]}",
                        "Mend the objects; or delete them (`txnlog topics delete-offloaded`) and offload again.",
                    )
            if policies["retention_age"].value is not None or policies["retention_bytes"].value is not None:
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
    return MaintenanceReport(offloaded, deleted, trimmed, delete_doomed_files(access), tuple(failures))


def _due(stub: MetadataStub, topic: TopicName, age: float | None, size: int | None) -> Sequence[OffloadableLedger]:
    """Return the ledgers that were closed more than ``age`` seconds ago, and the oldest ones of what is hot and not
    offloaded beyond ``size`` bytes of a partition."""
    ledgers, now_ms = stub.list_offloadable(topic)
    due = [x for x in ledgers if age is not None and now_ms - x.closed_at_ms > age * 1000]
    if size is None:
        return due
    [view] = stub.get_view([topic]).topics
    for partition in view.partitions:
        bounds = partition.bounds
        table = stub.list_ledgers(partition.partition_id, PositionRange(bounds.log_start, bounds.log_end))
        hot = sum(
            size_bytes
            for size_bytes, offloaded in zip(
                table["bytes"].to_pylist(), table["offloaded_at_ms"].to_pylist(), strict=True
            )
            if offloaded < 0
        )
        for ledger in (x for x in ledgers if x.partition_id == partition.partition_id):
            if hot <= size:
                break
            hot -= ledger.bytes
            if ledger not in due:
                due.append(ledger)
    return due
