"""A transaction in the hands of its owner."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from txn_source.client.messages import Message, MessageBatch, rows_of
from txn_source.metadata.stub import MetadataStub
from txn_source.model.door import guarded
from txn_source.model.errors import TransactionEndedError, TxnLogError, UnavailableError
from txn_source.model.transaction import TxnId

if TYPE_CHECKING:
    from txn_source.client.consumer import Consumer
    from txn_source.client.producer import Producer


@guarded
class Transaction:
    """A transaction over any topics and partitions; a context manager that commits, or aborts if the block raises."""

    def __init__(self, stub: MetadataStub, txn: TxnId, timeout: float) -> None:
        self.id = txn
        self.timeout = timeout
        self._stub = stub
        self._producers: set[Producer] = set()
        self._consumed: dict[Consumer, dict[MessageBatch, list[int]]] = {}
        self._end: str | None = None

    def __repr__(self) -> str:
        return f"<Transaction {self.id} {self._end or 'open'}>"

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._end is not None:
            return
        if kind is not None:
            self.abort()
            return
        try:
            self.commit()
        except UnavailableError:
            raise  # it can be committed again
        except BaseException:  # refused or interrupted: don't leave it open until its timeout
            with suppress(TxnLogError):
                self.abort()
            raise

    def acknowledge(self, message: Message | MessageBatch) -> None:
        """Acknowledge a message, or a batch, with this transaction: it takes effect with the commit, or not at all.

        So consuming, processing and producing in one transaction is exactly once. After an abort the messages are
        delivered again.
        """
        self._check_open("acknowledge more messages")
        batch, rows = rows_of(message)
        self._consumed.setdefault(batch.consumer, {}).setdefault(batch, []).extend(rows)

    def commit(self) -> None:
        """Write what producers still hold, then commit; readers see all of it at once, or none.

        Committing again is harmless. If the service can't be reached, call it again: nothing is stored twice.

        Raises:
            TransactionEndedError: it was aborted; TransactionTimedOutError says that its time was up.
            ProducerFencedError: a newer producer took over the transactional id that wrote to it.
            StaleEpochError: messages that it acknowledges are delivered again, after a seek or a lost connection.
            AcknowledgedElsewhereError: another consumer has acknowledged one of them.
        """
        for producer in list(self._producers):
            producer._drain_for(self.id)
        acks = [ack for consumer, batches in self._consumed.items() for ack in consumer._consumed(batches)]
        self._stub.end_transaction(self.id, commit=True, acknowledgements=acks)
        for consumer, batches in self._consumed.items():
            consumer._committed(batches)
        self._consumed.clear()
        self._ended("committed")

    def abort(self) -> None:
        """Abort: read_committed readers never see its messages. Aborting again is harmless."""
        for producer in list(self._producers):
            producer._discard(self.id)
        try:
            self._stub.end_transaction(self.id, commit=False)
        finally:  # also if it had ended by itself: then nothing was acknowledged either
            for consumer, batches in self._consumed.items():
                consumer._not_consumed(batches)
            self._consumed.clear()
        self._ended("aborted")

    def _join(self, producer: Producer) -> None:
        self._check_open("take more messages")
        self._producers.add(producer)

    def _check_open(self, wish: str) -> None:
        if self._end is not None:
            raise TransactionEndedError(f"Transaction {self.id} is {self._end} and can't {wish}.", "Begin a new one.")

    def _ended(self, how: str) -> None:
        self._end = how
        self._producers.clear()
