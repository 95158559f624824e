"""txnlog: a transactional log that Spark reads directly, at the isolation level that each reader chooses.

``connect`` opens a log; everything else hangs on what it returns. Spark finds the format ``txnlog`` by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txn_source.model.errors import (
    AcknowledgedElsewhereError,
    BatchRepeatedError,
    DataLossError,
    FailedError,
    InternalError,
    InvalidArgumentError,
    LimitExceededError,
    LogNotFoundError,
    LogVersionError,
    MessageUnreadableError,
    NamespaceNotFoundError,
    NoJarError,
    OnlyCopyError,
    OutOfRangeError,
    PermissionDeniedError,
    ProducerFencedError,
    RateLimitedError,
    SchemaMismatchError,
    SegmentUnreadableError,
    StaleEpochError,
    StaleSegmentError,
    StorageWriteError,
    SubscriptionBusyError,
    SubscriptionExistsError,
    SubscriptionIsolationMismatchError,
    SubscriptionNotFoundError,
    TopicExistsError,
    TopicNotFoundError,
    TransactionEndedError,
    TransactionNotFoundError,
    TransactionTimedOutError,
    TxnLogError,
    UnauthenticatedError,
    UnavailableError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import MessageId, Position
from txn_source.model.read_priority import ReadPriority
from txn_source.model.transaction import TxnId

if TYPE_CHECKING:
    from txn_source.client.connecting import connect
    from txn_source.client.consuming.consumer import Consumer
    from txn_source.client.consuming.messages import Message, MessageBatch
    from txn_source.client.consuming.options import ConsumerOptions
    from txn_source.client.consuming.reader import Reader
    from txn_source.client.log import Log
    from txn_source.client.places import Sought
    from txn_source.client.rooted import RootInfo
    from txn_source.client.tiering.garbage import Garbage
    from txn_source.client.tiering.iceberg import IcebergReport
    from txn_source.client.tiering.inventory import UnknownFile
    from txn_source.client.tiering.maintenance import MaintenanceReport
    from txn_source.client.tiering.offload import OffloadReport
    from txn_source.client.topic_stats import TopicStats
    from txn_source.client.writing.batching import Batching
    from txn_source.client.writing.message_ids import MessageIds
    from txn_source.client.writing.producer import Producer
    from txn_source.client.writing.transaction import Transaction
    from txn_source.metadata.stub.metadata_stub import TransactionInfo
    from txn_source.metadata.stub.subscriptions import SubscriptionInfo
    from txn_source.model.copies import CopiesRead
    from txn_source.model.policies import EffectivePolicy
    from txn_source.model.retention import Trimmed
    from txn_source.model.subscription import SubscriptionType
    from txn_source.reading.places import Cut
    from txn_source.upkeep.backup import BackupReport, backup
    from txn_source.upkeep.recovery import RecoveryReport, recover
    from txn_source.upkeep.restore import RestoreReport, restore
    from txn_source.upkeep.salvage import SalvagedFile, salvage

__version__ = "0.1.0"

_LAZY = {
    "BackupReport": "txn_source.upkeep.backup",
    "Batching": "txn_source.client.writing.batching",
    "Consumer": "txn_source.client.consuming.consumer",
    "ConsumerOptions": "txn_source.client.consuming.options",
    "CopiesRead": "txn_source.model.copies",
    "Cut": "txn_source.reading.places",
    "EffectivePolicy": "txn_source.model.policies",
    "Garbage": "txn_source.client.tiering.garbage",
    "IcebergReport": "txn_source.client.tiering.iceberg",
    "Log": "txn_source.client.log",
    "MaintenanceReport": "txn_source.client.tiering.maintenance",
    "Message": "txn_source.client.consuming.messages",
    "MessageBatch": "txn_source.client.consuming.messages",
    "MessageIds": "txn_source.client.writing.message_ids",
    "OffloadReport": "txn_source.client.tiering.offload",
    "Producer": "txn_source.client.writing.producer",
    "Reader": "txn_source.client.consuming.reader",
    "RecoveryReport": "txn_source.upkeep.recovery",
    "RestoreReport": "txn_source.upkeep.restore",
    "RootInfo": "txn_source.client.rooted",
    "SalvagedFile": "txn_source.upkeep.salvage",
    "Sought": "txn_source.client.places",
    "SubscriptionInfo": "txn_source.metadata.stub.subscriptions",
    "SubscriptionType": "txn_source.model.subscription",
    "TopicStats": "txn_source.client.topic_stats",
    "Transaction": "txn_source.client.writing.transaction",
    "TransactionInfo": "txn_source.metadata.stub.metadata_stub",
    "Trimmed": "txn_source.model.retention",
    "UnknownFile": "txn_source.client.tiering.inventory",
    "backup": "txn_source.upkeep.backup",
    "connect": "txn_source.client.connecting",
    "recover": "txn_source.upkeep.recovery",
    "restore": "txn_source.upkeep.restore",
    "salvage": "txn_source.upkeep.salvage",
}
"""Loaded when first used: Spark imports this package in processes that only need an error or a name."""

__all__ = [
    "AcknowledgedElsewhereError",
    "BackupReport",
    "BatchRepeatedError",
    "Batching",
    "Consumer",
    "ConsumerOptions",
    "CopiesRead",
    "Cut",
    "DataLossError",
    "EffectivePolicy",
    "FailedError",
    "Garbage",
    "IcebergReport",
    "InternalError",
    "InvalidArgumentError",
    "IsolationLevel",
    "LimitExceededError",
    "Log",
    "LogNotFoundError",
    "LogVersionError",
    "MaintenanceReport",
    "Message",
    "MessageBatch",
    "MessageId",
    "MessageIds",
    "MessageUnreadableError",
    "NamespaceNotFoundError",
    "NoJarError",
    "OffloadReport",
    "OnlyCopyError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "Position",
    "Producer",
    "ProducerFencedError",
    "RateLimitedError",
    "ReadPriority",
    "Reader",
    "RecoveryReport",
    "RestoreReport",
    "RootInfo",
    "SalvagedFile",
    "SchemaMismatchError",
    "SegmentUnreadableError",
    "Sought",
    "StaleEpochError",
    "StaleSegmentError",
    "StorageWriteError",
    "SubscriptionBusyError",
    "SubscriptionExistsError",
    "SubscriptionInfo",
    "SubscriptionIsolationMismatchError",
    "SubscriptionNotFoundError",
    "SubscriptionType",
    "TopicExistsError",
    "TopicNotFoundError",
    "TopicStats",
    "Transaction",
    "TransactionEndedError",
    "TransactionInfo",
    "TransactionNotFoundError",
    "TransactionTimedOutError",
    "Trimmed",
    "TxnId",
    "TxnLogError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownFile",
    "backup",
    "connect",
    "recover",
    "restore",
    "salvage",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "spark":
        return import_module("txn_source.spark")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
