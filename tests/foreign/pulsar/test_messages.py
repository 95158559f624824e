"""Entries decoded to columns: every kind of entry and field, and what is refused."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.foreign.pulsar.offload_writer import (
    LZ4,
    NONE,
    SNAPPY,
    ZLIB,
    ZSTD,
    Frame,
    Sent,
    batch,
    chunks,
    content,
    framed,
    number,
    pairs,
    single,
    varint,
    write_ledger,
)
from tests.foreign.pulsar.offload_writer import _metadata as metadata_of
from tests.foreign.pulsar.sample_cases import UNCOMMITTED, only_topic, rows_of, whole
from tests.selection import examples, for_each
from txn_source.model.errors import (
    InvalidArgumentError,
    LogVersionError,
    SchemaMismatchError,
    SegmentUnreadableError,
)

_COLUMNS = ("key", "value", "__ordering_key", "__properties", "__event_time", "__sequence_id")


def read(
    folder: Path, entries: list[bytes], columns: tuple[str, ...] = _COLUMNS, **options: Any
) -> list[dict[str, Any]]:
    """Write entries as a ledger, and return its rows at read_uncommitted."""
    place = folder / uuid.uuid4().hex
    place.mkdir()
    write_ledger(place, 7, entries)
    partition = only_topic(place, **options)
    return rows_of(partition, whole(partition, UNCOMMITTED), UNCOMMITTED, columns)


def as_row(message: Sent) -> dict[str, Any]:
    return {
        "key": message.key,
        "value": message.value,
        "__ordering_key": message.ordering_key,
        "__properties": dict(message.properties),
        "__event_time": message.event_time * 1000 if message.event_time else None,
        "__sequence_id": message.sequence,
    }


_BYTES = st.binary(max_size=40) | st.builds(
    bytes, st.lists(st.sampled_from([0, 0, 0, 0, 2, 10, 18, 24, 4]), max_size=60)
)
_SENT = st.builds(
    Sent,
    value=st.none() | _BYTES,
    key=st.none() | st.text(max_size=8).map(str.encode),
    ordering_key=st.none() | st.binary(max_size=5),
    properties=st.dictionaries(st.text(max_size=4), st.text(max_size=300), max_size=3),
    event_time=st.none() | st.integers(0, 4_000_000_000_000),
    sequence=st.integers(0, (1 << 63) - 1),
) | st.builds(Sent, value=_BYTES, key=st.binary(max_size=9), key_is_base64=st.just(True))
_ENTRY = st.tuples(
    st.lists(_SENT, min_size=1, max_size=8), st.booleans(), st.sampled_from([NONE, LZ4, ZLIB, ZSTD, SNAPPY])
)


@settings(suppress_health_check=list(HealthCheck), max_examples=examples(15), deadline=None)
@given(st.lists(_ENTRY, min_size=1, max_size=6), st.booleans(), st.booleans())
def test_returns_what_was_sent(
    tmp_path: Path, given_: list[tuple[list[Sent], bool, int]], checksum: bool, broker: bool
) -> None:
    """Write random batches and single messages, payloads among them that look like the start of messages."""
    entries = []
    sent: list[Sent] = []
    for messages, batched, codec in given_:
        frame = Frame(codec=codec, checksum=checksum, broker=(5, 9) if broker else None)
        entries += [batch(messages, frame)] if batched else [single(message, frame) for message in messages]
        sent += messages
    assert read(tmp_path, entries) == [as_row(message) for message in sent]


@for_each("column", _COLUMNS)
def test_reads_one_column_alone(tmp_path: Path, column: str) -> None:
    """Ask for each column by itself: it is the same as among others."""
    message = Sent(b"v", b"k", True, b"o", {"a": "b"}, 5, 3)
    messages = [message, Sent(None), Sent(b"", b"")]
    entries = [batch(messages, Frame(codec=LZ4)), *(single(m, Frame(codec=ZLIB)) for m in messages)]
    wanted = [{column: as_row(message)[column]} for message in messages * 2]
    assert read(tmp_path, entries, (column,)) == wanted


def test_reads_no_column(tmp_path: Path) -> None:
    """Ask for no columns: the rows are counted, and payloads aren't decompressed."""
    entries = [framed(Frame(), metadata_of(Frame(), 1, size=9, middle=number(11, 40)), b"no batch"), single(Sent(b"v"))]
    place = tmp_path / "log"
    place.mkdir()
    write_ledger(place, 7, entries)
    partition = only_topic(place)
    of = whole(partition)
    [unit] = partition.units(of, 1 << 20)
    assert [b.num_rows for b in partition.read(unit, UNCOMMITTED, partition.decisions(of), ())] == [41]


