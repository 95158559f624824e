"""The clients of the bank, each in a process of its own: A1 sends plain messages, A2 sends transactions.

A message moves money on one account: the amount is positive for a deposit or a credit, negative for a withdrawal or
a debit. A transfer is a transaction of two such messages or more, each on the partition of its account.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

import txn_source
from txn_source import Log, Producer, Transaction

TOPIC = "requests"
PARTITIONS = 4
SCHEMA = pa.schema(
    [
        pa.field("request", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),  # opening, deposit, withdrawal or transfer
        pa.field("account", pa.string(), nullable=False),
        pa.field("amount_cents", pa.int64(), nullable=False),
    ]
)
ACCOUNTS = tuple(f"account-{n:02}" for n in range(16))
EMPLOYER = "employer"
SALARY_CENTS = 250_000
OPENING_CENTS = 5_000_000
INTEREST_CENTS = 1_234
REQUESTS_PER_S = 80
TRANSFERS_PER_S = 15
REFUSED_SHARE = 0.15


@dataclass
class Booked:
    """What clients know to be true of the requests that they sent, once these are acknowledged."""

    messages: Counter[str] = field(default_factory=Counter)
    """By how they ended: plain, committed, aborted."""
    transfers: Counter[str] = field(default_factory=Counter)
    """Committed, aborted."""
    cents: Counter[str] = field(default_factory=Counter)
    """By kind of request, but for transfers, whose sum is 0."""
    accounts: Counter[str] = field(default_factory=Counter)
    """What each account gained, in cents."""

    def add(self, other: Booked) -> None:
        for name, counter in vars(self).items():
            counter.update(getattr(other, name))


def open_accounts(log: Log) -> Booked:
    """Create the topic and give each account some money."""
    log.create_topic(TOPIC, PARTITIONS, SCHEMA)
    balances = Counter(dict.fromkeys((*ACCOUNTS, EMPLOYER), OPENING_CENTS))
    with log.producer(TOPIC) as producer:
        for account, cents in balances.items():
            _send(producer, f"opening-{account}", "opening", account, cents)
    return Booked(Counter(plain=len(balances)), cents=Counter(opening=balances.total()), accounts=balances)


def deposits_and_withdrawals(root: str, seconds: float) -> Booked:
    """Client A1: plain messages, which count at once."""
    dice, booked = random.Random("A1"), Booked()
    with txn_source.connect(root) as log, log.producer(TOPIC, name="A1") as producer:
        for n in _at_rate(REQUESTS_PER_S, seconds):
            kind = dice.choice(["deposit", "deposit", "withdrawal"])
            account, cents = dice.choice(ACCOUNTS), dice.randrange(100, 50_000)
            if kind == "withdrawal":
                cents = -cents
            _send(producer, f"A1-{n}", kind, account, cents)
            booked.messages["plain"] += 1
            booked.cents[kind] += cents
            booked.accounts[account] += cents
        producer.flush()
    return booked


def transfers(root: str, seconds: float) -> Booked:
    """Client A2: a debit and a credit in one transaction, which is aborted if the payee's bank refuses the credit."""
    dice, booked = random.Random("A2"), Booked()
    with txn_source.connect(root) as log, log.producer(TOPIC, name="A2") as producer:
        for n in _at_rate(TRANSFERS_PER_S, seconds):
            payer, payee = dice.sample(ACCOUNTS, 2)
            cents = dice.randrange(100, 50_000)
            txn = log.begin_transaction()
            _send(producer, f"A2-{n}", "transfer", payer, -cents, txn)
            producer.flush()  # the debit is in the log now, for everybody who reads uncommitted
            if dice.random() < REFUSED_SHARE:
                txn.abort()
                booked.messages["aborted"] += 1
                booked.transfers["aborted"] += 1
            else:
                _send(producer, f"A2-{n}", "transfer", payee, cents, txn)
                txn.commit()
                booked.messages["committed"] += 2
                booked.transfers["committed"] += 1
                booked.accounts.update({payer: -cents, payee: cents})
    return booked


def hanging_transfer(root: str, begin_after: float, hang_for: float) -> tuple[Booked, float, float]:
    """Another client A2: it pays all salaries in one transaction, and hangs between the debit and the credits.

    Returns:
        What it booked, and from when until when the transaction was open (``time.time``).
    """
    with txn_source.connect(root) as log, log.producer(TOPIC, name="A2-salaries") as producer:
        time.sleep(begin_after)
        with log.begin_transaction(timeout=60 + hang_for) as txn:
            _send(producer, "salaries", "transfer", EMPLOYER, -SALARY_CENTS * len(ACCOUNTS), txn)
            producer.flush()
            began = time.time()
            time.sleep(hang_for)
            for account in ACCOUNTS:
                _send(producer, "salaries", "transfer", account, SALARY_CENTS, txn)
    payments = Counter({EMPLOYER: -SALARY_CENTS * len(ACCOUNTS), **dict.fromkeys(ACCOUNTS, SALARY_CENTS)})
    return Booked(Counter(committed=len(payments)), Counter(committed=1), accounts=payments), began, time.time()


def forgotten_transfer(root: str, begin_after: float, timeout: float) -> Booked:
    """A client A2 that debits, and comes back too late: the service has aborted its transaction."""
    with txn_source.connect(root) as log, log.producer(TOPIC, name="A2-late") as producer:
        time.sleep(begin_after)
        stored = False
        while not stored:
            txn = log.begin_transaction(timeout)
            try:
                _send(producer, "late", "transfer", ACCOUNTS[0], -SALARY_CENTS, txn)
                producer.flush()
                stored = True
            except txn_source.TransactionTimedOutError:  # nothing was stored: a busy machine needs more time
                timeout *= 2
        time.sleep(timeout + 0.1)
        try:
            txn.commit()
        except txn_source.TransactionTimedOutError:
            return Booked(Counter(aborted=1), Counter(aborted=1))
    raise RuntimeError("A transaction was committed after its time-out.")


def pay_interest(log: Log) -> Booked:
    """Give each account something more, in plain messages, when the day is over."""
    paid = Counter(dict.fromkeys(ACCOUNTS, INTEREST_CENTS))
    with log.producer(TOPIC, name="bank") as producer:
        for account, cents in paid.items():
            _send(producer, f"interest-{account}", "deposit", account, cents)
    return Booked(Counter(plain=len(paid)), cents=Counter(deposit=paid.total()), accounts=paid)


def _send(
    producer: Producer, request: str, kind: str, account: str, cents: int, txn: Transaction | None = None
) -> None:
    message = {"request": request, "kind": kind, "account": account, "amount_cents": cents}
    producer.send(message, key=account, txn=txn)


def _at_rate(per_second: float, seconds: float) -> Iterator[int]:
    """Count up at this rate (slower, if the log is slower) until the time is over."""
    start = time.monotonic()
    for n in range(round(per_second * seconds)):
        now = time.monotonic() - start
        if now >= seconds:
            return
        time.sleep(max(0.0, n / per_second - now))
        yield n
