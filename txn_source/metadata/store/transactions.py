"""Transactions in the database: begin, one atomic end with markers, time-outs, listing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, func, insert, literal_column, select, update

from txn_source.metadata.store.conflicts import expect
from txn_source.metadata.store.inserts import NewRows
from txn_source.metadata.store.partition_tail import Tail
from txn_source.metadata.store.prepared import Lookup, Prepared
from txn_source.metadata.store.tables import (
    is_in,
    log_info,
    roots,
    transaction_partitions,
    transaction_producers,
    transactions,
)
from txn_source.model.errors import (
    InvalidArgumentError,
    ProducerFencedError,
    TransactionEndedError,
    TransactionNotFoundError,
    TransactionTimedOutError,
    TxnLogError,
)
from txn_source.model.kinds import ABORT_MARKER, ABORTED, COMMIT_MARKER, COMMITTED, OPEN
from txn_source.model.transaction import COORDINATOR, EndReason, TxnId, check_timeout, id_of


def number_of(txn: TxnId) -> int:
    """Return the number of a transaction, or raise TXN_NOT_FOUND for an id that this service can't have given."""
    if txn.most_sig_bits != COORDINATOR or txn.least_sig_bits >= 1 << 63:
        raise _unknown(txn)
    return txn.least_sig_bits


def begin(connection: Connection, timeout_ms: int, now_ms: int) -> int:
    """Open a transaction and return its number; the log's first is 0."""
    check_timeout(timeout_ms)
    txn = int(connection.execute(_NEXT).scalar_one()) - 1
    connection.execute(
        insert(transactions),
        {"txn": txn, "state": OPEN, "timeout_ms": timeout_ms, "created_at_ms": now_ms,
         "deadline_ms": now_ms + timeout_ms},
    )  # fmt: skip
    return txn


def find(connection: Connection, txn: int) -> Row[Any]:
    """Return a transaction's row, or raise TXN_NOT_FOUND."""
    row = connection.execute(_FIND, {"txn": txn}).first()
    if row is None:
        raise _unknown(id_of(txn))
    return row


def check_open(connection: Connection, txn: int) -> None:
    """Raise the error that says how a transaction ended, unless it is open."""
    row = find(connection, txn)
    if row.state != OPEN:
        raise ended_error(row, "take more messages")


