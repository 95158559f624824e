"""The folders that a partition lies in, and the segments that are in them at a moment.

A broker may roll, clean, delete and move segments meanwhile, so they can be listed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow.fs as fs

from txn_source.foreign.kafka.aiven import AivenFiles
from txn_source.foreign.kafka.checkpoints import LEADER_EPOCHS_FILE, parse_leader_epochs
from txn_source.foreign.kafka.leader_epochs import LeaderEpochs, newest, segment_epochs
from txn_source.foreign.kafka.producer_states import SnapshotFile
from txn_source.foreign.kafka.segment_list import SegmentList
from txn_source.foreign.kafka.segments import PlainFiles, Segment, read_file
from txn_source.model.errors import LogNotFoundError

ID = r"[A-Za-z0-9_-]{22}"
BROKER_FILE = re.compile(r"(?P<base>[0-9]{20})\.(?P<kind>log|index|timeindex|txnindex|snapshot|log\.swap)")
REMOTE_FILE = re.compile(
    rf"(?P<base>[0-9]{{20}})-(?P<segment>{ID})"
    r"\.(?P<kind>log|index|timeindex|txnindex|snapshot|leader_epoch_checkpoint|indexes|rsm-manifest)"
)
_SWAPPED = "log.swap"
_ASKED = 32
"""Of so many remote segments, the last ones, the leader epochs are read."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of a file system."""

    system: fs.FileSystem
    path: str

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class PartitionFolders:
    """The folders of one partition."""

    local: tuple[Folder, ...]
    remote: tuple[tuple[Folder, bool], ...]
    """True: as Aiven's plugin lays it out."""
    compacted: bool
    """Brokers noted that they cleaned it."""

    def listed(self, relist: Callable[[], SegmentList | None]) -> tuple[SegmentList, list[SnapshotFile]]:
        """Return the segments that are there now, and the states of producers on brokers' disks.

        Args:
            relist: what the list asks when a segment of it has gone.
        """
        segments: list[Segment] = []
        snapshots: list[SnapshotFile] = []
        several = len(self.local) + len(self.remote) > 1 or bool(self.remote)
        own = [_epochs(folder) if several else None for folder in self.local]
        remote = [segment for folder, aiven in self.remote for segment in _remote(folder, aiven)]
        remote.sort(key=lambda segment: segment.base_offset)
        asked = [segment_epochs(segment) for segment in remote[-_ASKED:]]
        epochs = newest([*own, *asked])
        for folder, entries in zip(self.local, own, strict=True):
            some, states = _local(folder)
            until = _divergence(entries, epochs)
            segments += some if until is None else _sound_part(some, until)
            snapshots += [state for state in states if until is None or state.offset <= until]
        segments += remote[:-_ASKED]
        for segment, entries in zip(remote[-_ASKED:], asked, strict=True):
            until = _divergence(entries, epochs)
            if until is None or segment.base_offset < until:
                segments.append(segment)
        return SegmentList(segments, epochs, compacted=self.compacted, relist=relist), snapshots


def _epochs(folder: Folder) -> list[tuple[int, int]] | None:
    text = text_of(folder, LEADER_EPOCHS_FILE)
    return None if text is None else parse_leader_epochs(text)


def _divergence(own: list[tuple[int, int]] | None, epochs: LeaderEpochs | None) -> int | None:
    return LeaderEpochs(tuple(own)).divergence(epochs) if own and epochs is not None else None


def _sound_part(segments: Sequence[Segment], until: int) -> list[Segment]:
    """Return what a copy has below the offset at which it follows another leader."""
    sound = sorted((of for of in segments if of.base_offset < until), key=lambda of: of.base_offset)
    return sound[:-1] + [replace(of, diverges=True) for of in sound[-1:]]


def files_of(folder: Folder) -> Sequence[fs.FileInfo]:
    """Return the files in a folder; none if it isn't there."""
    try:
        infos: list[fs.FileInfo] = folder.system.get_file_info(fs.FileSelector(folder.path, allow_not_found=True))
    except OSError as error:
        raise _not_listed(folder, error) from None
    return [info for info in infos if info.type == fs.FileType.File]


def subfolders(folder: Folder) -> Iterator[Folder]:
    """Yield the folders in a folder, in the order of their names, or raise LOG_NOT_FOUND."""
    try:
        infos = folder.system.get_file_info(fs.FileSelector(folder.path))
    except FileNotFoundError:
        raise LogNotFoundError(f"There is no folder {folder.path}.", "Check the path.") from None
    except OSError as error:
        raise _not_listed(folder, error) from None
    for info in sorted(infos, key=lambda info: info.path):
        if info.type == fs.FileType.Directory:
            yield Folder(folder.system, info.path)


def text_of(folder: Folder, name: str) -> str | None:
    """Return a small text file; None if it isn't there."""
    data = read_file(folder.system, f"{folder.path.rstrip('/')}/{name}")
    return None if data is None else data.decode(errors="replace")


def _not_listed(folder: Folder, error: OSError) -> LogNotFoundError:
    return LogNotFoundError(f"{folder.path} can't be listed: {error}.", "Check that it may be read.")


def _local(folder: Folder) -> tuple[list[Segment], list[SnapshotFile]]:
    """Return the segments of a folder of a broker, and the snapshots in it. What is being deleted is left out.

    Where a cleaned segment is about to take the place of others, it has all that they have: a broker that starts on
    such a folder takes it, too.
    """
    files: dict[int, dict[str, fs.FileInfo]] = {}
    for info in files_of(folder):
        if match := BROKER_FILE.fullmatch(info.base_name):
            files.setdefault(int(match["base"]), {})[match["kind"]] = info
    segments, snapshots = [], []
    for base, kinds in files.items():
        if "snapshot" in kinds:
            snapshots.append(SnapshotFile(base, folder.system, kinds["snapshot"].path))
        if "log" in kinds:
            segments.append(_plain(folder, base, kinds, remote=False))
        elif _SWAPPED in kinds:
            swapped = kinds[_SWAPPED]
            files_there = PlainFiles(folder.system, swapped.path, {})
            segments.append(Segment(base, files_there, folder.path, False, swapped.size, reaches_over=True))
    return segments, snapshots


def _remote(folder: Folder, aiven: bool) -> list[Segment]:
    """Return the remote segments of a folder. A copy that has no log, or of Aiven's no manifest, was never finished."""
    files: dict[tuple[int, str], dict[str, fs.FileInfo]] = {}
    for info in files_of(folder):
        if match := REMOTE_FILE.fullmatch(info.base_name):
            files.setdefault((int(match["base"]), match["segment"]), {})[match["kind"]] = info
    segments = []
    for (base, _), kinds in files.items():
        if "log" in kinds and aiven and "rsm-manifest" in kinds:
            manifest, indexes = kinds["rsm-manifest"].path, kinds.get("indexes")
            source = AivenFiles(folder.system, kinds["log"].path, manifest, None if indexes is None else indexes.path)
            segments.append(Segment(base, source, folder.path, True, kinds["log"].size))
        elif "log" in kinds and not aiven:
            segments.append(_plain(folder, base, kinds, remote=True))
    return segments


def _plain(folder: Folder, base: int, kinds: dict[str, fs.FileInfo], *, remote: bool) -> Segment:
    others = {kind: info.path for kind, info in kinds.items() if kind not in ("log", _SWAPPED)}
    if not remote:
        others.pop("snapshot", None)  # it is the state at the beginning, and not of one segment alone
    return Segment(base, PlainFiles(folder.system, kinds["log"].path, others), folder.path, remote, kinds["log"].size)
