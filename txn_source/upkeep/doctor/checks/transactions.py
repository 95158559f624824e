"""Transactions that are open for so long that somebody should look."""

from __future__ import annotations

from collections.abc import Iterator

from txn_source.metadata.stub.metadata_stub import TransactionInfo
from txn_source.model.errors import TransactionNotFoundError
from txn_source.model.transaction import TransactionState
from txn_source.model.units import format_count
from txn_source.upkeep.doctor.findings import Finding, finding
from txn_source.upkeep.doctor.subject import Subject

_LONG_S = 300.0
"""As the alert TxnlogHangingTransaction."""


def check_transactions(subject: Subject) -> Iterator[Finding]:
    """Look at the open transactions: age against timeout, and what each holds back."""
    stub = subject.access.metadata
    for one in stub.list_transactions(TransactionState.OPEN):
        if subject.topics and not {p.topic for p in one.partitions} & {name.short for name in subject.topics}:
            continue
        if not _hangs(one):
            continue
        try:
            now = stub.get_transaction(one.id)  # it may have ended since it was listed
        except TransactionNotFoundError:
            continue
        if now.state is TransactionState.OPEN and _hangs(now):
            yield _finding(now)


def _hangs(one: TransactionInfo) -> bool:
    """True if it is open for long; past its timeout, whoever looks next aborts it."""
    return _LONG_S < one.age <= one.timeout


def _finding(one: TransactionInfo) -> Finding:
    producers = f" of {', '.join(one.producers)}" if one.producers else ""
    holds = (
        f"; it holds back {format_count(one.held_back_messages, 'message')} on"
        f" {format_count(len(one.partitions), 'partition')}"
        if one.partitions
        else "; it has written nothing"
    )
    fact = f"Transaction {one.id}{producers} is open for {one.age:,.0f} s, its timeout is {one.timeout:,.0f} s{holds}."
    return finding(
        "transaction-hangs",
        f"transaction {one.id}",
        fact,
        txn=str(one.id),
        age_s=round(one.age),
        timeout_s=one.timeout,
        held_back_messages=one.held_back_messages,
    )