def test_batch_of_large_metadata(tmp_path: Path) -> None:
    """Metadata of more than 4 KiB for one message isn't found by the look at all bytes, and read all the same."""
    messages = [Sent(b"a", properties={"p": "x" * size}) for size in (10, 300, 5000, 70_000, 3)]
    assert read(tmp_path, [batch(messages)]) == [as_row(message) for message in messages]


def test_last_of_a_property_counts(tmp_path: Path) -> None:
    """A producer may give a property twice; Pulsar's clients keep the last value."""
    twice = pairs(1, [("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")]) + number(3, 0)
    payload = len(twice).to_bytes(4, "big") + twice
    entry = framed(Frame(), metadata_of(Frame(), 1, size=len(payload), middle=number(11, 1)), payload)
    assert [row["__properties"] for row in read(tmp_path, [entry])] == [{"a": "4", "b": "2"}]


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    """A property that isn't UTF-8 is shown as Java shows it, and a key is bytes anyway."""
    head = content(1, content(1, b"n\xff") + content(2, b"\xc3")) + content(2, b"\xff") + number(3, 1)
    payload = len(head).to_bytes(4, "big") + head + b"v"
    entry = framed(Frame(), metadata_of(Frame(), 1, size=len(payload), middle=number(11, 1)), payload)
    [row] = read(tmp_path, [entry])
    assert row["__properties"] == {"n\ufffd": "\ufffd"}
    assert row["key"] == b"\xff"


def test_compacted_out_and_null_keys(tmp_path: Path) -> None:
    """A message that compaction took out of a batch is left out, its number isn't given away; a key may be null."""
    heads = [number(3, 1), number(3, 1) + number(4, 1), content(2, b"k") + number(3, 1) + number(10, 1)]
    payload = b"".join(len(head).to_bytes(4, "big") + head + b"v" for head in heads)
    entry = framed(Frame(), metadata_of(Frame(), 1, size=len(payload), middle=number(11, 3)), payload)
    assert read(tmp_path, [entry], ("key", "__batch_index", "__sequence_id")) == [
        {"key": None, "__batch_index": 0, "__sequence_id": 1},
        {"key": None, "__batch_index": 2, "__sequence_id": 1},
    ]


def test_what_messages_in_batches_lack(tmp_path: Path) -> None:
    """Event time, sequence and null value are the entry's then, as for Pulsar's clients; keys and properties aren't."""
    own = number(3, 1) + number(5, 7) + number(8, 30) + number(9, 0)
    payload = b"".join(len(head).to_bytes(4, "big") + head + b"v" for head in (number(3, 1), own))
    tail = content(6, b"a2V5") + number(12, 5) + number(17, 1) + content(18, b"o") + number(25, 1)
    frame = Frame(extra=tail)
    metadata = metadata_of(frame, 20, before=pairs(4, {"a": "b"}), size=len(payload), middle=number(11, 2))
    none = {"key": None, "__ordering_key": None, "__properties": {}}
    assert read(tmp_path, [single(Sent(b"x")), framed(Frame(), metadata, payload)], (*_COLUMNS, "__key_is_base64"))[
        1:
    ] == [
        {"value": None, "__event_time": 5000, "__sequence_id": 20, "__key_is_base64": False, **none},
        {"value": b"v", "__event_time": 7000, "__sequence_id": 30, "__key_is_base64": False, **none},
    ]


def test_markers_of_other_kinds_are_left_out(tmp_path: Path) -> None:
    """A marker of replicated subscriptions is no message, and ends no transaction."""
    entry = framed(Frame(), metadata_of(Frame(), 1, marker=12), b"x")
    assert [row["value"] for row in read(tmp_path, [single(Sent(b"a")), entry, single(Sent(b"b"))])] == [b"a", b"b"]


def test_index_counts_messages(tmp_path: Path) -> None:
    """The broker's index is that of an entry's last message; those before it have the numbers before."""
    entries = [
        batch([Sent(b"a"), Sent(b"b"), Sent(b"c")], Frame(broker=(1000, 12))),
        single(Sent(b"d"), Frame(broker=(1001, 13))),
    ]
    rows = read(tmp_path, entries, ("__index", "__broker_publish_time", "__batch_size"))
    assert [row["__index"] for row in rows] == [10, 11, 12, 13]
    assert [row["__broker_publish_time"] for row in rows] == [1_000_000] * 3 + [1_001_000]
    assert [row["__batch_size"] for row in rows] == [3, 3, 3, 0]


