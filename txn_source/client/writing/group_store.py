"""Storing what a producer has gathered: entries are cut, written to segments, synced, and only then registered."""

from __future__ import annotations

import pyarrow as pa

from txn_source.client.writing.copy_keeper import CopyKeeper
from txn_source.client.writing.gathered import Gathered
from txn_source.client.writing.group import Forgotten, Group, Owner
from txn_source.client.writing.losses import Losses
from txn_source.client.writing.receipts import Receipts
from txn_source.client.writing.segment_files import EntryFiles
from txn_source.client.writing.transaction import Transaction
from txn_source.client.writing.uploads import Safe, Upload
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.entry import Appended, NewEntry, OpenedProducer
from txn_source.model.errors import InternalError, SchemaMismatchError, StaleSegmentError, TxnLogError, UnavailableError
from txn_source.model.position import Position
from txn_source.model.transaction import TxnId
from txn_source.storage.encoding_turn import encoding_turn

_UNWRITABLE = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow raises of data that it can't write."""
_REWRITES = 3
"""So often a group is written to another segment if garbage collection, an offload or a trim took its segment."""
_LOOK_S = 10.0


class GroupStore:
    """Takes groups through their steps, up to the receipt or to the note of their loss.

    A call that was interrupted is repeated, and goes on from the step that each group has come to.
    """

    def __init__(
        self,
        stub: MetadataStub,
        producer: OpenedProducer,
        files: EntryFiles,
        losses: Losses,
        copies: CopyKeeper,
    ) -> None:
        self._stub = stub
        self.producer = producer
        self.files = files
        self._copies = copies
        self._losses = losses
        self._sequence = 0
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

    def store(self, gathered: Gathered, keep: Transaction | None = None, *, wait: bool = True) -> None:
        """Write all groups, and register them but for those of a transaction to keep.

        What fails for good is noted as lost; what couldn't be registered for now stays in the queue, and is registered
        next time. Without ``wait``, what isn't safe yet stays there, too, with all that comes behind it.
        """
        gathered.roll_back()
        self._drop_failed(gathered)
        if any(group.needs_copies for group in gathered.queue):
            self.settle(gathered, keep)
        if all(group.entries is None and group.under_way is None for group in gathered.queue):
            self.files = self._copies.current(self.files)
        gathered.seal()
        self._losses.unavailable = None
        with encoding_turn(gathered.waiting_bytes):
            for group in list(gathered.queue):
                if group.cut is None:
                    self._cut(gathered, group)
        self._write(gathered, [g for g in gathered.queue if g.entries is None and g.under_way is None])
        self.settle(gathered, keep, wait=wait)
        gathered.written()

    def settle(self, gathered: Gathered, keep: Transaction | None = None, *, wait: bool = False) -> None:
        """Register, in their order, the groups whose bytes are safe; with ``wait``, wait for them."""
        self._first = None
        self._copies.tell(self.files)
        for group in list(gathered.queue):
            if group.entries is None and group.under_way is not None:
                entries, upload = group.under_way
                if not wait and not upload.done:
                    self._first = upload
                    break
                self._await(gathered, group, entries, upload)
        self._register_all(gathered, keep)
        self.files.retain(lambda: [e for g in gathered.queue for e in g.entries or (g.under_way or ((),))[0]])

    def _await(self, gathered: Gathered, group: Group, entries: list[NewEntry], upload: Upload) -> None:
        try:
            upload.wait()
        except UnavailableError as error:
            group.under_way = None  # it is written once more with the next flush
            self._losses.note_unavailable(error)
            gathered.alarm = True
        except TxnLogError as error:
            self._lose(gathered, group, error)
        else:
            group.entries = self.files.placed(entries)

    def close(self) -> None:
        """Close the segments."""
        self.files.close()

    def _cut(self, gathered: Gathered, group: Group) -> None:
        """Give a group's messages their entries and sequences. What Arrow can't take is lost; the rest isn't."""
        cut = []
        sequence = self._sequence
        try:
            for partition, buffer in group.buffers.items():
                for batch in buffer.entries():
                    cut.append((partition, sequence, batch))
                    sequence += batch.num_rows
        except MemoryError:
            raise
        except _UNWRITABLE as error:
            self._lose(gathered, group, _unfit(error))
            return
        if not cut:
            gathered.queue.remove(group)
            return
        self._sequence = sequence  # first: an interrupt may leave numbers out, but never give one twice
        group.cut = cut
        for buffer in group.buffers.values():
            buffer.clear()

    def _write(self, gathered: Gathered, groups: list[Group]) -> None:
        """Write the groups' bytes and sync them once for each segment; if that fails, find out for which."""
        try:
            self._append(groups)
        except MemoryError:
            raise
        except (TxnLogError, *_UNWRITABLE) as error:
            self.files.close()
            if len(groups) > 1:
                for group in groups:
                    self._write(gathered, [group])
                return
            self._lose(gathered, groups[0], error if isinstance(error, TxnLogError) else _unfit(error))

    def _append(self, groups: list[Group]) -> None:
        """Write the groups' bytes, and begin to make them safe; only when they are the groups get ``entries``."""
        append = self.files.append
        written = []
        for group in groups:
            assert group.cut is not None
            written.append([append(*entry) for entry in group.cut])
        upload = self.files.start()
        for group, entries in zip(groups, written, strict=True):
            if isinstance(upload, Safe):
                group.entries = entries
            else:
                group.under_way = entries, upload

    def registered(self, gathered: Gathered, group: Group, positions: list[Position]) -> None:
        """Let go of a group that was registered, and keep its ids."""
        self._note_positions(group, positions)
        assert group.receipt is not None
        self.receipts.add(group.receipt)
        gathered.queue.remove(group)

    def lacks_copies(self, gathered: Gathered, group: Group, positions: list[Position]) -> UnavailableError:
        """Keep a group that is registered and lacks copies until it has them; return what is to be told."""
        self._note_positions(group, positions)
        group.needs_copies = True
        gathered.alarm = True
        return self._copies.lacking(group.messages)

    def complete(self, groups: list[Group]) -> None:
        """Copy what isn't registered yet once more where it lacks copies."""
        for group in groups:
            if group.entries is not None and self.files.lack_copies(group.entries):
                group.entries = self.files.complete(group.entries)

    def _note_positions(self, group: Group, positions: list[Position]) -> None:
        if group.receipt is None:
            self._follow(group, positions)
            group.receipt = group.receipt_of(positions)

    def _register_all(self, gathered: Gathered, keep: Transaction | None) -> None:
        for group in list(gathered.queue):
            owner = group.txn  # from here on it isn't forgotten
            if isinstance(owner, Forgotten):
                gathered.queue.remove(group)
                continue
            if isinstance(owner, Transaction) and (owner.is_unanswered or owner is keep):
                continue
            if group.entries is None:
                return  # what comes behind it waits, too: a producer's entries are registered in their order
            positions: list[Position] = []
            if group.receipt is None or group.needs_copies:
                try:
                    if group.needs_copies and group.entries is not None:
                        self._copies.make(self.files, group.entries)
                    appended = self._register(group, owner)
                    if appended.needs_copies and not self.files.lack_copies(group.entries or []):
                        self._copies.make(self.files, group.entries or [])  # the policy asks for more by now
                        appended = self._register(group, owner)
                    gathered.learn(appended.partitions)
                    positions = appended.positions
                    if appended.needs_copies:
                        raise self.lacks_copies(gathered, group, positions)
                    group.needs_copies = False
                except UnavailableError as error:
                    self._losses.note_unavailable(error)
                    gathered.alarm = True
                    return
                except TxnLogError as error:
                    self._lose(gathered, group, error)
                    continue
            self.registered(gathered, group, positions)

    def _register(self, group: Group, owner: Owner) -> Appended:
        assert group.entries is not None
        txn = owner.id if isinstance(owner, Transaction) else owner
        for _ in range(_REWRITES):
            try:
                return self._append_entries(txn, group.entries or [])
            except StaleSegmentError:  # we kept a segment open while its ledgers were offloaded or trimmed
                self._rewrite(group)
        return self._append_entries(txn, group.entries or [])

    def _rewrite(self, group: Group) -> None:
        """Write a group to another segment: none of its entries was registered, so other ones may be sent."""
        group.entries = group.under_way = None
        self.files.close()
        self._append([group])
        if group.under_way is not None:
            entries, upload = group.under_way
            upload.wait()
            group.entries = self.files.placed(entries)

    def _append_entries(self, txn: TxnId | None, entries: list[NewEntry]) -> Appended:
        try:
            return self._stub.append(self.producer, txn, entries)
        except InternalError:  # it may have counted; then the repetition is answered
            return self._stub.append(self.producer, txn, entries)

    def _follow(self, group: Group, positions: list[Position]) -> None:
        assert group.cut is not None
        for (partition, _, _), position in zip(group.cut, positions, strict=True):
            self.files.follow(partition, position.ledger_id)

    def _lose(self, gathered: Gathered, group: Group, error: TxnLogError) -> None:
        group.failed = error  # from here on it is lost, and is never stored by a later try
        self._drop_failed(gathered)

    def _drop_failed(self, gathered: Gathered) -> None:
        """Note what failed groups have lost, and let go of them."""
        for group, error in [(g, g.failed) for g in gathered.queue if g.failed is not None]:
            gathered.alarm = True
            if not isinstance(owner := group.txn, Forgotten):
                self._losses.note(owner, error, group.messages)
            gathered.queue.remove(group)


def _unfit(error: Exception) -> SchemaMismatchError:
    return SchemaMismatchError(f"Messages that were sent can't be stored: {error}.", "Send them in smaller parts.")
