"""A transaction in the hands of its owner."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from txn_source.metadata.stub import MetadataStub
from txn_source.model.errors import TransactionEndedError, TxnLogError, UnavailableError
from txn_source.model.transaction import TxnId

if TYPE_CHECKING:
    from txn_source.client.producer import Producer


class Transaction:
    """A transaction over any topics and partitions; a context manager that commits, or aborts if the block raises."""

    def __init__(self, stub: MetadataStub, txn: TxnId, timeout: float) -> None:
        self.id = txn
        self.timeout = timeout
        self._stub = stub
        self._producers: set[Producer] = set()
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

    def commit(self) -> None:
        """Write what producers still hold, then commit; readers see all of it at once, or none.

        Committing again is harmless. If the service can't be reached, call it again: nothing is stored twice.

        Raises:
            TransactionEndedError: it was aborted; TransactionTimedOutError says that its time was up.
            ProducerFencedError: a newer producer took over the transactional id that wrote to it.
        """
        for producer in list(self._producers):
            producer._drain_for(self.id)
        self._stub.end_transaction(self.id, commit=True)
        self._ended("committed")

    def abort(self) -> None:
        """Abort: read_committed readers never see its messages. Aborting again is harmless."""
        for producer in list(self._producers):
            producer._discard(self.id)
        self._stub.end_transaction(self.id, commit=False)
        self._ended("aborted")

    def _join(self, producer: Producer) -> None:
        if self._end is not None:
            raise TransactionEndedError(
                f"Transaction {self.id} is {self._end} and can't take more messages.", "Begin a new transaction."
            )
        self._producers.add(producer)

    def _ended(self, how: str) -> None:
        self._end = how
        self._producers.clear()
