"""Removing segment files that nothing refers to: of crashed producers, failed jobs and deleted topics."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from txn_source.metadata.stub import MetadataStub
from txn_source.model.errors import InvalidArgumentError
from txn_source.storage.segment import stored_segments

DEFAULT_AGE_S = 24 * 3600.0
"""A file counts as abandoned after this: longer than any producer or job needs from writing to registering."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """What a collection removed, or would remove: paths relative to the root, and their size."""

    paths: tuple[str, ...]
    bytes: int


def collect_garbage(stub: MetadataStub, root: Path, older_than_s: float, *, dry_run: bool) -> Garbage:
    """Remove files that no entry was ever registered from and that were last written so many seconds ago."""
    if older_than_s < 0:
        raise InvalidArgumentError(f"{older_than_s:g} s is not an age.", "Use 0 or more.")
    oldest = time.time() - older_than_s
    found = [(path, state.st_size) for path, state in stored_segments(root) if state.st_mtime <= oldest]
    known = set(stub.list_segments())  # after the files were listed: one registered meanwhile is kept
    unused = [(path, size) for path, size in found if path not in known]
    if not dry_run:
        for path, _ in unused:
            (root / path).unlink(missing_ok=True)
    return Garbage(tuple(sorted(path for path, _ in unused)), sum(size for _, size in unused))
