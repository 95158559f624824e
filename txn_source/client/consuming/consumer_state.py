"""What a consumer is made of, for the classes that ``Consumer`` is put together from."""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from txn_source.client.consuming.messages import Origin
from txn_source.client.consuming.options import ConsumerOptions
from txn_source.client.consuming.receive_queue import Inbox
from txn_source.client.consuming.redeliveries import Redeliveries
from txn_source.client.consuming.upkeep import Upkeep
from txn_source.client.waiting import News
from txn_source.metadata.stub.consumer_stream import Delivery, SubscribeRequest
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import TxnLogError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import MessageRange
from txn_source.model.subscription import SubscriptionType
from txn_source.model.topic_name import TopicName

if TYPE_CHECKING:
    from txn_source.client.log import Log

_QUEUE_IN_ORDER, _QUEUE_SHARED = 100_000, 1_000


class ConsumerState:
    """Part of ``Consumer``: its state, which ``_lock`` guards."""

    _level: IsolationLevel
    _origin: Origin
    _schema: pa.Schema
    _partitions: Mapping[int, int]
    _plain: bool

    def __init__(
        self,
        log: Log,
        topic: TopicName,
        name: str,
        kind: SubscriptionType,
        level: IsolationLevel | None,
        where: str,
        points: Mapping[int, int],
        options: ConsumerOptions,
        *,
        durable: bool = True,
    ) -> None:
        token = uuid.uuid4().hex
        self._log = log
        self._stub: MetadataStub = log.metadata
        self._root: Path = log.root
        self._options = options
        self._queue_size = options.queue_size or (_QUEUE_IN_ORDER if kind.in_order else _QUEUE_SHARED)
        self._request = SubscribeRequest(
            str(topic),
            name,
            kind,
            level,
            durable,
            where,
            points,
            options.consumer_name or f"consumer-{token[:8]}",
            token,
        )
        self.topic = topic.short
        self.subscription = name
        self.type = kind
        self._upkeep = Upkeep(f"consumer {self._request.consumer_name}")
        self._lock = self._upkeep.lock
        self._pending = self._upkeep.pending
        self._news = News()
        self._seeking = threading.Lock()
        self._inbox = Inbox()
        self._redeliveries = Redeliveries()
        self._refusal: TxnLogError | None = None
        self._retry_s = 0.0
        self._astray = False
        """True if it isn't known in which epoch the service is."""
        self._ear: object = None  # that of the connection whose deliveries count
        self._inherited = False
        """True in a child that was forked."""
        self._epoch = self._topic_id = -1

    def _refuse(self, error: TxnLogError, *, hopeless: bool = True) -> None:
        """Have calls that wait, and all later ones, raise an error; what is left to send is ``hopeless``, or sent."""
        with self._lock:
            self._refusal = self._refusal or error
            self._upkeep.hopeless = self._upkeep.hopeless or hopeless
            self._news.tell()

    def _settle(self) -> None:
        """Put what interrupted calls had taken where it comes next. The lock is held."""
        self._inbox.settle(self._epoch if self._request.durable else None, self._origin)

    def _check_open(self) -> None:
        if self._refusal is not None:
            raise copy.copy(self._refusal)  # each thread its own: a traceback belongs to one

    def flush(self) -> None:
        raise NotImplementedError

    def _add_range(self, delivery: Delivery, item: MessageRange) -> None:
        raise NotImplementedError
