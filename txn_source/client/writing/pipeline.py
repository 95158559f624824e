"""The pipeline of a producer's parcels: cut into entries, write to segments, sync, register."""

from __future__ import annotations

import weakref

import pyarrow as pa

from txn_source.client.writing.copy_keeper import CopyKeeper
from txn_source.client.writing.entry_files import EntryFiles
from txn_source.client.writing.losses import Losses
from txn_source.client.writing.message_ids import Receipts
from txn_source.client.writing.outbox import Outbox
from txn_source.client.writing.parcel import Owner, Parcel
from txn_source.client.writing.partitions import Partitions
from txn_source.client.writing.transaction import Handed, Transaction
from txn_source.client.writing.uploads import Safe, Upload, placed
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.entry import Appended, NewEntry, OpenedProducer
from txn_source.model.errors import (
    InternalError,
    InvalidArgumentError,
    ProducerFencedError,
    SchemaMismatchError,
    StaleSegmentError,
    TopicNotFoundError,
    TransactionEndedError,
    TransactionNotFoundError,
    TxnLogError,
    UnavailableError,
)
from txn_source.model.position import Position
from txn_source.model.transaction import TxnId
from txn_source.process.rim import Rim
from txn_source.process.shield import held
from txn_source.storage.encoding_turn import encoding_turn

_UNWRITABLE = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow raises of data that it can't write."""
_REWRITES = 3
"""So often a parcel is written to another segment if garbage collection, an offload or a trim took its segment."""
_LOOK_S = 10.0
_FINAL = (
    TopicNotFoundError,
    ProducerFencedError,
    InvalidArgumentError,
    TransactionEndedError,
    TransactionNotFoundError,
)
"""After these refusals a parcel can never be registered; after other failures it is kept and tried again."""


