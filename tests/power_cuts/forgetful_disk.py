"""A disk that forgets, at a power cut, what wasn't synced.

``ForgetfulDisk`` watches a folder while a scenario runs. Between two calls of the file system it looks at what is there
and at what was synced, and notes the states in which the folder may come back if the power fails just then:

- a file has the bytes of its last ``fsync`` or ``fdatasync``; of what was written after it there may be all, a part,
  zeros, or nothing;
- a folder has the names of its last ``fsync``; each name that was made, renamed or removed after it may be as it was,
  as it is, or as it was in between, whatever became of the others;
- what lies in a folder that isn't there is gone.

This is what POSIX promises, and ALICE (Pillai et al., OSDI 2014) and CrashMonkey (Mohan et al., OSDI 2018) try. A file
system that promises more is not relied on: a synced file may lack its name. SQLite is trusted (it is in WAL mode, with
``synchronous=FULL``): the database comes back as of its last commit, if the folder that it is in does.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_DATABASE = "metadata.db"
_CALLS = ("mkdir", "rmdir", "open", "write", "replace", "rename", "link", "unlink", "remove")
_SYNCS = ("fsync", "fdatasync")
Tree = dict[str, bytes | None]
"""Files by their path in the folder that is watched; None is a folder."""


@dataclass(eq=False)
class _Node:
    """A file or folder: what was synced of it, and for a folder which values each name had since then."""

    inode: int
    names: dict[str, _Node] | None
    """Those of a folder as they are; None is a file."""
    synced_names: dict[str, _Node] = field(default_factory=dict)
    pending: dict[str, list[_Node | None]] = field(default_factory=dict)
    synced_bytes: bytes = b""
    bytes: bytes = b""

    def set(self, name: str, node: _Node | None) -> None:
        assert self.names is not None
        self.pending.setdefault(name, [self.synced_names.get(name)]).append(node)
        if node is None:
            del self.names[name]
        else:
            self.names[name] = node

    def sync(self) -> None:
        self.pending.clear()
        self.synced_names = dict(self.names or {})
        self.synced_bytes = self.bytes


@dataclass(frozen=True)
class CrashState:
    """What a power cut may leave: the files, the database in it, and what had been promised by then."""

    tree: tuple[tuple[str, bytes | None], ...]
    database: tuple[str, bytes] | None
    promises: tuple[Hashable, ...]
    after: str

    def build(self, folder: Path) -> None:
        """Make the folder as it came back."""
        folder.mkdir()
        for path, data in self.tree:
            if data is None:
                (folder / path).mkdir()
            else:
                (folder / path).write_bytes(data)
        if self.database is not None:
            (folder / self.database[0]).write_bytes(self.database[1])


class ForgetfulDisk:
    """Watches a folder, which itself is there for sure. A context manager.

    Args:
        folder: what is watched.
        most: how many states of one moment are looked at; of more, those that lose one thing or all but one, and a
            random choice of the others.
    """

    def __init__(self, folder: Path, most: int = 24) -> None:
        self.folder = folder
        self.states: dict[tuple[Any, ...], CrashState] = {}
        self.moments = 0
        self._most = most
        self._source = random.Random(0)
        self._top = _Node(0, {})
        self._known: dict[int, _Node] = {}
        self._promises: list[Hashable] = []
        self._database: tuple[str, bytes] | None = None
        self._watch: sqlite3.Connection | None = None
        self._version: object = None
        self._lock = threading.RLock()
        self._patch = pytest.MonkeyPatch()
        self._last: tuple[Any, ...] | None = None

    def __enter__(self) -> ForgetfulDisk:
        self._look("the beginning")
        self._top.sync()
        for name in _CALLS:
            self._patch.setattr(os, name, self._noticed(name, getattr(os, name)))
        for name in _SYNCS:
            self._patch.setattr(os, name, self._syncing(getattr(os, name)))
        return self

    def __exit__(self, *exc: object) -> None:
        self._patch.undo()
        if self._watch is not None:
            self._watch.close()

    def promise(self, *what: Hashable) -> None:
        """Note what the scenario was told to be safe; a power cut from now on must not break it."""
        with self._lock:
            self._look("an answer")
            self._promises += what
            self._cut("an answer")

    def _noticed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def noticed(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            finally:
                self._look(name)

        return noticed

    def _syncing(self, call: Callable[[int], None]) -> Callable[[int], None]:
        @functools.wraps(call)
        def syncing(fd: int) -> None:
            self._look("what is not synced")
            call(fd)
            with self._lock:
                node = self._known.get(os.fstat(fd).st_ino)
                if node is not None:
                    node.sync()
                self._look("a sync")

        return syncing

    def _look(self, after: str) -> None:
        """Take in what has changed, and note the states that a power cut may leave now."""
        with self._lock:
            seen: dict[int, _Node] = {}
            self._walk(self.folder, self._top, seen)
            self._known = seen
            self._look_at_database()
            self._cut(after)

    def _walk(self, path: Path, node: _Node, seen: dict[int, _Node]) -> None:
        assert node.names is not None
        try:
            found = {entry.name: entry for entry in os.scandir(path) if not entry.name.startswith(_DATABASE)}
            inodes = {name: entry.stat().st_ino for name, entry in found.items()}
        except FileNotFoundError:
            return  # it goes away just now
        seen[path.stat().st_ino] = node
        for name in list(node.names):
            if name not in found:
                node.set(name, None)
        for name, entry in found.items():
            child = node.names.get(name)
            if child is None or child.inode != inodes[name]:
                known = self._known.get(inodes[name])  # it was renamed
                child = known or _Node(inodes[name], {} if entry.is_dir() else None)
                node.set(name, child)
            if child.names is not None:
                self._walk(path / name, child, seen)
            else:
                seen[child.inode] = child
                child.bytes = (path / name).read_bytes()

    def _look_at_database(self) -> None:
        if self._watch is None:
            found = next(iter(self.folder.rglob(_DATABASE)), None)
            if found is None or not found.stat().st_size:
                return
            self._watch = sqlite3.connect(found, check_same_thread=False, isolation_level=None)
            self._database = (found.relative_to(self.folder).as_posix(), b"")
        assert self._database is not None
        version = self._watch.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._database = (self._database[0], self._watch.serialize())

    def _cut(self, after: str) -> None:
        choices = list(_choices(self._top, set()))
        now = (self._database, tuple(self._promises), [(id(c.node), c.name, c.values) for c in choices])
        if now == self._last:
            return
        self._last = now
        self.moments += 1
        for picked in self._picks([len(c.values) for c in choices]):
            chosen = {(id(c.node), c.name): c.values[i] for c, i in zip(choices, picked, strict=True)}
            tree: Tree = {}
            _put(self._top, "", chosen, tree)
            database = self._database
            if database is not None and str(Path(database[0]).parent) not in (".", *tree):
                database = None
            items = tuple(sorted(tree.items()))
            key = (items, database, tuple(self._promises))
            self.states.setdefault(key, CrashState(items, database, tuple(self._promises), after))

    def _picks(self, sizes: list[int]) -> Iterator[tuple[int, ...]]:
        """Yield which value of each choice is taken: 0 is that of the last sync, the last one is the newest."""
        if math.prod(sizes) <= self._most:
            yield from itertools.product(*(range(size) for size in sizes))
            return
        oldest, newest = tuple(0 for _ in sizes), tuple(size - 1 for size in sizes)
        yield oldest
        yield newest
        for base, other in ((newest, oldest), (oldest, newest)):
            for i in range(len(sizes)):
                yield (*base[:i], other[i], *base[i + 1 :])
        for _ in range(self._most):
            yield tuple(self._source.randrange(size) for size in sizes)


@dataclass(frozen=True)
class _Choice:
    """Something that a power cut decides: what a name stands for, or (name None) which bytes a file has."""

    node: _Node
    name: str | None
    values: tuple[Any, ...]


def _choices(node: _Node, seen: set[int]) -> Iterator[_Choice]:
    """Yield what is undecided in a file or a folder and all below it."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if node.names is None:
        if node.bytes != node.synced_bytes:
            yield _Choice(node, None, tuple(dict.fromkeys(_torn(node.synced_bytes, node.bytes))))
        return
    below = dict.fromkeys([*node.synced_names.values(), *node.names.values()])
    for name, values in sorted(node.pending.items()):
        different = list(dict.fromkeys(values))
        if len(different) > 1:
            yield _Choice(node, name, tuple(different))
        below |= dict.fromkeys(v for v in values if v is not None)
    for child in below:
        yield from _choices(child, seen)


def _torn(synced: bytes, now: bytes) -> Iterator[bytes]:
    """Yield what may be left of a file of which only a part was synced; the oldest first, the newest last."""
    yield synced
    if now.startswith(synced):
        new = now[len(synced) :]
        yield synced + new[: len(new) // 2]
        yield synced + bytes(len(new))
        yield synced + bytes(len(new) // 2) + new[len(new) // 2 :]
    yield now


def _put(node: _Node, path: str, chosen: dict[tuple[int, str | None], Any], tree: Tree) -> None:
    names: dict[str, _Node | None] = {**node.synced_names}
    names |= {name: chosen[id(node), name] for name in node.pending if (id(node), name) in chosen}
    for name, child in names.items():
        if child is None:
            continue
        at = f"{path}{name}"
        if child.names is None:
            tree[at] = chosen.get((id(child), None), child.synced_bytes)
        else:
            tree[at] = None
            _put(child, f"{at}/", chosen, tree)


def remove(folder: Path) -> None:
    """Remove a state that was looked at."""
    shutil.rmtree(folder)
