"""The places of a log: roots and targets of offloads, whether they are there, whose they are, and their room."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from txn_source.model.topic_name import TopicName
from txn_source.upkeep.doctor.codes import Severity
from txn_source.upkeep.doctor.findings import Finding, finding
from txn_source.upkeep.doctor.subject import Subject

_LOW_SHARE, _LOW_BYTES = 0.05, 4 << 30
_FULL_SHARE, _FULL_BYTES = 0.01, 256 << 20


def check_roots(subject: Subject) -> Iterator[Finding]:
    """Look if all hot roots are there, and this log's."""
    if not subject.has_storage:
        return
    for place, why in subject.unreachable.values():
        code = "root-of-another-log" if "another log" in why else "root-unreachable"
        uri = str(place.root).partition("?")[0]
        yield finding(code, f"root {place.name}", f"The root {place.name} at {uri}: {why}.", root=place.name, uri=uri)


def check_targets(subject: Subject) -> Iterator[Finding]:
    """Look if the places that topics are offloaded to can be listed."""
    for target in subject.targets:
        why = target.why_unreachable()
        if why:
            shown = target.shown
            fact = f"The place {shown}, where {_of(target.topics)} offloaded to, can't be listed: {why}."
            yield finding("offload-target-unreachable", shown, fact, topic=target.topics[0].short, uri=shown)


def _of(topics: tuple[TopicName, ...]) -> str:
    return f"topic {topics[0].short} is" if len(topics) == 1 else f"{len(topics)} topics are"


def check_disks(subject: Subject) -> Iterator[Finding]:
    """Look at the room on the disks of folders."""
    for folder, names in sorted(_folders(subject).items()):
        size, free = subject.surroundings.disk(folder)
        if free >= min(size * _LOW_SHARE, _LOW_BYTES):
            continue
        full = free < min(size * _FULL_SHARE, _FULL_BYTES)
        fact = f"The disk of {folder} ({', '.join(names)}) has {free:,} bytes free of {size:,}."
        yield finding(
            "disk-low", str(folder), fact, Severity.ERROR if full else None, path=str(folder), free=free, size=size
        )


def check_permissions(subject: Subject) -> Iterator[Finding]:
    """Look if this user may read and write where the log lies."""
    may = subject.surroundings.may
    for folder in sorted(_folders(subject)):
        below = [folder, *(folder / name for name in ("segments", "tiered", "metadata.db", "metadata.db-wal"))]
        refused: set[Path] = set()
        for path in below:
            if not path.exists():
                continue
            of_folder = os.X_OK if path.is_dir() else 0
            if not may(path, os.R_OK | of_folder):
                yield finding("not-readable", str(path), f"This user may not read {path}.", path=str(path))
            elif not may(path, os.W_OK | of_folder):
                refused.add(path)
                if folder not in refused - {path}:  # of what lies in a folder that is told, nothing more
                    yield finding("not-writable", str(path), f"This user may not write {path}.", path=str(path))


def unreadable_files(subject: Subject) -> Iterator[Finding]:
    """Tell of the files that checks came to and that this user may not read."""
    for kind, files in sorted(subject.unreadable.items()):
        path, why = min(files.items())
        others = f", and {len(files) - 1:,} more {kind}" if len(files) > 1 else ""
        fact = f"This user may not read {path}{others}: {why}. Nothing is known of what is in them."
        yield finding("not-readable", kind, fact, path=path, files=len(files))


def _folders(subject: Subject) -> dict[Path, list[str]]:
    """Return the folders that the log has, and what each is to it."""
    found: dict[Path, list[str]] = {}
    if subject.has_storage:
        for place in subject.places:
            if isinstance(place.root, Path):
                found.setdefault(place.root, []).append(f"root {place.name}")
    for target in subject.targets:
        folder = target.folder
        if folder is None or not folder.is_dir() or any(folder.is_relative_to(root) for root in found):
            continue
        found.setdefault(folder, []).append("offloads")
    return found
