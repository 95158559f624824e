"""A transaction in the hands of its owner."""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from types import TracebackType
from typing import Protocol

from txn_source.client.consuming.messages import Message, MessageBatch, Receiver, rows_of
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.door import guarded
from txn_source.model.errors import TransactionEndedError, TxnLogError, UnavailableError
from txn_source.model.transaction import TxnId
from txn_source.storage.forks import belongs_to_process, inherited_error


class Sender(Protocol):
    """A producer, as the transactions know it to which it has sent messages."""

    def _drain_for(self, txn: TxnId) -> None:
        """Return when all messages of a transaction are registered, or raise why they can't be."""

    def _discard(self, txn: TxnId) -> None:
        """Forget what wasn't registered yet of a transaction that is going to be aborted."""


@guarded
class Transaction:
    """A transaction over any topics and partitions; a context manager that commits, or aborts if the block raises.

    It may be shared by threads. Once a commit or an abort has begun it takes no more messages, and an abort can't
    become a commit any more: so whatever an interrupt leaves half done, the same call completes it when it is repeated.
    What is taken, and how it is to end, changes under one lock: so a commit has all that was taken, or is refused.
    It belongs to the process that began it; in a fork each call is refused.
    """

    def __init__(self, stub: MetadataStub, txn: TxnId, timeout: float) -> None:
        self.id = txn
        self.timeout = timeout
        self._stub = stub
        self._producers: set[Sender] = set()
        self._consumed: dict[Receiver, dict[MessageBatch, list[int]]] = {}
        self._end: str | None = None
        self._ending: str | None = None
        """What was begun, and perhaps never came to its end: ``committed`` or ``aborted``."""
        self._asked = False
        """The service was asked to commit, so it may have done so."""
        self._lock = threading.Lock()
        self._mine = True
        belongs_to_process(self)
        _HANDLES[stub, txn] = self

    def __repr__(self) -> str:
        return f"<Transaction {self.id} {self._end or 'open'}>"

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._end is not None:
            return
        if error is not None:
            if not self._mine:
                return  # a fork leaves the block by exiting: the transaction goes on where it belongs
            try:
                self.abort()
            except TxnLogError as failure:
                error.add_note(f"Aborting transaction {self.id} failed too: {failure}")
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

        Raises:
            TransactionEndedError: the transaction has ended, or its end was begun.
            InvalidArgumentError: that is no message, or its consumer was forgotten.
        """
        self._check_takes("acknowledge more messages")
        batch, rows = rows_of(message)
        consumer = batch.consumer
        with self._lock:
            self._check_takes("acknowledge more messages")
            self._consumed.setdefault(consumer, {}).setdefault(batch, []).extend(rows)

    def commit(self) -> None:
        """Write what producers still hold, then commit; readers see all of it at once, or none.

        Committing again is harmless. If the service can't be reached, call it again: nothing is stored twice.

        Raises:
            TransactionEndedError: it was aborted; TransactionTimedOutError says that its time was up.
            ProducerFencedError: a newer producer took over the transactional id that wrote to it.
            StaleEpochError: messages that it acknowledges are delivered again, after a seek or a lost connection.
            AcknowledgedElsewhereError: another consumer has acknowledged one of them.
        """
        self._check_mine()
        with self._lock:
            self._check_not_aborting()
            self._ending = "committed"  # first: what is sent from here on would come too late
        try:
            for producer in list(self._producers):
                producer._drain_for(self.id)
            with self._lock:
                self._check_not_aborting()  # by another thread, which drops what wasn't registered yet
                acks = [ack for consumer, batches in self._consumed.items() for ack in consumer._consumed(batches)]
                self._asked = True
            self._stub.end_transaction(self.id, commit=True, acknowledgements=acks)
        except UnavailableError:
            if not self._asked:
                self._reopen("committed")
            raise
        except TxnLogError:  # it was not committed
            self._reopen("committed")
            raise
        for consumer, batches in list(self._consumed.items()):
            consumer._committed(batches)
        self._ended("committed")

    def abort(self) -> None:
        """Abort: read_committed readers never see its messages. Aborting again is harmless."""
        self._check_mine()
        with self._lock:
            if self._end is None:
                self._ending = "aborted"  # first: from here on messages are missing
        try:
            for producer in list(self._producers):
                producer._discard(self.id)
            self._stub.end_transaction(self.id, commit=False)
        except TransactionEndedError:  # by itself, or by a commit whose answer was lost: commit() may still ask
            self._reopen("aborted")
            raise
        finally:  # also if it had ended by itself: then nothing was acknowledged either
            self._give_back()
        self._ended("aborted")

    def inherited(self) -> None:
        """Take notice that this is a fork of the process that began it."""
        self._mine = False

    def _give_back(self) -> None:
        while self._consumed:
            consumer, batches = next(iter(self._consumed.items()))
            consumer._not_consumed(batches)
            self._consumed.pop(consumer, None)  # another thread may have aborted, too

    def _join(self, producer: Sender) -> None:
        self._check_mine()
        with self._lock:
            self._check_takes("take more messages")
            self._producers.add(producer)

    def _reopen(self, ending: str) -> None:
        """Forget an end that came to nothing, unless another thread has begun the other one."""
        with self._lock:
            if self._ending == ending:
                self._ending = None

    def _check_not_aborting(self) -> None:
        if self._ending == "aborted" and self._end is None:
            raise TransactionEndedError(
                f"Transaction {self.id} is being aborted and can't be committed.", "Call abort() again to complete it."
            )

    def _check_takes(self, wish: str) -> None:
        self._check_mine()
        if self._end is not None:
            raise TransactionEndedError(f"Transaction {self.id} is {self._end} and can't {wish}.", "Begin a new one.")
        if self._ending is not None:
            how, call = ("committed", "commit()") if self._ending == "committed" else ("aborted", "abort()")
            raise TransactionEndedError(
                f"Transaction {self.id} is being {how} and can't {wish}.", f"Call {call} again to complete it."
            )

    def _check_mine(self) -> None:
        if not self._mine:
            raise inherited_error(f"Transaction {self.id}")

    def _ended(self, how: str) -> None:
        self._end = how
        self._producers.clear()
        self._consumed.clear()


_HANDLES: weakref.WeakValueDictionary[tuple[MetadataStub, TxnId], Transaction] = weakref.WeakValueDictionary()


def handle_of(stub: MetadataStub, txn: TxnId) -> Transaction | None:
    """Return the transaction of that id, if it was begun with the same log in this process and takes messages.

    One that has ended is the service's to refuse.
    """
    found = _HANDLES.get((stub, txn))
    return found if found is not None and found._ending is None else None
