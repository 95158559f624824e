"""Numbers for kinds of entries and states of transactions, as they are stored and sent."""

from __future__ import annotations

from txn_source.model.transaction import TransactionState

DATA, COMMIT_MARKER, ABORT_MARKER = 0, 1, 2
"""Kinds of entries."""
ABORTED_DATA = 3
"""In the index of a tiered object: messages of an aborted transaction, which lie in the second file."""

OPEN, COMMITTED, ABORTED = 0, 1, 2
"""States of transactions."""

ALL_DECISIONS = (1 << 62) - 1
"""As a number of decisions: however many there are."""

STATES = (TransactionState.OPEN, TransactionState.COMMITTED, TransactionState.ABORTED)
"""States by their numbers."""