def test_metadata_of_entries(tmp_path: Path) -> None:
    """Show where an entry was replicated from, and when it was to be delivered."""
    frame = Frame(extra=content(5, b"west") + number(19, 1_700_000_000_123))
    rows = read(
        tmp_path, [batch([Sent(b"a"), Sent(b"b")], frame), single(Sent(b"c"))], ("__replicated_from", "__deliver_at")
    )
    known = {"__replicated_from": "west", "__deliver_at": 1_700_000_000_123_000}
    assert rows == [known, known, {"__replicated_from": None, "__deliver_at": None}]


def test_encrypted_entries_are_refused_or_kept(tmp_path: Path) -> None:
    """An encrypted batch is refused, and with an option it is one message with its bytes, which says so."""
    keys = content(13, content(1, b"app") + content(2, b"secret"))
    frame = Frame(codec=LZ4, extra=keys)
    entry = framed(frame, metadata_of(frame, 4, size=100, middle=number(11, 10)), b"\x01\x02sealed")
    entries = [single(Sent(b"a")), entry]
    with pytest.raises(InvalidArgumentError, match=r"Entry 7:1 in .* is encrypted"):
        read(tmp_path, entries)
    columns = ("value", "__encrypted", "__batch_index")
    assert read(tmp_path, entries, columns, keep_encrypted=True) == [
        {"value": b"a", "__encrypted": False, "__batch_index": -1},
        {"value": b"\x01\x02sealed", "__encrypted": True, "__batch_index": -1},
    ]


def test_encrypted_chunks_are_kept_one_by_one(tmp_path: Path) -> None:
    """Each chunk is sealed by itself, so joined they could not be opened: each is a row; refused they are as others."""
    sealed = content(13, content(1, b"app") + content(2, b"secret"))
    entries = chunks(Sent(b"abcdef"), 3, Frame(extra=sealed)) + chunks(Sent(b"uvwxyz"), 2, Frame("q"))
    with pytest.raises(InvalidArgumentError, match=r"Entry 7:2 in .* is encrypted"):
        read(tmp_path, entries)
    rows = read(tmp_path, entries, ("value", "__encrypted", "__first_chunk"), keep_encrypted=True)
    assert [tuple(row.values()) for row in rows] == [
        (b"ab", True, None),
        (b"cd", True, None),
        (b"ef", True, None),
        (b"uvwxyz", False, "7:3"),
    ]


def test_times_beyond_timestamps_are_refused(tmp_path: Path) -> None:
    """An event time that no timestamp can be is refused; without that column the message is read."""
    entries = [single(Sent(b"a", event_time=1 << 62))]
    with pytest.raises(InvalidArgumentError, match="__event_time 4611686018427387904 ms"):
        read(tmp_path, entries)
    assert read(tmp_path, entries, ("value",)) == [{"value": b"a"}]


def test_unknown_column(tmp_path: Path) -> None:
    """Ask for a column that there is not."""
    with pytest.raises(SchemaMismatchError, match="no column 'offset'"):
        read(tmp_path, [single(Sent(b"a"))], ("offset",))


def _batched(payload: bytes, count: int, codec: int = NONE, size: int | None = None) -> bytes:
    frame = Frame(codec=codec)
    middle = number(11, count)
    return framed(frame, metadata_of(frame, 1, size=len(payload) if size is None else size, middle=middle), payload)


