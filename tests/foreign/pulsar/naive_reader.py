"""Rows of entries by Pulsar's rules, one message after the other, with nothing of what is tested."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from crc32c import crc32c

Place = tuple[int, int]
"""Ledger and entry."""
Txn = tuple[int, int]
_CODECS = {1: "lz4_raw", 3: "zstd", 4: "snappy"}


def fields(data: bytes) -> dict[int, list[Any]]:
    """Return the fields of a protobuf message, each with all of its values."""
    found: dict[int, list[Any]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            at += 1
            value |= (data[at - 1] & 0x7F) << shift
            shift += 7
            if data[at - 1] < 0x80:
                return value & (1 << 64) - 1

    while at < len(data):
        number, wire = divmod(varint(), 8)
        value: int | bytes = varint()
        if wire == 2:
            assert isinstance(value, int)
            at, value = at + value, data[at : at + value]
        else:
            assert wire == 0
        found.setdefault(number, []).append(value)
    return found


class Message(dict[int, list[Any]]):
    """A protobuf message, of which the last value of a field counts."""

    def one(self, number: int, default: Any = None) -> Any:
        return self[number][-1] if number in self else default

    def signed(self, number: int, default: int | None = None) -> int | None:
        value = self.one(number, default)
        return value - (1 << 64) if value is not None and value >> 63 > 0 else value


def _properties(items: Sequence[bytes]) -> dict[str, str]:
    pairs = (Message(fields(item)) for item in items)
    return {pair.one(1, b"").decode(errors="replace"): pair.one(2, b"").decode(errors="replace") for pair in pairs}


def _key(key: bytes | None, coded: bool, null: bool) -> bytes | None:
    return None if key is None or null else base64.b64decode(key) if coded else key


def _plain(codec: int, data: bytes, size: int) -> bytes:
    if codec == 2:
        return zlib.decompressobj().decompress(data)
    return data if not codec else bytes(pa.Codec(_CODECS[codec]).decompress(data, size, asbytes=True)) if size else b""


@dataclass
class NaiveTopic:
    """A topic's entries by ledger, read from the first to the last; ``rows`` have Pulsar's columns."""

    ledgers: Mapping[int, Sequence[bytes]]
    rows: list[dict[str, Any]] = field(default_factory=list)
    data: dict[Txn, list[Place]] = field(default_factory=dict)
    commits: dict[Txn, Place] = field(default_factory=dict)
    aborted: set[Txn] = field(default_factory=set)
    chunks: dict[tuple[bytes, Txn | None], list[tuple[Place, bytes]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for ledger in sorted(self.ledgers):
            for number, entry in enumerate(self.ledgers[ledger]):
                self._take((ledger, number), entry)

    @property
    def opened(self) -> dict[Txn, Place]:
        """From where each undecided transaction is undecided: its first data, or that behind its commit."""
        found = {}
        for txn in self.data.keys() - self.aborted:
            late = [place for place in self.data[txn] if txn not in self.commits or place > self.commits[txn]]
            if late:
                found[txn] = late[0]
        return found

    def visible(self, *, committed: bool) -> Iterator[dict[str, Any]]:
        """Yield what a level shows, with the transactions' states."""
        opened = self.opened
        stable = min(opened.values(), default=None)
        for row in self.rows:
            place, txn = (row["__ledger_id"], row["__entry_id"]), row["txn"]
            if committed and (txn in self.aborted or (stable is not None and place >= stable)):
                continue
            state = (
                "aborted" if txn in self.aborted else "committed" if place < opened.get(txn, (1 << 60, 0)) else "open"
            )
            yield {**row, "__txn_status": None if txn is None else state}

    def _take(self, place: Place, entry: bytes) -> None:
        broker = Message()
        if entry[:2] == b"\x0e\x02":
            size = struct.unpack(">I", entry[2:6])[0]
            broker, entry = Message(fields(entry[6 : 6 + size])), entry[6 + size :]
        if entry[:2] == b"\x0e\x01":
            assert struct.unpack(">I", entry[2:6])[0] == crc32c(entry[6:])
            entry = entry[6:]
        size = struct.unpack(">I", entry[:4])[0]
        head, body = Message(fields(entry[4 : 4 + size])), entry[4 + size :]
        txn = (head.one(23), head.one(22)) if 22 in head and 23 in head else None
        if 20 in head:
            if txn is not None and head.one(20) == 21:
                self.commits[txn] = place
            elif txn is not None and head.one(20) == 22:
                self.aborted.add(txn)
            return
        if txn is not None:
            self.data.setdefault(txn, []).append(place)
        row = self._entry(place, head, broker, txn)
        if 13 in head:
            self.rows.append({**row, "value": body, "__encrypted": True})
        elif 11 in head:
            self._batch(row, head, _plain(head.one(8, 0), body, head.one(9, 0)))
        else:
            self._single(row, head, body)

    def _entry(self, place: Place, head: Message, broker: Message, txn: Txn | None) -> dict[str, Any]:
        event, replicated = head.signed(12, 0), head.one(5)
        return {
            "__ledger_id": place[0],
            "__entry_id": place[1],
            "__batch_index": -1,
            "__batch_size": 0,
            "key": _key(head.one(6), head.one(17, 0), head.one(30, 0)),
            "__key_is_base64": bool(head.one(17, 0)),
            "__ordering_key": head.one(18),
            "__properties": _properties(head.get(4, [])),
            "__event_time": event * 1000 if event else None,
            "__publish_time": head.one(3) * 1000,
            "__sequence_id": head.signed(2),
            "__producer_name": head.one(1).decode(errors="replace"),
            "__schema_version": head.one(16),
            "__replicated_from": replicated and replicated.decode(errors="replace"),
            "__deliver_at": head.one(19) * 1000 if 19 in head else None,
            "__broker_publish_time": broker.one(1) * 1000 if 1 in broker else None,
            "__index": broker.one(2),
            "__encrypted": False,
            "__first_chunk": None,
            "__txn_id": None if txn is None else f"({txn[0]},{txn[1]})",
            "txn": txn,
        }

    def _single(self, row: dict[str, Any], head: Message, body: bytes) -> None:
        place = row["__ledger_id"], row["__entry_id"]
        if head.one(27, 0) > 1:
            name, number = (head.one(26), row["txn"]), head.one(29, 0)
            if number == 0:
                self.chunks[name] = []
            parts = self.chunks.get(name)
            if parts is None or number < len(parts):
                return
            if number > len(parts):
                del self.chunks[name]
                return
            parts.append((place, body))
            if number < head.one(27) - 1:
                return
            del self.chunks[name]
            row["__first_chunk"] = f"{parts[0][0][0]}:{parts[0][0][1]}"
            body = b"".join(part for _, part in parts)
        value = None if head.one(25, 0) else _plain(head.one(8, 0), body, head.one(9, 0))
        self.rows.append({**row, "value": value})

    def _batch(self, row: dict[str, Any], head: Message, body: bytes) -> None:
        at, count = 0, head.one(11)
        for number in range(count):
            size = struct.unpack(">I", body[at : at + 4])[0]
            own = Message(fields(body[at + 4 : at + 4 + size]))
            at += 4 + size + own.one(3)
            if own.one(4, 0):  # compaction took it out
                continue
            event = own.signed(5, head.one(12, 0))
            index = row["__index"]
            self.rows.append(
                {
                    **row,
                    "value": None if own.one(9, head.one(25, 0)) else body[at - own.one(3) : at],
                    "key": _key(own.one(2), own.one(6, 0), own.one(10, head.one(30, 0))),
                    "__key_is_base64": bool(own.one(6, 0)),
                    "__ordering_key": own.one(7),
                    "__properties": _properties(own.get(1, [])),
                    "__event_time": event * 1000 if event else None,
                    "__sequence_id": own.signed(8, head.one(2)),
                    "__batch_index": number,
                    "__batch_size": count,
                    "__index": None if index is None else index - count + 1 + number,
                }
            )
        assert at == len(body)
