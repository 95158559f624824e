"""Entries of any kind with any metadata, as brokers of any age keep them; also what hardly any client sends."""

from __future__ import annotations

import base64
import random
import struct
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c

from tests.foreign.pulsar.offload_writer import compressed, content, number, pairs

Field = tuple[int, bytes]
_TIME = 1_700_000_000_000


@dataclass
class RandomEntries:
    """Yields a topic's entries one by one; ``encrypted`` tells if some are."""

    chance: random.Random
    encrypted: bool = False
    sequence: int = 0
    begun: int = 0
    index: int = 1 << 33
    open: list[tuple[int, int]] = field(default_factory=list)
    waiting: list[list[tuple[bytes, bytes]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._broker = self.chance.choice(["", "time", "time and index"])
        self._checked = self.chance.random() < 0.8

    def next(self) -> bytes:
        """Return the next entry."""
        self.sequence += 1
        if self.waiting and self._is(0.5):
            parts = self.chance.choice(self.waiting)
            entry = parts.pop(0)
            self.waiting = [left for left in self.waiting if left]
            return self._framed(*entry, 1)
        kind = self.chance.random()
        if kind < 0.15 and self.open:
            txn = self.chance.choice(self.open)
            if self._is(0.9):
                self.open.remove(txn)
            return self._framed(self._head(txn, [(20, number(20, self.chance.choice([21, 21, 22])))]), b"", 1)
        if kind < 0.2:
            return self._framed(self._head(None, [(20, number(20, self.chance.choice([10, 11, 12, 13, 20])))]), b"x", 1)
        if kind < 0.25:
            self.open.append((self.chance.choice([0, 0, 1, 65535]), self.begun))
            self.begun += 1
        txn = self.chance.choice([None, None, *self.open[-3:]])
        if self.encrypted and self._is(0.1):
            sealed = [(13, content(13, content(1, b"k") + content(2, b"v"))), (14, content(14, b"AES"))]
            count = [(11, number(11, 5))] if self._is(0.5) else []
            return self._framed(self._head(txn, [*self._own(), *sealed, *count]), b"sealed", 1)
        codec = self.chance.randrange(5)
        if kind < 0.65:
            count = self.chance.randint(1, self.chance.choice([1, 3, 30]))
            body = b"".join(self._batched() for _ in range(count))
            of = [(8, number(8, codec)), (9, number(9, len(body))), (11, number(11, count))]
            first = self._own() if self._is(0.3) else []  # clients repeat the first message's, which doesn't count
            return self._framed(self._head(txn, [*of, *first]), compressed(codec, body), count)
        value = self._bytes()
        of = [*self._own(), (8, number(8, codec)), (9, number(9, len(value)))]
        if kind < 0.85:
            return self._framed(self._head(txn, of), compressed(codec, value), 1)
        return self._framed(*self._chunks(txn, value, codec), 1)

    def _is(self, chance: float) -> bool:
        return self.chance.random() < chance

    def _chunks(self, txn: tuple[int, int] | None, value: bytes, codec: int) -> tuple[bytes, bytes]:
        """Return the first chunk of a message; the others wait. Some are missing, and some come twice."""
        data, count = compressed(codec, value), self.chance.randint(2, 5)
        step = -(-len(data) // count)
        order = list(range(count))
        if self._is(0.15):
            order.pop(self.chance.randrange(count))
        if self._is(0.15):
            at = self.chance.randrange(len(order))
            order[at:at] = order[: at + 1] if self._is(0.5) else [order[at]]
        own = self._own()
        entries = []
        for part in order:
            tail = [(26, content(26, b"%d" % self.sequence)), (27, number(27, count)), (28, number(28, len(data)))]
            of = [*own, (8, number(8, codec)), (9, number(9, len(value))), *tail, (29, number(29, part))]
            entries.append((self._head(txn, of), data[part * step : (part + 1) * step]))
        if entries[1:]:
            self.waiting.append(entries[1:])
        return entries[0]

    def _framed(self, head: bytes, body: bytes, messages: int) -> bytes:
        entry = struct.pack(">I", len(head)) + head + body
        if self._checked:
            entry = struct.pack(">HI", 0x0E01, crc32c(entry)) + entry
        self.index += messages
        if self._broker:
            of = number(1, _TIME + self.chance.randint(0, 999)) + (
                number(2, self.index - 1) if "index" in self._broker else b""
            )
            entry = struct.pack(">HI", 0x0E02, len(of)) + of + entry
        return entry

    def _head(self, txn: tuple[int, int] | None, of: list[Field]) -> bytes:
        found = [
            (1, content(1, self.chance.choice([b"p", "ü".encode(), b"pulsar.txn.marker", b""]))),
            (2, number(2, self.chance.choice([self.sequence, 0, (1 << 63) - 1, (1 << 64) - 1]))),
            (3, number(3, _TIME + self.chance.randint(-999, 999))),
            *of,
        ]
        for at, made in (
            (5, content(5, b"west")),
            (7, content(7, b"a") + content(7, b"b")),
            (12, number(12, self.chance.choice([0, 5, _TIME]))),
            (16, content(16, self.chance.choice([b"", b"\0" * 7 + b"\2"]))),
            (19, number(19, _TIME)),
            (24, number(24, self.sequence)),
            (31, number(31, 1) + number(31, 2)),
            (99, content(99, b"unknown" * 40)),
        ):
            if self._is(0.15):
                found.append((at, made))
        if txn is not None:
            found += [(22, number(22, txn[1])), (23, number(23, txn[0]))]
        return self._ordered(found)

    def _ordered(self, found: list[Field]) -> bytes:
        """Return fields in the order of their numbers, as all writers have them, or now and then in another one."""
        found = self.chance.sample(found, len(found)) if self._is(0.05) else sorted(found, key=lambda item: item[0])
        return b"".join(item for _, item in found)

    def _own(self) -> list[Field]:
        """Return what a message that is alone in its entry has besides its value."""
        return self._message({"properties": 4, "key": 6, "coded": 17, "ordering": 18, "null": 25, "null key": 30})

    def _batched(self) -> bytes:
        value = self._bytes()
        names = {"properties": 1, "key": 2, "coded": 6, "ordering": 7, "null": 9, "null key": 10}
        found = [*self._message(names), (3, number(3, len(value)))]
        if self._is(0.05):
            found.append((4, number(4, self.chance.randrange(2))))
        if self._is(0.3):
            found.append((5, number(5, self.chance.choice([0, 7, _TIME]))))
        if self._is(0.6):
            found.append((8, number(8, self.sequence)))
        head = self._ordered(found)
        return struct.pack(">I", len(head)) + head + value

    def _message(self, at: dict[str, int]) -> list[Field]:
        found: list[Field] = []
        if self._is(0.5):
            given = [(self._text(), self._text()) for _ in range(self.chance.randint(1, 3))]
            found.append((at["properties"], pairs(at["properties"], given)))
        if self._is(0.15):
            key = base64.b64encode(self.chance.randbytes(self.chance.randint(0, 7)))
            found += [(at["key"], content(at["key"], key)), (at["coded"], number(at["coded"], 1))]
        elif self._is(0.3):
            found.append((at["key"], content(at["key"], self.chance.choice([self._text(), "k" * 300]).encode())))
        if self._is(0.2):
            found.append((at["ordering"], content(at["ordering"], self.chance.randbytes(3))))
        for name in ("null", "null key"):
            if self._is(0.07):
                found.append((at[name], number(at[name], self.chance.randrange(2))))
        return found

    def _text(self) -> str:
        return "".join(self.chance.choice("aé\0zß😀-_:/ ") for _ in range(self.chance.randint(0, 4)))

    def _bytes(self) -> bytes:
        """Return a value; some look like the start of a message in a batch, and some are long."""
        looks_alike = bytes(self.chance.choice([0, 0, 0, 2, 10, 18, 24]) for _ in range(self.chance.randint(0, 30)))
        sizes: Any = [
            b"",
            b"x",
            looks_alike,
            self.chance.randbytes(40),
            self.chance.randbytes(3) * self.chance.randint(0, 900),
        ]
        return bytes(self.chance.choice(sizes))
