"""The service: one method for each call of ``txnlog.v1.MetadataService``, each of them one database transaction.

Calls take and return protobuf messages and raise ``TxnLogError``. The embedded log makes them directly, the server puts
gRPC before them. The service keeps no state but its database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from google.protobuf.message import Message

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.consumer_hub import ConsumerHub
from txn_source.metadata.protocol.checks import check
from txn_source.metadata.service.policy_calls import PolicyCalls
from txn_source.metadata.service.producer_calls import ProducerCalls
from txn_source.metadata.service.read_calls import ReadCalls
from txn_source.metadata.service.subscription_calls import SubscriptionCalls
from txn_source.metadata.service.tier_calls import TierCalls
from txn_source.metadata.service.topic_calls import TopicCalls
from txn_source.metadata.service.transaction_calls import TransactionCalls
from txn_source.metadata.service.unit_of_work import Clock, UnitOfWork, system_clock
from txn_source.metadata.service.write_calls import WriteCalls
from txn_source.metadata.store.database import Database

Call = Callable[[Any], Message]
"""Takes the request of a call and returns its answer."""
Conversation = Callable[[Iterable[Any]], Iterator[Message]]
"""Takes the requests of a conversation as they come, and yields the answers."""


class MetadataService:
    """All calls of the metadata service over one database.

    ``configuration`` are the broker's policies (``model/policies.py``); what is set for the broker in the database is
    stronger.
    """

    def __init__(
        self,
        database: Database,
        storage_uri: str,
        clock: Clock = system_clock,
        configuration: Mapping[str, Any] | None = None,
    ) -> None:
        self._database = database
        self._storage_uri = storage_uri
        self._work = work = UnitOfWork(database, clock)
        set_by_configuration = dict(configuration or {})
        self.hub = ConsumerHub(database, work, set_by_configuration)
        topics = TopicCalls(work, storage_uri)
        producers = ProducerCalls(work)
        writes = WriteCalls(work, self.hub)
        transactions = TransactionCalls(work, self.hub)
        reads = ReadCalls(work)
        tiers = TierCalls(work, set_by_configuration)
        policies = PolicyCalls(work, set_by_configuration)
        subscriptions = SubscriptionCalls(work, self.hub)
        self._calls: Mapping[str, Call] = {
            "GetLog": topics.GetLog,
            "CreateTopic": topics.CreateTopic,
            "UpdateTopic": topics.UpdateTopic,
            "ListTopics": topics.ListTopics,
            "DeleteTopic": topics.DeleteTopic,
            "RollLedger": topics.RollLedger,
            "OpenProducer": producers.OpenProducer,
            "Append": writes.Append,
            "CommitBatch": producers.CommitBatch,
            "ListSegments": producers.ListSegments,
            "CondemnSegments": producers.CondemnSegments,
            "BeginTransaction": transactions.BeginTransaction,
            "WriteTransaction": writes.WriteTransaction,
            "WriteAll": writes.WriteAll,
            "EndTransaction": transactions.EndTransaction,
            "GetTransaction": transactions.GetTransaction,
            "ListTransactions": transactions.ListTransactions,
            "GetView": reads.GetView,
            "FindCut": reads.FindCut,
            "FindPosition": reads.FindPosition,
            "ListLedgers": reads.ListLedgers,
            "SplitRange": reads.SplitRange,
            "ListEntries": reads.ListEntries,
            "ListDecisions": reads.ListDecisions,
            "ListCopies": tiers.ListCopies,
            "ListOffloadable": tiers.ListOffloadable,
            "BeginOffload": tiers.BeginOffload,
            "CompleteOffload": tiers.CompleteOffload,
            "AbandonOffload": tiers.AbandonOffload,
            "DeleteCopies": tiers.DeleteCopies,
            "TrimTopic": tiers.TrimTopic,
            "ListDoomedFiles": tiers.ListDoomedFiles,
            "ForgetDoomedFiles": tiers.ForgetDoomedFiles,
            "ChangePolicies": policies.ChangePolicies,
            "GetPolicies": policies.GetPolicies,
            "CreateSubscription": subscriptions.CreateSubscription,
            "ListSubscriptions": subscriptions.ListSubscriptions,
            "DeleteSubscription": subscriptions.DeleteSubscription,
            "SeekSubscription": subscriptions.SeekSubscription,
            "SetSubscriptionIsolationLevel": subscriptions.SetSubscriptionIsolationLevel,
            "CountMessages": subscriptions.CountMessages,
        }
        self._conversations: Mapping[str, Conversation] = {"Consume": subscriptions.Consume}

    def call(self, name: str, request: Message) -> Message:
        """Make a call and return its answer.

        Raises:
            InvalidArgumentError: the request has a field that can't be (``protocol/checks.py``).
            TxnLogError: the call was refused, or has failed.
        """
        check(request)
        return self._calls[name](request)

    def converse(self, name: str, requests: Iterable[Message]) -> Iterator[Message]:
        """Hold a conversation: yield the answers until the requests end. It checks each request itself."""
        return self._conversations[name](requests)

    def close(self) -> None:
        """End the conversations with consumers, and close the database's connections."""
        self.hub.close()
        self._database.close()

    def close_database(self) -> None:
        """Close the database's connections that nobody uses; the next call opens what it needs."""
        self._database.close()

    @cached_property
    def log_id(self) -> str:
        """Which log it is."""
        return str(self._calls["GetLog"](pb.GetLogRequest()).log_id)  # type: ignore[attr-defined]

    @property
    def storage_uri(self) -> str:
        """The root of the log."""
        return self._storage_uri

    def maintain(self) -> None:
        """Do now what would otherwise be done when somebody looks: abort transactions past their deadline."""
        with self._work.read():
            pass
