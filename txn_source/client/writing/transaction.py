"""A transaction in the hands of its owner."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Protocol

from txn_source.client.consuming.messages import Message, MessageBatch, Receiver, rows_of
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.acknowledgement import Acknowledgement
from txn_source.model.door import guarded
from txn_source.model.entry import Appended, NewEntry, OpenedProducer
from txn_source.model.errors import (
    InternalError,
    InvalidArgumentError,
    ProducerFencedError,
    StaleSegmentError,
    TopicNotFoundError,
    TransactionEndedError,
    TransactionTimedOutError,
    TxnLogError,
    UnavailableError,
)
from txn_source.model.transaction import TxnId, check_timeout
from txn_source.process.rim import Rim, changing


@dataclass(frozen=True, slots=True)
class Handed:
    """Written entries of a transaction that a producer has handed over: nothing else registers them.

    ``lacks``: they have too few copies to be acknowledged.
    """

    producer: OpenedProducer
    entries: list[NewEntry]
    lacks: bool


class Sender(Protocol):
    """A producer's ``Pipeline``, as the transactions know it to which the producer has sent messages."""

    rim: Rim
    """The holder of its lock keeps others from sending, writing and registering."""
    stub: MetadataStub
    """Of its log."""

    def register(self, txn: Transaction) -> None:
        """Return when all messages of a transaction are registered, or raise why they can't be."""

    def hand_over(self, txn: Transaction) -> Handed | None:
        """Register everything else, and hand over what waits of a transaction, written and safe; None: nothing."""

    def take_back(self, txn: Transaction, appended: Appended | None) -> None:
        """Take what was handed over: it is registered, or waits again (None)."""

    def discard(self, txn: Transaction) -> None:
        """Forget what wasn't registered yet of a transaction that is going to be aborted."""


