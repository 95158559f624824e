"""The partitions of a topic that a writer knows: the id of each, and the open ledger."""

from __future__ import annotations

from txn_source.model.topic import TopicView


class Partitions:
    """Ids and open ledgers by the partition's index; partitions are added, never removed."""

    def __init__(self, view: TopicView) -> None:
        self.ids: list[int] = []
        self.ledgers: list[int] = []
        self.add(view)

    def add(self, view: TopicView) -> None:
        """Take the partitions that were added to the topic; adding them again is harmless."""
        self.ledgers += [p.bounds.log_end.ledger_id for p in view.partitions[len(self.ledgers) :]]
        self.ids += [p.partition_id for p in view.partitions[len(self.ids) :]]

    def follow(self, partition: int, ledger_id: int) -> None:
        """Record the ledger that a partition has come to; its next entry goes to a new segment file."""
        self.ledgers[partition] = ledger_id