def end(connection: Connection, txn: int, *, commit: bool, reason: EndReason, now_us: int) -> None:
    """Commit or abort: the state and a marker on every partition touched, in this one database transaction.

    Repeating the same end changes nothing. The opposite end raises the error that says what happened.
    """
    row = find(connection, txn)
    state = COMMITTED if commit else ABORTED
    if row.state == state:
        return
    if row.state != OPEN:
        raise ended_error(row, "be committed" if commit else "be aborted")
    decision, ended_at_ms = connection.execute(_DECISION, {"now_ms": now_us // 1000}).one()
    touched = connection.execute(_TOUCHED, {"txn": txn}).scalars().all()
    tails = Tail.load_all(connection, touched, now_us)
    decided = []
    for partition_id in touched:
        marker = tails[partition_id].place(
            connection, COMMIT_MARKER if commit else ABORT_MARKER, messages=0, length=0, txn=txn
        )
        trace = {"of_txn": txn, "of_partition": partition_id}
        decided.append(trace | {"state": state, "marker_position": marker.key, "decision": decision})
    Tail.store_all(connection, list(tails.values()))
    expect(_DECIDE.run_many(connection, decided), len(decided))
    for tail in tails.values():
        tail.seal(connection)
    ended = {"state": state, "ended_at_ms": ended_at_ms, "end_reason": reason.value, "decision": decision}
    expect(_END.run(connection, {"of_txn": txn, **ended}))


def begin_open(connection: Connection, count: int, timeout_ms: int, now_ms: int) -> range:
    """Open so many transactions and return their numbers; the time-out may be longer than a client's."""
    counts = Counts(connection, now_ms)
    numbers = [counts.begin() for _ in range(count)]
    row = {"state": OPEN, "timeout_ms": timeout_ms, "created_at_ms": now_ms, "deadline_ms": now_ms + timeout_ms}
    _NEW_OPEN.add(connection, [{"txn": number, **row} for number in numbers])
    counts.store(connection)
    return range(numbers[0], numbers[-1] + 1) if numbers else range(0)


def keep_open(connection: Connection, txns: Sequence[int], timeout_ms: int, now_ms: int) -> None:
    """Have open transactions live for so long from now on; the time-out may be longer than a client's."""
    rows = [{"of_txn": txn, "timeout_ms": timeout_ms, "deadline_ms": now_ms + timeout_ms} for txn in txns]
    expect(_KEEP.run_many(connection, rows), len(rows))


def end_all(connection: Connection, ends: Sequence[tuple[int, bool]], now_us: int) -> None:
    """Commit (True) or abort open transactions, in their order, each as ``end`` does."""
    txns = [txn for txn, _ in ends]
    touched: dict[int, list[int]] = {txn: [] for txn in txns}
    for txn, partition_id in _TOUCHED_BY.rows(connection, txns):
        touched[txn].append(partition_id)
    tails = Tail.load_all(connection, {id_ for of_txn in touched.values() for id_ in of_txn}, now_us)
    counts = Counts(connection, now_us // 1000)
    decided, ended = [], []
    for txn, commit in ends:
        state, marker_kind = (COMMITTED, COMMIT_MARKER) if commit else (ABORTED, ABORT_MARKER)
        decision = counts.decide()
        for partition_id in sorted(touched[txn]):
            marker = tails[partition_id].place(connection, marker_kind, messages=0, length=0, txn=txn)
            trace = {"of_txn": txn, "of_partition": partition_id}
            decided.append(trace | {"state": state, "marker_position": marker.key, "decision": decision})
        last = {"ended_at_ms": counts.last_ended_at_ms, "end_reason": EndReason.CLIENT.value, "decision": decision}
        ended.append({"of_txn": txn, "state": state, **last})
    counts.store(connection)
    Tail.store_all(connection, list(tails.values()))
    expect(_DECIDE.run_many(connection, decided), len(decided))
    for tail in tails.values():
        tail.seal(connection)
    expect(_END.run_many(connection, ended), len(ended))


class Counts:
    """How many transactions have begun and ended, while several begin and end in one step."""

    def __init__(self, connection: Connection, now_ms: int) -> None:
        self.begun: int
        self.decided: int
        self.last_ended_at_ms: int
        self.has_roots: int
        """Hot roots beside the log's own one."""
        self.measured_ms: int
        [(self.begun, self.decided, self.last_ended_at_ms, self.has_roots, self.measured_ms)] = _COUNTS.rows(
            connection, {}
        )
        self._now_ms = now_ms
        self._changed = False

    def begin(self) -> int:
        """Return the number of a new transaction."""
        self._changed = True
        self.begun += 1
        return self.begun - 1

    def decide(self) -> int:
        """Return the number of a new decision, which is made now."""
        self._changed = True
        self.decided += 1
        self.last_ended_at_ms = max(self.last_ended_at_ms, self._now_ms)  # see _DECISION
        return self.decided

    def store(self, connection: Connection) -> None:
        """Write them."""
        if self._changed:
            of = {"begun": self.begun, "decided": self.decided, "last_ended_at_ms": self.last_ended_at_ms}
            _STORE_COUNTS.run(connection, of)
            self._changed = False


@dataclass(frozen=True, slots=True)
class Whole:
    """A transaction that begins and is committed in one step."""

    txn: int
    timeout_ms: int
    now_ms: int
    ended_at_ms: int
    decision: int


def insert_whole(connection: Connection, whole: Sequence[Whole]) -> None:
    """Insert transactions that were begun and committed."""
    rows = [
        {"txn": w.txn, "state": COMMITTED, "timeout_ms": w.timeout_ms, "created_at_ms": w.now_ms,
         "deadline_ms": w.now_ms + w.timeout_ms, "ended_at_ms": w.ended_at_ms, "end_reason": EndReason.CLIENT.value,
         "decision": w.decision}
        for w in whole
    ]  # fmt: skip
    _NEW.add(connection, rows)


def still_open(connection: Connection, txns: Iterable[int]) -> set[int]:
    """Return those of some transactions that are open."""
    return {txn for txn, state in _STATES.rows(connection, txns) if state == OPEN}


def committed_of(connection: Connection, txn: int | None) -> int:
    """Return a transaction if it is committed; raise what it is if it isn't."""
    if txn is None:
        raise InvalidArgumentError(
            "The messages of this call are stored already, outside of any transaction.",
            "Repeat a call as it was, or use new sequences.",
        )
    row = find(connection, txn)
    if row.state == OPEN:
        raise InvalidArgumentError(
            f"The messages of this call are stored already, in the open transaction {id_of(txn)}.", "End that one."
        )
    if row.state != COMMITTED:
        raise ended_error(row, "be committed")
    return txn


def open_of_producer(connection: Connection, producer_id: int) -> list[int]:
    """Return the open transactions that a producer has written to."""
    query = (
        select(transactions.c.txn)
        .join(transaction_producers, transaction_producers.c.txn == transactions.c.txn)
        .where(transaction_producers.c.producer_id == producer_id, transactions.c.state == OPEN)
    )
    return list(connection.execute(query).scalars())


def is_open(connection: Connection, txn: int) -> bool:
    """True if a transaction hasn't ended; raises TXN_NOT_FOUND for one that there is not."""
    return bool(find(connection, txn).state == OPEN)


def open_on(connection: Connection, partition_ids: Sequence[int]) -> list[int]:
    """Return the open transactions that have written to any of some partitions, ascending."""
    t = transaction_partitions.c
    query = select(t.txn).where(t.partition_id.in_(partition_ids), is_in(t.state, OPEN)).distinct().order_by(t.txn)
    return list(connection.execute(query).scalars())


def next_deadline_ms(connection: Connection, partition_ids: Sequence[int]) -> int | None:
    """Return when the first of the transactions that are open on some partitions will be aborted; None: none is."""
    return min((row[0] for row in _DEADLINES.rows(connection, partition_ids) if row[0] is not None), default=None)


def ended_error(row: Row[Any], wish: str) -> TxnLogError:
    """Return the error for a call that came after the end of its transaction."""
    txn = id_of(row.txn)
    if row.state == COMMITTED:
        remedy = "Its messages are visible; write others to undo them." if wish == "be aborted" else "Begin a new one."
        return TransactionEndedError(f"Transaction {txn} is committed and can't {wish}.", remedy)
    if row.end_reason == EndReason.TIMEOUT.value:
        return TransactionTimedOutError(
            f"Transaction {txn} was aborted when its timeout of {row.timeout_ms / 1000:g} s had passed"
            f" and can't {wish}.",
            "Begin a new transaction, with a longer timeout if the work takes that long.",
        )
    if row.end_reason == EndReason.FENCED.value:
        return ProducerFencedError(
            f"Transaction {txn} was aborted when a newer producer took over its transactional id and can't {wish}.",
            "Close this producer; only the newest one with that id may write.",
        )
    by = " by an operator" if row.end_reason == EndReason.FORCED.value else ""
    return TransactionEndedError(f"Transaction {txn} was aborted{by} and can't {wish}.", "Begin a new transaction.")


def _unknown(txn: TxnId) -> TransactionNotFoundError:
    return TransactionNotFoundError(
        f"There is no transaction {txn} in this log.", "Check the id against `txnlog transactions list --state all`."
    )


# Built once: for statements as short as these, building one costs as much as running it.
_FIND = select(transactions).where(transactions.c.txn == bindparam("txn"))
_TOUCHED = (
    select(transaction_partitions.c.partition_id)
    .where(transaction_partitions.c.txn == bindparam("txn"))
    .order_by(transaction_partitions.c.partition_id)
)
_DECIDE = Prepared(
    update(transaction_partitions)
    .where(
        transaction_partitions.c.txn == bindparam("of_txn"),
        transaction_partitions.c.partition_id == bindparam("of_partition"),
        transaction_partitions.c.state == literal_column(str(OPEN)),
    )
    .values({name: bindparam(name) for name in ("state", "marker_position", "decision")})
)
_STATES = Lookup(
    lambda names: select(transactions.c.txn, transactions.c.state).where(
        transactions.c.txn.in_([bindparam(name) for name in names])
    )
)
_NEW = NewRows(transactions)
_NEW_OPEN = NewRows(transactions, ("txn", "state", "timeout_ms", "created_at_ms", "deadline_ms"))
_KEEP = Prepared(
    update(transactions)
    .where(transactions.c.txn == bindparam("of_txn"), transactions.c.state == literal_column(str(OPEN)))
    .values(timeout_ms=bindparam("timeout_ms"), deadline_ms=bindparam("deadline_ms"))
)
_TOUCHED_BY = Lookup(
    lambda names: select(transaction_partitions.c.txn, transaction_partitions.c.partition_id).where(
        transaction_partitions.c.txn.in_([bindparam(name) for name in names])
    )
)
_COUNTS = Prepared(
    select(
        log_info.c.transactions,
        log_info.c.decisions,
        log_info.c.last_ended_at_ms,
        select(func.count()).select_from(roots).scalar_subquery(),
        log_info.c.measured_ms,
    )
)
_STORE_COUNTS = Prepared(
    update(log_info).values(
        transactions=bindparam("begun"),
        decisions=bindparam("decided"),
        last_ended_at_ms=bindparam("last_ended_at_ms"),
    )
)
_END = Prepared(
    update(transactions)
    .where(transactions.c.txn == bindparam("of_txn"), transactions.c.state == literal_column(str(OPEN)))
    .values({name: bindparam(name) for name in ("state", "ended_at_ms", "end_reason", "decision")})
)
_NEXT = update(log_info).values(transactions=log_info.c.transactions + 1).returning(log_info.c.transactions)
_LAST = log_info.c.last_ended_at_ms
_DECISION = (
    update(log_info)
    .values(  # ends never go back either, even if the clock does: as of a time, the first so many have ended
        decisions=log_info.c.decisions + 1,
        last_ended_at_ms=case((bindparam("now_ms") > _LAST, bindparam("now_ms")), else_=_LAST),
    )
    .returning(log_info.c.decisions, _LAST)
)
_DEADLINES = Lookup(
    lambda names: (
        select(func.min(transactions.c.deadline_ms))
        .join(transaction_partitions, transaction_partitions.c.txn == transactions.c.txn)
        .where(
            transaction_partitions.c.partition_id.in_([bindparam(name) for name in names]),
            is_in(transaction_partitions.c.state, OPEN),
        )
    )
)
