"""Making and deleting the copies of a topic's ledgers, when an operator says so."""

from __future__ import annotations

from collections.abc import Callable, Collection

from txn_source.client.access import Access
from txn_source.client.tiering.copy_deletion import Deletion
from txn_source.client.tiering.deletion import delete_doomed_files
from txn_source.client.tiering.offload import Offloader, OffloadReport
from txn_source.model.copies import Tier
from txn_source.model.ledger import OffloadableLedger
from txn_source.model.topic_name import TopicName


def offload_topic(
    access: Access, topic: TopicName, progress: Callable[[OffloadableLedger], object] | None
) -> OffloadReport:
    """Offload all ledgers that can be and aren't yet; see ``Log.offload``."""
    ledgers, _ = access.metadata.list_offloadable(topic)
    report = Offloader(access, topic).offload(ledgers, progress)
    delete_doomed_files(access)
    return report


def delete_tiered_copies(access: Access, topic: TopicName, ledgers: Collection[int] | None) -> int:
    """Delete the tiered copies of a topic, and return how many; see ``Log.delete_offloaded``."""
    count = Deletion(access, topic, Tier.TIERED).delete_all(ledgers)
    delete_doomed_files(access)
    return count


def delete_hot_copies(access: Access, topic: TopicName, ledgers: Collection[int] | None, *, after_lag: bool) -> int:
    """Delete the hot copies of offloaded ledgers, and return how many; see ``Log.delete_hot``."""
    deletion = Deletion(access, topic, Tier.BOOKKEEPER)
    count = deletion.delete_due()[0] if after_lag else deletion.delete_all(ledgers)
    delete_doomed_files(access)
    return count
