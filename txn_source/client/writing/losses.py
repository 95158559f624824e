"""What a producer couldn't store, until whoever sent it has been told."""

from __future__ import annotations

from txn_source.client.writing.parcel import Owner
from txn_source.model.errors import TxnLogError


class Losses:
    """Errors that are still to be raised.

    They are kept without their tracebacks, which would keep alive all that the calls had in hand that found them.
    """

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self.unreported: dict[Owner, TxnLogError] = {}
        """By transaction (None: plain messages), losses that no call has raised yet."""
        self.kept: TxnLogError | None = None
        """Why the last try failed to store what is kept, if no call has raised it yet; nothing is lost by it."""
        self._of_transactions: dict[Owner, TxnLogError] = {}

    def note(self, txn: Owner, error: TxnLogError, messages: int) -> None:
        """Note that messages are lost."""
        many = f"{messages:,} message{' is' if messages == 1 else 's are'}"
        error.__traceback__ = None
        error.add_note(f"{many} not stored because of this, of producer {self._producer!r}.")
        if txn is not None:
            self._of_transactions.setdefault(txn, error)
        self.unreported.setdefault(txn, error)

    def keep(self, error: TxnLogError) -> None:
        """Note why what waits can't be stored for now."""
        error.__traceback__ = None
        self.kept = error

    def raise_kept(self) -> None:
        """Raise why what waits couldn't be stored, if no call has."""
        error, self.kept = self.kept, None
        if error is not None:
            raise error

    def raise_next(self) -> None:
        """Raise one that was not raised yet, if there is any."""
        self.raise_kept()
        if self.unreported:
            raise self.unreported.pop(next(iter(self.unreported)))

    def raise_of(self, txn: Owner) -> None:
        """Raise what a transaction lost, however often that was said: it can only be aborted."""
        error = self._of_transactions.get(txn)
        if error is not None:
            self.unreported.pop(txn, None)
            raise error.with_traceback(None)

    def forget(self, txn: Owner) -> None:
        """Forget what a transaction lost, which is going to be aborted."""
        self.unreported.pop(txn, None)
        self._of_transactions.pop(txn, None)
