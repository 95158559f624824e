"""The client's rim of the service's calls about tiers and policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol.enums import POLICY_SOURCE, READ_PRIORITY, TIER
from txn_source.metadata.stub.request_ids import request_id
from txn_source.metadata.stub.transport import Transport
from txn_source.model.copies import LedgerCopies, Tier, TieredCopy
from txn_source.model.ledger import OffloadableLedger
from txn_source.model.policies import POLICIES, EffectivePolicy, Scope, parse_policy
from txn_source.model.position import Position, PositionRange
from txn_source.model.read_priority import ReadPriority
from txn_source.model.retention import Trimmed
from txn_source.model.topic_name import TopicName


@dataclass(frozen=True, slots=True)
class CopiesOfRange:
    """Ledgers that a range touches, ascending, with their copies, and the topic's read priority.

    ``priority`` is None if the partition is gone. If the ledger at the range's start isn't among them, it was trimmed.
    """

    ledgers: tuple[LedgerCopies, ...]
    priority: ReadPriority | None


@dataclass(frozen=True, slots=True)
class DoomedFile:
    """A file that nothing refers to any more; ``uri`` is relative to the log's root if it has no scheme."""

    doomed_id: int
    uri: str


class TierStub:
    """Part of ``MetadataStub``."""

    _transport: Transport

    def list_copies(self, partition_id: int, of: PositionRange) -> CopiesOfRange:
        """Return the first so many ledgers that a range touches, with the copies that can be read now."""
        request = pb.ListCopiesRequest(partition_id=partition_id, start=of.start.key, end=of.end.key)
        return copies_of_range(self._transport.call("ListCopies", request))

    def list_offloadable(self, topic: TopicName) -> tuple[list[OffloadableLedger], int]:
        """Return a topic's ledgers that may be offloaded and aren't, and the service's time in milliseconds."""
        answer = self._transport.call("ListOffloadable", pb.ListOffloadableRequest(topic=str(topic)))
        return [convert.offloadable_from_wire(ledger) for ledger in answer.ledgers], answer.now_ms

    def begin_offload(self, partition_id: int, ledger_id: int, uri: str) -> int | None:
        """Note an offload that begins and return its id; None if the ledger has been offloaded already."""
        request = pb.BeginOffloadRequest(
            request_id=request_id(), partition_id=partition_id, ledger_id=ledger_id, uri=uri
        )
        answer = self._transport.call("BeginOffload", request)
        return answer.copy_id if answer.HasField("copy_id") else None

    def complete_offload(self, copy_id: int, copy: TieredCopy) -> bool:
        """Make an object that was written and checked its ledger's tiered copy; False if it is to be deleted."""
        request = pb.CompleteOffloadRequest(copy_id=copy_id, copy=convert.tiered_to_wire(copy))
        return bool(self._transport.call("CompleteOffload", request).accepted)

    def abandon_offload(self, copy_id: int) -> None:
        """Give up an offload; its object is doomed."""
        self._transport.call("AbandonOffload", pb.AbandonOffloadRequest(copy_id=copy_id))

    def delete_copies(self, topic: TopicName, tier: Tier, ledger_ids: Sequence[int]) -> int:
        """Delete the copies of ledgers in one tier, but for those that are a ledger's only one; return how many."""
        request = pb.DeleteCopiesRequest(
            request_id=request_id(), topic=str(topic), tier=TIER.to_wire(tier), ledger_ids=ledger_ids
        )
        return int(self._transport.call("DeleteCopies", request).ledgers)

    def trim_topic(
        self,
        topic: TopicName,
        before: Mapping[int, Position],
        older_than_ms: int | None,
        keep_bytes: int | None,
        *,
        apply_retention: bool = False,
    ) -> list[Trimmed]:
        """Trim whole ledgers from the start of each partition; ``apply_retention`` takes the topic's own limits."""
        request = pb.TrimTopicRequest(
            request_id=request_id(),
            topic=str(topic),
            before={index: position.key for index, position in before.items()},
            older_than_ms=older_than_ms,
            keep_bytes=keep_bytes,
            apply_retention=apply_retention,
        )
        answer = self._transport.call("TrimTopic", request)
        return [
            Trimmed(
                p.partition,
                p.ledgers,
                p.messages,
                p.bytes,
                Position.from_key(p.log_start),
                p.held_by if p.HasField("held_by") else None,
            )
            for p in answer.partitions
        ]

    def list_doomed_files(self) -> list[DoomedFile]:
        """Return files that are to be deleted."""
        answer = self._transport.call("ListDoomedFiles", pb.ListDoomedFilesRequest())
        return [DoomedFile(f.doomed_id, f.uri) for f in answer.files]

    def forget_doomed_files(self, doomed_ids: Sequence[int]) -> None:
        """Say that doomed files are gone."""
        self._transport.call("ForgetDoomedFiles", pb.ForgetDoomedFilesRequest(doomed_ids=doomed_ids))

    def change_policies(self, scope: Scope, values: Mapping[str, str], removed: Sequence[str] = ()) -> None:
        """Set some policies of a scope and remove others, all of them or none."""
        request = pb.ChangePoliciesRequest(request_id=request_id(), scope=_scope(scope), remove=removed)
        request.set.update(values)
        self._transport.call("ChangePolicies", request)

    def get_policies(self, scope: Scope) -> dict[str, object]:
        """Return the policies that are set in a scope, and no others."""
        answer = self._transport.call("GetPolicies", pb.GetPoliciesRequest(scope=_scope(scope)))
        return {name: parse_policy(name, value) for name, value in answer.set.items() if name in POLICIES}

    def policies_in_force(self, topic: TopicName) -> dict[str, EffectivePolicy]:
        """Return every policy of a topic, and where it comes from."""
        answer = self._transport.call("GetPolicies", pb.GetPoliciesRequest(scope=_scope(Scope(topic))))
        return {
            p.name: EffectivePolicy(
                parse_policy(p.name, p.value) if p.HasField("value") else None, POLICY_SOURCE.given(p.source)
            )
            for p in answer.effective
            if p.name in POLICIES  # a newer service may have more
        }


def _scope(scope: Scope) -> pb.PolicyScope:
    return pb.PolicyScope(topic=None if scope.topic is None else str(scope.topic), namespace=scope.namespace)


def copies_of_range(answer: pb.ListCopiesResponse) -> CopiesOfRange:
    """Return the ledgers and their copies in an answer."""
    priority = READ_PRIORITY.from_wire(answer.data_read_priority)
    return CopiesOfRange(tuple(convert.copies_from_wire(c) for c in answer.ledgers), priority)
