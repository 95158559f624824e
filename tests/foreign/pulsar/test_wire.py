"""Protobuf decoded for many messages at once, against a decoder that takes one field after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.foreign.pulsar.offload_writer import content, number, varint
from tests.selection import examples
from txn_source.foreign.pulsar.wire import BYTES, NUMBER, REPEATED, decode, fields_of

_KINDS = {1: REPEATED, 2: BYTES, 3: NUMBER, 17: NUMBER, 18: BYTES}

_NUMBERS = st.tuples(st.sampled_from([3, 17, 5]), st.integers(0, (1 << 64) - 1)).map(lambda f: number(*f))
_BYTES = st.tuples(st.sampled_from([1, 2, 18, 6]), st.binary(max_size=200)).map(lambda f: content(*f))
_FIXED = st.sampled_from([varint(7 << 3 | 1) + b"12345678", varint(8 << 3 | 5) + b"1234"])
_MESSAGES = st.lists(st.lists(_NUMBERS | _BYTES | _FIXED, max_size=6).map(b"".join), min_size=1, max_size=12)


def _one(data: bytes) -> dict[int, list[int | bytes]] | None:
    """Return the fields of one message, field by field; None if it is none."""
    found: dict[int, list[int | bytes]] = {}
    at = 0

    def take() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise ValueError
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value & (1 << 64) - 1

    try:
        while at < len(data):
            tag = take()
            value: int | bytes
            if tag & 7 == 0:
                value = take()
            elif tag & 7 == 2:
                size = take()
                value = data[at : at + size]
                at += size
            elif tag & 7 in (1, 5):
                value = b""
                at += 8 if tag & 7 == 1 else 4
            else:
                return None
            if at > len(data) or tag >> 3 == 0:
                return None
            if tag & 7 in (0, 2) and (tag & 7 == 0) == (_KINDS.get(tag >> 3) == NUMBER):
                found.setdefault(tag >> 3, []).append(value)
    except ValueError:
        return None
    return found


def _check(messages: list[bytes]) -> None:
    data = np.frombuffer(b"".join(messages), np.uint8)
    ends = np.cumsum([len(message) for message in messages])
    starts = ends - [len(message) for message in messages]
    found = decode(data, starts, ends, _KINDS)
    repeated = [[] for _ in messages]
    for row, start, end in zip(*(part.tolist() for part in found.repeated(1)), strict=True):
        repeated[row].append(data[start:end].tobytes())
    for row, message in enumerate(messages):
        wanted = _one(message)
        assert found.bad[row] == (wanted is None)
        alone = fields_of(message)
        assert (alone is None) == (wanted is None)
        for field, values in (wanted or {}).items():
            kept = [value for at, value in alone or () if at == field]
            assert [value & (1 << 64) - 1 if isinstance(value, int) else value for value in kept][-1] == values[-1]
        if wanted is None:
            continue
        assert repeated[row] == wanted.get(1, [])
        for field in (2, 3, 17, 18):
            assert found.has(field)[row] == (field in wanted)
            if field not in wanted:
                continue
            last = wanted[field][-1]
            if _KINDS[field] == NUMBER:
                assert int(found.number(field)[row]) & (1 << 64) - 1 == last
            else:
                starts_, ends_ = found.slices(field)
                assert data[starts_[row] : ends_[row]].tobytes() == last


@settings(suppress_health_check=list(HealthCheck), max_examples=examples(40), deadline=None)
@given(_MESSAGES)
def test_decodes_what_was_encoded(messages: list[bytes]) -> None:
    """Encode random fields in random order, repeated and unknown ones among them."""
    _check(messages)


@settings(suppress_health_check=list(HealthCheck), max_examples=examples(40), deadline=None)
@given(_MESSAGES, st.data())
def test_tells_what_is_no_message(messages: list[bytes], data: st.DataObject) -> None:
    """Change and cut random bytes: each message is bad where it can't be decoded, and its neighbours are as before."""
    at = data.draw(st.integers(0, len(messages) - 1))
    broken = bytearray(messages[at])
    for _ in range(data.draw(st.integers(1, 3))):
        if broken:
            broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    messages[at] = bytes(broken[: data.draw(st.integers(0, len(broken)))])
    _check(messages)


@pytest.mark.parametrize(
    "raw", [b"\x80" * 11, b"\x18" + b"\xff" * 10 + b"\x01", b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"]
)
def test_refuses_numbers_without_end(raw: bytes) -> None:
    """A varint of more than ten bytes, and a length that is negative or beyond the end."""
    _check([raw])
    _check([b"\x18\x05", raw, b"\x18\x05"])
