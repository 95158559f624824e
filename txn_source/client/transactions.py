"""Beginning transactions, and transactions as operators see them."""

from __future__ import annotations

from txn_source.client.notebook import Transactions
from txn_source.client.writing.transaction import Transaction
from txn_source.metadata.stub.metadata_stub import MetadataStub, TransactionInfo
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TransactionState
from txn_source.model.units import is_number, is_whole


def begin_transaction(stub: MetadataStub, timeout: float) -> Transaction:
    """Begin a transaction; ``Log.begin_transaction`` has the arguments' meaning."""
    if not is_number(timeout) or not 0 < timeout < 1e9:
        raise InvalidArgumentError(f"{timeout!r} is not a timeout.", "Use seconds, more than 0.")
    return Transaction(stub, timeout)


def list_transactions(
    stub: MetadataStub, state: str | None, topic: str | None, limit: int, *, oldest_first: bool
) -> list[TransactionInfo]:
    """Return transactions in a state, or all (None); ``Log.transactions`` has the arguments' meaning."""
    if not is_whole(limit) or limit < 0:
        raise InvalidArgumentError(f"{limit!r} is not a number of transactions.", "Use 1 or more, or 0 for all.")
    found, _ = stub.first_transactions(
        None if state is None else _state(state),
        None if topic is None else TopicName.parse(topic),
        limit,
        oldest_first=oldest_first,
    )
    return Transactions(found)


def _state(text: str) -> TransactionState:
    try:
        return TransactionState(text.lower())
    except (ValueError, AttributeError):
        raise InvalidArgumentError(
            f"{text!r} is not a state of transactions.", "Use open, committed or aborted."
        ) from None
