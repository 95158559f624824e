"""txnlog: a transactional log that Spark reads directly, at the isolation level that each reader chooses.

``connect`` opens a log; everything else hangs on what it returns. Spark finds the format ``txnlog`` by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txn_source.model.errors import (
    AcknowledgedElsewhereError,
    BatchRepeatedError,
    DataLossError,
    InternalError,
    InvalidArgumentError,
    LogNotFoundError,
    LogVersionError,
    MessageUnreadableError,
    NamespaceNotFoundError,
    OnlyCopyError,
    OutOfRangeError,
    ProducerFencedError,
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
    UnavailableError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import MessageId, Position
from txn_source.model.read_priority import ReadPriority
from txn_source.model.subscription import SubscriptionType
from txn_source.model.transaction import TxnId

if TYPE_CHECKING:
    from txn_source.client.connecting import connect
    from txn_source.client.consuming.consumer import Consumer
    from txn_source.client.consuming.messages import Message, MessageBatch
    from txn_source.client.consuming.options import ConsumerOptions
    from txn_source.client.consuming.reader import Reader
    from txn_source.client.log import Log
    from txn_source.client.places import Cut
    from txn_source.client.transaction import Transaction
    from txn_source.client.writing.batching import Batching
    from txn_source.client.writing.producer import Producer

__version__ = "0.1.0"

_LAZY = {
    "Batching": "txn_source.client.writing.batching",
    "Consumer": "txn_source.client.consuming.consumer",
    "ConsumerOptions": "txn_source.client.consuming.options",
    "Log": "txn_source.client.log",
    "Cut": "txn_source.client.places",
    "Message": "txn_source.client.consuming.messages",
    "MessageBatch": "txn_source.client.consuming.messages",
    "Producer": "txn_source.client.writing.producer",
    "Reader": "txn_source.client.consuming.reader",
    "Transaction": "txn_source.client.transaction",
    "connect": "txn_source.client.connecting",
}
"""Loaded when first used: Spark imports this package in processes that only need an error or a name."""

__all__ = [
    "AcknowledgedElsewhereError",
    "BatchRepeatedError",
    "Batching",
    "Consumer",
    "ConsumerOptions",
    "Cut",
    "DataLossError",
    "InternalError",
    "InvalidArgumentError",
    "IsolationLevel",
    "Log",
    "LogNotFoundError",
    "LogVersionError",
    "Message",
    "MessageBatch",
    "MessageId",
    "MessageUnreadableError",
    "NamespaceNotFoundError",
    "OnlyCopyError",
    "OutOfRangeError",
    "Position",
    "Producer",
    "ProducerFencedError",
    "ReadPriority",
    "Reader",
    "SchemaMismatchError",
    "SegmentUnreadableError",
    "StaleEpochError",
    "StaleSegmentError",
    "StorageWriteError",
    "SubscriptionBusyError",
    "SubscriptionExistsError",
    "SubscriptionIsolationMismatchError",
    "SubscriptionNotFoundError",
    "SubscriptionType",
    "TopicExistsError",
    "TopicNotFoundError",
    "Transaction",
    "TransactionEndedError",
    "TransactionNotFoundError",
    "TransactionTimedOutError",
    "TxnId",
    "TxnLogError",
    "UnavailableError",
    "connect",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "spark":
        return import_module("txn_source.spark")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