@guarded
class Transaction:
    """A transaction over any topics and partitions; a context manager that commits, or aborts if the block raises.

    Threads may share a transaction; their ``commit`` and ``abort`` wait for each other. After the start of a commit or
    an abort the transaction takes no messages, and an abort can't become a commit. Repeat the call after a failure that
    may pass. A commit has all messages that were taken, or is refused. An exception other than TxnLogError in the
    middle of ``commit`` or ``abort`` (a second Ctrl-C, MemoryError) fails the transaction: each later call raises
    FAILED. A forked child can't use the transaction.

    The service hears of it when something has to be registered before the commit, or somebody asks for its id. One that
    is small, and committed soon, is begun, written and committed in one call.
    """

    def __init__(self, stub: MetadataStub, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Make a transaction of so many seconds; ``clock`` returns seconds that only go up."""
        check_timeout(_ms(timeout))
        self.timeout = timeout
        self._stub = stub
        self._clock = clock
        self._since = clock()
        self._id: TxnId | None = None
        self._senders: dict[Sender, object] = {}
        """With each its producer, which lives as long as the transaction may need it."""
        self._handed: dict[Sender, Handed] = {}
        """What a commit in one call registers. It stays here until the call is answered."""
        self._consumed: dict[Receiver, dict[MessageBatch, list[int]]] = {}
        self._end: str | None = None
        self._ending: str | None = None
        """What was begun, and perhaps never came to its end: ``committed`` or ``aborted``."""
        self._asked = False
        """The service was asked to commit, so it may have done so."""
        self._instead: TxnId | None = None
        """Begun to find out what came of a commit that had no answer, see ``_find_out``."""
        self._rim = Rim("The transaction", _FAILED)
        """Guards commit and abort. The order of locks: this rim, the rims of the producers, the two locks below."""
        self._lock = threading.Lock()
        self._beginning = threading.Lock()
        """Held while the service is asked for an id: two threads that register messages must not begin two."""

    @property
    def id(self) -> TxnId:
        """Its id; the service begins it, if that hasn't been done yet.

        Raises:
            TransactionTimedOutError: its time was up before.
            TransactionEndedError: it was aborted before that, so it has none.
            UnavailableError: its commit had no answer, which would tell it.
        """
        if self._id is None:
            self._rim.check()
            with self._beginning:
                if self._id is None:
                    self._check_has_no_end()
                    self._begun(self._stub.begin_transaction(_ms(self.timeout), self._age_ms()))
        assert self._id is not None
        return self._id

    @property
    def is_unanswered(self) -> bool:
        """True if it was asked to be begun and committed in one call, and nobody knows yet what came of that."""
        return self._asked and self._id is None

    def __repr__(self) -> str:
        return f"<{self._name} {self._end or 'open'}>"

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._end is not None:
            return
        if error is not None:
            if self._rim.inherited:
                return  # a fork leaves the block by exiting: the transaction goes on where it belongs
            try:
                self.abort()
            except TxnLogError as failure:
                error.add_note(f"Aborting {self._name.lower()} failed too: {failure}")
            return
        try:
            self.commit()
        except UnavailableError:
            raise  # it can be committed again
        except BaseException:  # refused: don't leave it open until its timeout
            with suppress(TxnLogError):
                self.abort()
            raise

    def acknowledge(self, message: Message | MessageBatch) -> None:
        """Acknowledge a message, or a batch, with this transaction: it takes effect with the commit, or not at all.

        So consuming, processing and producing in one transaction is exactly once. After an abort, whoever did it, and
        when its time is up, the messages are delivered again.

        Raises:
            TransactionEndedError: the transaction has ended, or its end was begun.
            InvalidArgumentError: that is no message, or its consumer was forgotten, or is of another log.
        """
        self._check_takes("acknowledge more messages")
        batch, rows = rows_of(message)
        consumer = batch.consumer
        self._check_log(consumer._metadata, "message")
        with self._lock:
            self._check_takes("acknowledge more messages")
            self._consumed.setdefault(consumer, {}).setdefault(batch, []).extend(rows)
            left = self.timeout - (self._clock() - self._since)
            consumer._expect(batch, rows, time.monotonic() + left)

    @changing
    def commit(self) -> None:
        """Write what producers still hold, then commit; readers see all of it at once, or none.

        Committing again is harmless. If it can't be stored for now, call it again: nothing is stored twice.

        Raises:
            TransactionEndedError: it was aborted; TransactionTimedOutError says that its time was up.
            ProducerFencedError: a newer producer took over the transactional id that wrote to it.
            StaleEpochError: messages that it acknowledges are delivered again, after a seek or a lost connection.
            AcknowledgedElsewhereError: another consumer has acknowledged one of them.
        """
        with self._lock:
            self._check_not_aborting()
            self._ending = "committed"  # first: what is sent from here on would come too late
        try:
            if self._id is not None or not self._in_one_call(self._write_and_commit):
                for sender in list(self._senders):
                    sender.register(self)
                self._stub.end_transaction(self.id, commit=True, acknowledgements=self._ask())
        except TxnLogError as error:
            if not (self._asked and isinstance(error, _NO_ANSWER)) and not self.is_unanswered:
                self._reopen("committed")  # it was not committed
            if isinstance(error, TransactionEndedError):
                self._give_back()
            raise
        for consumer, batches in list(self._consumed.items()):
            consumer._committed(batches)
        self._ended("committed")

    @changing
    def abort(self) -> None:
        """Abort: read_committed readers never see its messages. Aborting again is harmless.

        Raises:
            TransactionEndedError: it was committed; also by a commit that had no answer.
        """
        with self._lock:
            if self._end is None:
                self._ending = "aborted"  # first: from here on messages are missing
        try:
            if self.is_unanswered:
                self._in_one_call(self._find_out)
            if not self._asked:
                self._discard()
            if self._was_begun():
                self._stub.end_transaction(self.id, commit=False)
            self._discard()  # not before: if it is committed after all, what waits is registered, and has ids
        except TransactionEndedError:  # then commit() completes it, and what it acknowledges stays so
            self._reopen("aborted", "committed")
            raise
        except BaseException:
            if not self._asked:
                self._give_back()  # it can't be committed any more
            raise
        self._give_back()
        self._ended("aborted")

    # In one call

    def _in_one_call(self, call: Callable[[], bool]) -> bool:
        """Carry out a call while no producer writes anything else; return what it returns."""
        in_order = sorted(self._senders, key=id)  # always the same: two transactions never wait in a ring
        with ExitStack() as stack:
            for sender in in_order:
                stack.enter_context(sender.rim.changes())
            try:
                return call()
            finally:
                if not self.is_unanswered:
                    self._give_parcels_back()

    def _write_and_commit(self) -> bool:
        """Begin, write and commit in one call; return False if that can't be."""
        if not self._asked:
            for sender in self._senders:
                if (handed := sender.hand_over(self)) is not None:
                    self._handed[sender] = handed
        with self._beginning:
            # With too few copies it is written before the commit, shows where it is, and is copied until it has enough.
            fits = _fits_one_call(self._handed.values()) and not any(h.lacks for h in self._handed.values())
            return self._id is None and (self._asked or fits) and self._begin_and_commit()

    def _give_parcels_back(self) -> None:
        for sender in self._handed:
            sender.take_back(self, None)
        self._handed = {}

    def _begin_and_commit(self) -> bool:
        again = self._asked
        if not again:
            self._age_ms()
        acks = self._ask()
        try:
            self._write(self._handed, acks)
        except _NO_ANSWER:
            raise
        except TxnLogError as error:
            if again:  # says nothing of the first try, which may have counted, or still be under way
                self._settle()
                return False
            self._asked = False  # nothing of it happened
            if isinstance(error, StaleSegmentError):  # its producer writes to another one by itself
                return False
            raise
        return True

    def _write(self, handed: Mapping[Sender, Handed], acks: list[Acknowledgement]) -> None:
        appends = [(each.producer, each.entries) for each in handed.values()]
        txn, appended = self._stub.write_transaction(_ms(self.timeout), appends, acks)
        self._begun(txn)  # first: from here on what waits can be registered once more, by its id
        for sender, of_sender in zip(list(handed), appended, strict=True):
            sender.take_back(self, of_sender)
            self._handed.pop(sender)
        if any(of_sender.needs_copies for of_sender in appended):
            raise UnavailableError(
                "The transaction is committed, and has too few copies yet for readers to see it.",
                "Call commit() again when all roots can be written; `txnlog roots list` tells which can't.",
            )

    def _find_out(self) -> bool:
        """Have an id, if a commit in one call had no answer, see ``_settle``; return True."""
        with self._beginning:
            if self.is_unanswered:
                self._settle()
        return True

    def _settle(self) -> None:
        """Find out if a commit in one call counted, or else see to it that it never does; then the id is known.

        What it had to write is written under a transaction that is begun for that, and stays open. If the service
        refuses that, since it is stored elsewhere, the commit counted. Else the commit is refused from now on, if it is
        still under way: it counts wholly or not at all, so one entry that it can't have is enough.
        """
        for handed in self._handed.values():
            try:
                self._append_instead(handed)
            except TopicNotFoundError:  # nobody can tell by these
                continue
            except (ProducerFencedError, StaleSegmentError):  # they can't be registered any more, by no call
                break
            except InvalidArgumentError:
                self._learn_from_commit()
                return
            break
        self._begun(self._begin_instead())

    def _begin_instead(self) -> TxnId:
        if self._instead is None:
            self._instead = self._stub.begin_transaction(max(_ms(self.timeout), _SETTLE_MS))
        return self._instead

    def _append_instead(self, handed: Handed) -> None:
        try:
            self._stub.append(handed.producer, self._begin_instead(), handed.entries)
        except TransactionEndedError:  # its time was up before it had them
            self._instead = None
            self._stub.append(handed.producer, self._begin_instead(), handed.entries)

    def _learn_from_commit(self) -> None:
        """Learn the id of a transaction that is known to be committed, and the ids of its messages."""
        self._stub.end_transaction(self._begin_instead(), commit=False)
        self._instead = None
        for sender, handed in list(self._handed.items()):
            try:
                self._write({sender: handed}, [])  # a repetition
            except TopicNotFoundError:
                del self._handed[sender]
                sender.discard(self)

    def _ask(self) -> list[Acknowledgement]:
        """Record that a commit was requested; return the acknowledgements."""
        with self._lock:
            acks = [ack for consumer, batches in self._consumed.items() for ack in consumer._consumed(batches)]
            self._asked = True
            return acks

    def _begun(self, txn: TxnId) -> None:
        _HANDLES[self._stub, txn] = self
        self._id = txn
        self._rim.what = self._name

    def _age_ms(self) -> int:
        """Return how long ago it was begun, or raise TXN_TIMED_OUT."""
        age = self._clock() - self._since
        if age >= self.timeout:
            raise TransactionTimedOutError(
                f"The transaction's timeout of {self.timeout:g} s had passed before anything of it was written.",
                "Begin a new transaction, with a longer timeout if the work takes that long.",
            )
        return int(age * 1000)

    @property
    def _name(self) -> str:
        return "Transaction" if self._id is None else f"Transaction {self._id}"

    def _discard(self) -> None:
        for sender in list(self._senders):
            sender.discard(self)

    def _was_begun(self) -> bool:
        """True if the service knows of it; if not it never will, since it is aborted."""
        with self._beginning:
            if self._id is None:
                self._end = "aborted"
            return self._id is not None

    def _give_back(self) -> None:
        while self._consumed:
            consumer, batches = next(iter(self._consumed.items()))
            consumer._not_consumed(batches)
            del self._consumed[consumer]

    def _join(self, sender: Sender, producer: object) -> None:
        self._rim.check()
        self._check_log(sender.stub, "producer")
        with self._lock:
            self._check_takes("take more messages")
            self._senders[sender] = producer

    def _reopen(self, ending: str, other: str | None = None) -> None:
        """Forget a failed end, or record the other one."""
        with self._lock:
            if self._ending == ending:
                self._ending = other

    def _check_has_no_end(self) -> None:
        """Raise unless it may be begun."""
        if self._end is not None:
            raise TransactionEndedError(
                "The transaction was aborted before anything of it was written, and has no id.", "Begin a new one."
            )
        if self._asked:
            raise UnavailableError(
                "The transaction's commit had no answer, which would tell its id.", "Call commit() or abort() again."
            )

    def _check_not_aborting(self) -> None:
        if self._end == "aborted":
            raise TransactionEndedError(f"{self._name} was aborted and can't be committed.", "Begin a new one.")
        if self._ending == "aborted" and self._end is None:
            raise TransactionEndedError(
                f"{self._name} is being aborted and can't be committed.", "Call abort() again to complete it."
            )

    def _check_takes(self, wish: str) -> None:
        self._rim.check()
        if self._end is not None:
            raise TransactionEndedError(f"{self._name} is {self._end} and can't {wish}.", "Begin a new one.")
        if self._ending is not None:
            how, call = ("committed", "commit()") if self._ending == "committed" else ("aborted", "abort()")
            raise TransactionEndedError(
                f"{self._name} is being {how} and can't {wish}.", f"Call {call} again to complete it."
            )

    def _check_log(self, other: MetadataStub, what: str) -> None:
        if not self._stub.is_same_log(other):
            raise InvalidArgumentError(
                f"The {what} is of another log than the transaction.",
                "A transaction spans topics of one log; begin one in each.",
            )

    def _ended(self, how: str) -> None:
        self._end = how
        self._senders.clear()
        self._consumed.clear()


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _fits_one_call(handed: Collection[Handed]) -> bool:
    """True if entries can be registered together with the commit: some, not too many, and without gaps.

    Numbers that are left out between those of a producer's entries may be stored as other messages: then the service
    can't tell that these are new.
    """
    of_each = [each.entries for each in handed]
    return 0 < sum(map(len, of_each)) <= _MOST_ENTRIES and all(
        one.base_sequence + one.messages == other.base_sequence
        for entries in of_each
        for one, other in pairwise(entries)
    )


_FAILED = "It may be committed, wholly or not at all; log.transaction(id) shows the outcome if it has an id."
_SETTLE_MS = 60_000
"""So long a transaction lives at least that is begun to find out what came of another one."""
_NO_ANSWER = (UnavailableError, InternalError)
"""What was asked for may have been done all the same."""
_MOST_ENTRIES = 1_000
"""So many are written in one call at most: what is that large needn't save calls."""
_HANDLES: weakref.WeakValueDictionary[tuple[MetadataStub, TxnId], Transaction] = weakref.WeakValueDictionary()


def handle_of(stub: MetadataStub, txn: TxnId) -> Transaction | None:
    """Return the transaction of that id, if it was begun with the same log by this process and takes messages.

    One that has ended is the service's to refuse.
    """
    found = _HANDLES.get((stub, txn))
    return found if found is not None and found._ending is None else None
