"""The errors of a producer that no call has raised yet."""

from __future__ import annotations

from txn_source.client.writing.parcel import Owner
from txn_source.model.errors import TxnLogError


class Losses:
    """Errors that the next calls raise.

    Their tracebacks are dropped, since these keep alive all objects of the failed call, dropped transactions included.
    """

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self.unreported: dict[Owner, TxnLogError] = {}
        """Losses that no call has raised yet, by transaction (None: plain messages)."""
        self.kept: TxnLogError | None = None
        """Why the last write failed, if no call has raised it yet; the messages are kept, not lost."""
        self._of_transactions: dict[Owner, TxnLogError] = {}

    def note(self, txn: Owner, error: TxnLogError, messages: int) -> None:
        """Record the loss of messages."""
        many = f"{messages:,} message{' is' if messages == 1 else 's are'}"
        _drop_tracebacks(error)
        error.add_note(f"{many} not stored because of this, of producer {self._producer!r}.")
        if txn is not None:
            self._of_transactions.setdefault(txn, error)
        self.unreported.setdefault(txn, error)

    def keep(self, error: TxnLogError) -> None:
        """Record why the waiting messages can't be stored now."""
        _drop_tracebacks(error)
        self.kept = error

    def raise_kept(self) -> None:
        """Raise the reason of the last failed write, if no call has."""
        error, self.kept = self.kept, None
        if error is not None:
            raise error

    def raise_next(self) -> None:
        """Raise one unreported error, if there is one."""
        self.raise_kept()
        if self.unreported:
            raise self.unreported.pop(next(iter(self.unreported)))

    def raise_of(self, txn: Owner) -> None:
        """Raise the loss of a transaction, each time: the transaction can only be aborted."""
        error = self._of_transactions.get(txn)
        if error is not None:
            self.unreported.pop(txn, None)
            raise error.with_traceback(None)

    def forget(self, txn: Owner) -> None:
        """Forget the losses of a transaction that is being aborted."""
        self.unreported.pop(txn, None)
        self._of_transactions.pop(txn, None)


def _drop_tracebacks(error: BaseException) -> None:
    """Drop the traceback of an error, and of its causes."""
    found: BaseException | None = error
    while found is not None:
        found.__traceback__ = None
        found = found.__cause__ or found.__context__