class Pipeline:
    """Moves parcels from state to state, up to the receipt or the recorded loss: a transaction's ``Sender``.

    Its producer's rim guards it, and lets one call in at a time.
    """

    def __init__(
        self,
        stub: MetadataStub,
        producer: OpenedProducer,
        files: EntryFiles,
        partitions: Partitions,
        outbox: Outbox,
        losses: Losses,
        copies: CopyKeeper,
        rim: Rim,
    ) -> None:
        self.stub = stub
        self.producer = producer
        self.files = files
        self.partitions = partitions
        self.rim = rim
        self._outbox = outbox
        self._copies = copies
        self._losses = losses
        self._sequence = 0
        self._lent: weakref.WeakKeyDictionary[Transaction, list[Parcel]] = weakref.WeakKeyDictionary()
        self.receipts = Receipts()
        """Of what was registered; whoever takes the ids puts an empty one in its place."""
        self._first: Upload | None = None
        """What is waited for first."""

    @property
    def has_arrived(self) -> bool:
        """True if something that was under way is to be registered."""
        first = self._first
        return first is not None and first.done

    @property
    def next_look_s(self) -> float | None:
        """In how many seconds to look again at the latest; None: nothing is under way. Its end wakes the thread, which
        keeps the producer alive until then."""
        return None if self._first is None else _LOOK_S

    def store(self, keep: Transaction | None = None, *, wait: bool = True) -> None:
        """Write all parcels, and register all but those of the transaction ``keep``.

        A parcel that can never be registered is recorded as lost. A parcel that can't be stored now stays in the queue
        for the next call. Without ``wait``, parcels under way stay there, too, with all parcels behind them.
        """
        if any(parcel.needs_copies for parcel in self._outbox.queue):
            self.settle(keep)
        if all(parcel.entries is None and parcel.under_way is None for parcel in self._outbox.queue):
            self.files = self._copies.current(self.files)
        self._outbox.seal()
        self._losses.kept = None
        with encoding_turn(self._outbox.waiting_bytes):
            for parcel in list(self._outbox.queue):
                if parcel.cut is None:
                    self._cut(parcel)
        self._write()
        self.settle(keep, wait=wait)
        self._outbox.written()

    def settle(self, keep: Transaction | None = None, *, wait: bool = False) -> None:
        """Register, in their order, the parcels whose bytes are safe; with ``wait``, wait for them."""
        self._first = None
        for parcel in list(self._outbox.queue):
            if parcel.entries is None and parcel.under_way is not None:
                entries, upload = parcel.under_way
                if not wait and not upload.done:
                    self._first = upload
                    break
                self._await(parcel, entries, upload)
        self._register_all(keep)

    def _await(self, parcel: Parcel, entries: list[NewEntry], upload: Upload) -> None:
        try:
            parcel.place(entries, upload)
        except TxnLogError as error:
            parcel.under_way = None  # it is written once more with the next flush
            self._keep(error)

    def close(self) -> None:
        """Close the segments."""
        self.files.close()

    def _cut(self, parcel: Parcel) -> None:
        """Give a parcel's messages their entries and sequences. What Arrow can't take is lost; the rest isn't."""
        cut = []
        sequence = self._sequence
        try:
            for partition, buffer in parcel.buffers.items():
                for batch in buffer.entries():
                    cut.append((partition, sequence, batch))
                    sequence += batch.num_rows
        except MemoryError:
            raise
        except _UNWRITABLE as error:
            self._lose(parcel, _unfit(error))
            return
        if not cut:
            self._outbox.queue.remove(parcel)
            return
        self._sequence = sequence
        parcel.cut = cut
        for buffer in parcel.buffers.values():
            buffer.clear()

    def _write(self) -> None:
        """Write the bytes of all cut parcels, and start to make them safe."""
        try:
            written = [
                (parcel, entries)
                for parcel in list(self._outbox.queue)
                if parcel.waits and (entries := self._appended(parcel)) is not None
            ]
            upload = self.files.start()
        except TxnLogError as error:
            self.files.close()  # their unsynced entries are written again, to other files
            self._keep(error)
            return
        for parcel, entries in written:
            if isinstance(upload, Safe):
                parcel.place(entries, upload)
            else:
                parcel.under_way = entries, upload

    def _appended(self, parcel: Parcel) -> list[NewEntry] | None:
        """Write a parcel's bytes; return None if Arrow can't write them, after recording the loss of this parcel."""
        assert parcel.cut is not None
        try:
            return [self.files.append(*entry) for entry in parcel.cut]
        except (MemoryError, TxnLogError):
            raise
        except _UNWRITABLE as error:
            self._lose(parcel, _unfit(error))
            return None

    # For transactions

    def register(self, txn: Transaction) -> None:
        """Return when all messages of a transaction are registered; else raise why not, also if ``flush`` has said so
        before: with some of them lost it can only be aborted."""
        with self.rim.changes():
            self.store()
            self._losses.raise_of(txn)
            if self._outbox.of(txn):
                self._losses.raise_kept()

    def hand_over(self, txn: Transaction) -> Handed | None:
        """Register all other messages, and give up a transaction's parcels, which are safe; None: there are none.

        The transaction holds the rim for this and the next call.
        """
        self.store(keep=txn)
        self._losses.raise_of(txn)
        self._losses.raise_kept()
        parcels = self._outbox.of(txn)
        if not parcels:
            return None
        assert all(parcel.entries is not None for parcel in parcels)  # else a commit would have less than all
        for parcel in parcels:
            if self._lacks(parcel) and parcel.upload is not None:
                parcel.entries = placed(parcel.entries or (), parcel.upload.complete())
        self._outbox.discard(txn)
        for parcel in parcels:
            parcel.txn = None  # else the transaction would keep itself alive
        self._lent[txn] = parcels
        entries = [entry for parcel in parcels for entry in parcel.entries or ()]
        return Handed(self.producer, entries, any(map(self._lacks, parcels)))

    def take_back(self, txn: Transaction, appended: Appended | None) -> None:
        """Take parcels that were handed over: they are registered, or wait again (None)."""
        parcels = self._lent.pop(txn)
        for parcel in parcels:
            parcel.txn = txn
        if appended is None:
            self._outbox.queue.extendleft(reversed(parcels))
            return
        self._outbox.learn(appended.partitions)
        positions = iter(appended.positions)
        for parcel in parcels:
            self._note_positions(parcel, [next(positions) for _ in parcel.entries or ()])
            if appended.needs_copies:
                self._outbox.queue.append(parcel)
                self._losses.keep(self._lacks_copies(parcel))
            else:
                self._settled(parcel)

    def discard(self, txn: Transaction) -> None:
        """Drop the unregistered messages of a transaction that is being aborted; a failed producer does so, too."""
        with held(), self.rim.lock:
            self._lent.pop(txn, None)
            self._outbox.discard(txn)
            self._losses.forget(txn)
            if not self._outbox.queue:
                self._losses.kept = None  # what it was about has gone

    @property
    def lent(self) -> int:
        """How many messages lie in transactions whose commit had no answer."""
        return sum(parcel.messages for parcels in list(self._lent.values()) for parcel in parcels)

    # Registering

    def _settled(self, parcel: Parcel) -> None:
        """Keep the ids of a registered parcel, which nobody else holds."""
        assert parcel.receipt is not None
        self.receipts.add(parcel.receipt)

    def _lacks_copies(self, parcel: Parcel) -> UnavailableError:
        """Keep a parcel that is registered and lacks copies until it has them; return what is to be told."""
        parcel.needs_copies = True
        self._outbox.alarm = True
        return self._copies.lacking(parcel.messages)

    def _lacks(self, parcel: Parcel) -> bool:
        """True if a written parcel has too few copies to be acknowledged, as far as that is known here."""
        return any(self.files.copies.lacks(entry.roots) for entry in parcel.entries or ())

    def _note_positions(self, parcel: Parcel, positions: list[Position]) -> None:
        if parcel.receipt is None:
            self._follow(parcel, positions)
            parcel.receipt = parcel.receipt_of(positions)

    def _register_all(self, keep: Transaction | None) -> None:
        for parcel in list(self._outbox.queue):
            owner = parcel.txn
            if keep is not None and owner is keep:
                continue
            if parcel.entries is None:
                return  # what comes behind it waits, too: a producer's entries are registered in their order
            try:
                if parcel.needs_copies:
                    self._copies.make(parcel, lacks=self._lacks(parcel))
                appended = self._register(parcel, owner)
                if appended.needs_copies and not self._lacks(parcel):
                    self._copies.make(parcel, lacks=False)  # the policy asks for more by now
                    appended = self._register(parcel, owner)
                self._outbox.learn(appended.partitions)
                self._note_positions(parcel, appended.positions)
                if appended.needs_copies:
                    raise self._lacks_copies(parcel)
            except _FINAL as error:
                self._lose(parcel, error)
            except TxnLogError as error:
                self._keep(error)
                return
            else:
                self._settled(parcel)
                self._outbox.queue.remove(parcel)

    def _register(self, parcel: Parcel, owner: Owner) -> Appended:
        assert parcel.entries is not None
        txn = owner.id if isinstance(owner, Transaction) else owner
        for _ in range(_REWRITES):
            try:
                return self._append_entries(txn, parcel.entries or [])
            except StaleSegmentError:  # we kept a segment open while its ledgers were offloaded or trimmed
                self._rewrite(parcel)
        return self._append_entries(txn, parcel.entries or [])

    def _rewrite(self, parcel: Parcel) -> None:
        """Write a parcel to another segment: none of its entries was registered, so other ones may be sent."""
        assert parcel.cut is not None
        parcel.entries = parcel.under_way = None
        self.files.close()
        entries = [self.files.append(*entry) for entry in parcel.cut]
        parcel.place(entries, self.files.start())

    def _append_entries(self, txn: TxnId | None, entries: list[NewEntry]) -> Appended:
        try:
            return self.stub.append(self.producer, txn, entries)
        except InternalError:  # it may have counted; then the repetition is answered
            return self.stub.append(self.producer, txn, entries)

    def _follow(self, parcel: Parcel, positions: list[Position]) -> None:
        assert parcel.cut is not None
        for (partition, _, _), position in zip(parcel.cut, positions, strict=True):
            self.partitions.follow(partition, position.ledger_id)

    def _lose(self, parcel: Parcel, error: TxnLogError) -> None:
        """Drop a parcel that can never be registered, and record the loss."""
        self._outbox.alarm = True
        self._losses.note(parcel.txn, error, parcel.messages)
        self._outbox.queue.remove(parcel)

    def _keep(self, error: TxnLogError) -> None:
        """Record why the waiting parcels can't be stored now."""
        self._outbox.alarm = True
        self._losses.keep(error)


def _unfit(error: Exception) -> SchemaMismatchError:
    return SchemaMismatchError(f"Messages that were sent can't be stored: {error}.", "Send them in smaller parts.")