_TWO = Sent(b"a").in_batch() + Sent(b"b").in_batch()
_BAD = {
    "too few messages": (_batched(_TWO, 3), "message 2 of its 3 is cut"),
    "too many": (_batched(_TWO, 1), "behind its 1 messages"),
    "none, and bytes": (_batched(_TWO, 0), "behind its 0 messages"),
    "a size too large": (_batched(b"\0\0\0\x02" + number(3, 5) + b"abc", 1), "message 0 of its 1 is cut"),
    "a negative size": (_batched(b"\0\0\0\x0b" + number(3, -1) + b"abc", 1), "message 0 of its 1 is cut"),
    "no size": (_batched(b"\0\0\0\x02" + number(8, 5), 1), "message 0 of its 1 is cut"),
    "no size, but a key": (_batched(b"\0\0\0\x03" + content(2, b"k"), 1), "message 0 of its 1 is cut"),
    "a property that is none": (
        _batched(b"\0\0\0\x06" + content(1, b"\xff\xff") + number(3, 0), 1),
        "a property can't be parsed",
    ),
    "a key that isn't base64": (
        _batched(b"\0\0\0\x0a" + content(2, b"a=b=") + number(3, 0) + number(6, 1), 1),
        "isn't base64",
    ),
    "a key of a wrong length": (
        _batched(b"\0\0\0\x07" + content(2, b"a") + number(3, 0) + number(6, 1), 1),
        "isn't base64",
    ),
    "LZ4 that is no LZ4": (_batched(b"\xff\xff\xff", 1, LZ4, 9), "can't be decompressed"),
    "ZLIB that is none": (_batched(b"abc", 1, ZLIB, 9), "can't be decompressed"),
    "a checksum": (single(Sent(b"a"))[:-1] + b"b", "CRC-32C"),
    "metadata that is cut": (b"\0\0\0\x09abc", "its metadata is cut"),
    "no metadata": (b"", "it has no metadata"),
    "metadata that is none": (framed(Frame(), b"\xff\xff", b""), "its metadata can't be parsed"),
    "metadata without a producer": (framed(Frame(), number(2, 1) + number(3, 1), b""), "lacks what each has"),
    "broker metadata that is cut": (b"\x0e\x02\0\0\0\x09a", "its broker metadata is cut"),
    "broker metadata that is none": (
        b"\x0e\x02\0\0\0\x01\xff" + single(Sent(b"a")),
        "its broker metadata can't be parsed",
    ),
}


@for_each("what", _BAD)
def test_says_which_entry_is_damaged(tmp_path: Path, what: str) -> None:
    """Put a damaged entry between two sound ones: the error names it, and what is wrong."""
    entry, message = _BAD[what]
    with pytest.raises(SegmentUnreadableError, match=rf"Entry 7:1 in .*-ledger-7 is damaged: .*{message}"):
        read(tmp_path, [single(Sent(b"a")), entry, single(Sent(b"c"))])


@pytest.mark.parametrize("codec", [LZ4, ZLIB, ZSTD, SNAPPY])
@pytest.mark.parametrize("off", [-1, 1, 1000])
def test_size_that_is_not_the_payloads(tmp_path: Path, codec: int, off: int) -> None:
    """Give a wrong uncompressed size with a right checksum: never bytes that nobody wrote."""
    frame = Frame(codec=codec)
    entry = single(Sent(b"abc" * 100), frame)
    right, wrong = number(9, 300), number(9, 300 + off)
    metadata = metadata_of(frame, 0, size=300)
    payload = entry[entry.index(metadata) + len(metadata) :]
    entry = framed(frame, metadata.replace(right, wrong), payload)
    with pytest.raises(SegmentUnreadableError, match="Entry 7:0 in"):
        read(tmp_path, [entry])


def test_unknown_codec_is_refused(tmp_path: Path) -> None:
    """An entry of a codec that we don't know is refused; columns of the entry are read."""
    entries = [single(Sent(b"a")), _batched(b"abc", 1, 9)]
    with pytest.raises(LogVersionError, match=r"Entry 7:1 in .*compression 9"):
        read(tmp_path, entries)
    assert len(read(tmp_path, entries, ("__producer_name",))) == 2


def test_txn_ids_of_no_coordinator_are_refused(tmp_path: Path) -> None:
    """Ids are numbers from 0; one beyond what fits is refused before anything is mixed up."""
    with pytest.raises(LogVersionError, match=r"id \(0,140737488355328\)"):
        read(tmp_path, [single(Sent(b"a"), Frame(txn=(0, 1 << 47)))])
    rows = read(tmp_path, [single(Sent(b"a"), Frame(txn=(65535, (1 << 47) - 1)))], ("__txn_id", "__txn_status"))
    assert rows == [{"__txn_id": "(65535,140737488355327)", "__txn_status": "open"}]


@pytest.mark.long
def test_many_small_batches_of_one_read(tmp_path: Path) -> None:
    """Read more than one Arrow batch's worth of messages: none is lost where batches are cut."""
    chance = random.Random(5)
    messages = [Sent(b"%d" % at, sequence=at) for at in range(70_000)]
    entries = []
    at = 0
    while at < len(messages):
        size = chance.choice([1, 3, 1000, 4000])
        entries.append(batch(messages[at : at + size], Frame(codec=chance.choice([NONE, LZ4, ZSTD]))))
        at += size
    rows = read(tmp_path, entries, ("value", "__sequence_id"))
    assert [(row["value"], row["__sequence_id"]) for row in rows] == [(m.value, m.sequence) for m in messages]
    assert varint(300) == b"\xac\x02"
