"""Objects in a folder: which ledgers a topic has, and objects that are damaged, doubled, missing or of another kind."""

from __future__ import annotations

import json
import pickle
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.foreign.pulsar.offload_writer import (
    LZ4,
    Frame,
    Sent,
    batch,
    ledger_metadata,
    map_index,
    number,
    sequence_file,
    single,
    write_ledger,
)
from tests.foreign.pulsar.sample_cases import UNCOMMITTED, log_of, only_topic, partitions, rows_of, whole
from tests.selection import for_each, mostly_long
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.pulsar import raw_entries
from txn_source.foreign.pulsar.listing import partition_of, topic_of
from txn_source.foreign.pulsar.managed_ledger import parse_info, parse_snapshot
from txn_source.model.errors import (
    DataLossError,
    InvalidArgumentError,
    LogNotFoundError,
    LogVersionError,
    SegmentUnreadableError,
    TopicNotFoundError,
)
from txn_source.model.position import Position, PositionRange

TOPIC = "persistent://public/default/orders"
_A, _B = uuid.UUID(int=1), uuid.UUID(int=2)


def entries_of(*values: bytes) -> list[bytes]:
    return [single(Sent(value)) for value in values]


def values(folder: Path, **options: Any) -> list[bytes]:
    partition = only_topic(folder, **options)
    return [row["value"] for row in rows_of(partition, whole(partition, UNCOMMITTED), UNCOMMITTED, ("value",))]


def info(*ledgers: tuple[int, int, uuid.UUID | None]) -> dict[str, Any]:
    """Return what ``info-internal`` prints."""
    rows = [
        {"ledgerId": ledger, "entries": entries, "isOffloaded": name is not None}
        | ({} if name is None else {"offloadedContextUuid": str(name)})
        for ledger, entries, name in ledgers
    ]
    return {TOPIC: json.dumps({"version": 1, "ledgers": rows, "cursors": {}})}


def test_ledgers_are_read_in_their_order(tmp_path: Path) -> None:
    """Order is that of the ledgers' ids as numbers, whatever their objects are called; of each topic by itself."""
    for ledger in (10, 9, 2):
        write_ledger(tmp_path, ledger, entries_of(b"%d" % ledger))
    write_ledger(tmp_path, 5, entries_of(b"x"), "a/b/persistent/x%2Fy-partition-3")
    log = log_of(tmp_path)
    assert log.partitions() == [PartitionName("persistent://a/b/x/y", 3), PartitionName(TOPIC, -1)]
    partition = log.partition(PartitionName(TOPIC, -1))
    rows = rows_of(partition, whole(partition), columns=("value",))
    assert [row["value"] for row in rows] == [b"2", b"9", b"10"]
    assert [str(bound) for bound in (partition.bounds().log_start, partition.bounds().log_end)] == ["2:0", "10:1"]


@pytest.mark.parametrize("block_bytes", mostly_long([200, 333, 1000], 333))
def test_blocks_and_filler(tmp_path: Path, block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write blocks with filler of all lengths, and read them in pieces of any size."""
    wanted = [b"v" * (at % 37) for at in range(60)]
    write_ledger(tmp_path, 3, entries_of(*wanted), block_bytes=block_bytes)
    for piece in (13, 100, 150, 1 << 20):
        monkeypatch.setattr("txn_source.foreign.pulsar.data_object.PIECE_BYTES", piece)
        assert values(tmp_path) == wanted


@pytest.mark.parametrize("kind", ["block", "record", "none"])
@pytest.mark.parametrize("begin", [0, 7, 29])
def test_map_files_of_each_compression(tmp_path: Path, kind: str, begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read SequenceFiles compressed by blocks, by records and not at all, whole and from an entry on."""
    monkeypatch.setattr("txn_source.foreign.pulsar.map_file.PIECE_BYTES", 500)
    monkeypatch.setattr("txn_source.foreign.pulsar.summary.STRETCH_BYTES", 300)
    wanted = [b"value-%d" % at * (at % 50) for at in range(30)]
    folder = write_map_file(tmp_path, entries_of(*wanted), kind)
    partition = only_topic(tmp_path)
    end = partition.bounds().log_end
    rows = rows_of(partition, PositionRange(Position(4, begin), end), columns=("value",), unit_bytes=600)
    assert [row["value"] for row in rows] == wanted[begin:]
    assert folder.name == "data"


def write_map_file(folder: Path, entries: list[bytes], kind: str = "block", ledger: int = 4) -> Path:
    """Write a ledger as the filesystem offloader does; return its data's path."""
    managed = "public/default/persistent/orders"
    path = folder / managed / f"{ledger}-{_A}" / "data"
    path.parent.mkdir(parents=True)
    records = [(-1, ledger_metadata(managed, entries)), *enumerate(entries)]
    path.write_bytes(sequence_file(records, kind))
    path.with_name("index").write_bytes(map_index(closed=True))
    return path


def test_nothing_there(tmp_path: Path) -> None:
    """Open a folder that isn't there, one without objects, and ask for a topic that there is not."""
    with pytest.raises(LogNotFoundError, match="isn't there"):
        log_of(tmp_path / "none")
    with pytest.raises(LogNotFoundError, match="no ledgers"):
        log_of(tmp_path)
    write_ledger(tmp_path, 3, entries_of(b"a"))
    with pytest.raises(TopicNotFoundError, match=f"There are {TOPIC}"):
        log_of(tmp_path).partition(PartitionName("persistent://public/default/other", -1))


def test_two_objects_of_one_ledger(tmp_path: Path) -> None:
    """An offload that failed and was repeated left two: the managed ledger's list tells the right one, else nobody."""
    write_ledger(tmp_path, 3, entries_of(b"wrong"), name=_A)
    write_ledger(tmp_path, 3, entries_of(b"right"), name=_B)
    with pytest.raises(InvalidArgumentError, match=f"Ledger 3 of {TOPIC} has 2 objects: {_A}, {_B}"):
        values(tmp_path)
    assert values(tmp_path, ledgers=info((3, 1, _B))) == [b"right"]


def test_data_without_index_is_no_ledger(tmp_path: Path) -> None:
    """An offload that failed before its index was written: the ledger isn't offloaded, or the other object counts."""
    path = write_ledger(tmp_path, 3, entries_of(b"unfinished"), name=_A)
    path.with_name(f"{path.name}-index").unlink()
    with pytest.raises(LogNotFoundError):
        values(tmp_path)
    write_ledger(tmp_path, 3, entries_of(b"whole"), name=_B)
    assert values(tmp_path) == [b"whole"]


@pytest.mark.parametrize("listed", [False, True])
def test_missing_ledger_is_data_loss(tmp_path: Path, listed: bool) -> None:
    """Delete the data of a ledger in the middle: reads that touch it say which is lost, others don't care."""
    for ledger, name in ((3, _A), (5, _B), (8, _A)):
        path = write_ledger(tmp_path, ledger, entries_of(b"a", b"b"), name=name)
        if ledger == 5:
            path.unlink()
            if listed:
                path.with_name(f"{path.name}-index").unlink()
    options = {"ledgers": info((3, 2, _A), (5, 2, _B), (8, 2, _A))} if listed else {}
    partition = only_topic(tmp_path, **options)
    of = whole(partition)
    assert of == PositionRange(Position(3, 0), Position(8, 2))
    with pytest.raises(DataLossError, match=rf"Ledger 5 of {TOPIC}, \[5:0, 5:2\)") as caught:
        partition.units(of, 1 << 20)
    assert caught.value.lost == PositionRange(Position(5, 0), Position(5, 2))
    for start, end in ((Position(3, 0), Position(5, 0)), (Position(5, 2), Position(8, 2))):
        assert len(rows_of(partition, PositionRange(start, end), columns=("value",))) == 2


def test_list_says_what_counts(tmp_path: Path) -> None:
    """A trimmed ledger's object that is still there is left out; behind the first that isn't offloaded nothing is."""
    for ledger in (2, 3, 5, 9):
        write_ledger(tmp_path, ledger, entries_of(b"%d" % ledger), name=_A)
    listed = info((3, 1, _A), (4, 0, None), (5, 1, _A), (7, 10, None), (9, 1, _A), (11, 0, None))
    partition = only_topic(tmp_path, ledgers=listed)
    assert [ledger.ledger_id for ledger in partition.ledgers.ledgers] == [3, 5]
    assert partition.ledgers.next_ledger == 7
    assert str(partition.bounds().log_end) == "5:1"
    [partition] = partitions(log_of(tmp_path, ledgers=info((11, 0, None))))
    assert str(partition.bounds().log_start) == str(partition.bounds().log_end) == "11:0"


def test_list_of_a_partitioned_topic() -> None:
    """The list of a partitioned topic has those of its partitions; one that isn't there is refused."""
    name = f"{TOPIC}-partition-0"
    text = json.dumps({"partitions": {name: json.loads(info((3, 1, _A))[TOPIC])}})
    assert [ledger.uuid for ledger in parse_info(text, name)] == [str(_A)]
    with pytest.raises(InvalidArgumentError, match="partition-0, not"):
        parse_info(text, TOPIC)


@for_each("text", ["", "[]", "{}", '{"ledgers": 3}', '{"ledgers": [3]}', '{"ledgers": [{"entries": 1}]}'])
def test_list_that_is_none(text: str) -> None:
    """Give something else as the list of ledgers."""
    with pytest.raises(InvalidArgumentError, match="info-internal"):
        parse_info(text)


@for_each("text", ["", "3", "{}", '{"topicName": "a"}', '{"topicName": "a", "aborts": [1]}'])
def test_snapshot_that_is_none(text: str) -> None:
    """Give something else as a snapshot."""
    with pytest.raises(InvalidArgumentError, match="__transaction_buffer_snapshot"):
        parse_snapshot(text)


def test_snapshot_in_segments() -> None:
    """A segmented snapshot needs its segments; with them, all aborted transactions count."""
    body = {
        "aborts": [{"mostSigBits": 0, "leastSigBits": 4}],
        "maxReadPositionLedgerId": 3,
        "maxReadPositionEntryId": 9,
    }
    given: dict[str, Any] = {"topicName": TOPIC, "indexList": [{"sequenceID": 0}], "snapshot": body}
    with pytest.raises(InvalidArgumentError, match="lists 1 segments, and 0 are given"):
        parse_snapshot(given)
    segment = {"aborts": [{"mostSigBits": 1, "leastSigBits": 2}]}
    found = parse_snapshot(given | {"segments": [segment]})
    assert found.aborted == {4, (1 << 47) + 2}
    assert found.last_key == Position(3, 9).key


def test_map_file_that_is_being_written(tmp_path: Path) -> None:
    """Cut the last MapFile anywhere, with an index that isn't closed: the topic ends before it, and others are read.

    With a closed index, or where the managed ledger's list says that it is offloaded, it is damaged.
    """
    wanted = [b"%d" % at for at in range(20)]
    write_map_file(tmp_path, entries_of(*wanted))
    path = write_map_file(tmp_path, entries_of(*wanted), ledger=9)
    sound, index = path.read_bytes(), path.with_name("index")
    for end in (0, 3, 100, sound.rindex(bytes(range(100, 116))) - 4, len(sound) - 1):
        path.write_bytes(sound[:end])
        for unfinished in (b"", map_index(closed=False)[:30], map_index(closed=False)):
            index.write_bytes(unfinished)
            assert values(tmp_path) == wanted
            partition = only_topic(tmp_path)
            assert str(partition.bounds().log_end) == "4:20"
            assert partition.ledgers.next_ledger == 9
            with pytest.raises(SegmentUnreadableError, match=f"9-{_A}/data is damaged"):
                values(tmp_path, ledgers=info((4, 20, _A), (9, 20, _A)))
        index.write_bytes(map_index(closed=True))
        with pytest.raises(SegmentUnreadableError, match=f"9-{_A}/data is damaged"):
            values(tmp_path)
    other = tmp_path / "public/default/persistent/other" / f"11-{_B}" / "data"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"")
    other.with_name("index").write_bytes(b"")
    index.write_bytes(b"")
    path.write_bytes(sound)
    assert values(tmp_path) == wanted * 2
    first = tmp_path / f"public/default/persistent/orders/4-{_A}"
    (first / "index").write_bytes(b"")
    (first / "data").write_bytes(b"")
    with pytest.raises(SegmentUnreadableError, match=f"4-{_A}/data is damaged"):
        values(tmp_path)


def test_streaming_offloader_is_refused(tmp_path: Path) -> None:
    """Objects of the streaming offloader are refused by the ledgers that their index names, and never passed over."""
    write_ledger(tmp_path, 3, entries_of(b"a"), name=_A)
    streamed = struct.pack(">Iiqq", 0x3D1FB0BC, 0, 1000, 128)
    for ledger in (5, 9):
        streamed += struct.pack(">qii", ledger, 2, 4) + b"\x08\x05\x10\x02" + struct.pack(">qiq", 0, 1, 0) * 2
    (tmp_path / f"{_B}").write_bytes(b"")
    (tmp_path / f"{_B}-index").write_bytes(streamed)
    with pytest.raises(LogVersionError, match=f"{_B}-index was written by Pulsar's streaming offloader"):
        values(tmp_path)
    assert values(tmp_path, ledgers=info((3, 1, _A))) == [b"a"]
    with pytest.raises(LogVersionError, match="streaming offloader"):
        values(tmp_path, ledgers=info((3, 1, _A), (5, 4, _B)))
    (tmp_path / "only").mkdir()
    (tmp_path / f"{_B}-index").rename(tmp_path / "only" / f"{_B}-index")
    with pytest.raises(LogVersionError, match="streaming offloader"):
        log_of(tmp_path / "only").partitions()


def test_index_whose_data_is_gone_beside_a_whole_object(tmp_path: Path) -> None:
    """A repeated offload deleted the data of the first try and not its index yet: there is one object to read."""
    path = write_ledger(tmp_path, 3, entries_of(b"first"), name=_A)
    path.unlink()
    write_ledger(tmp_path, 3, entries_of(b"second"), name=_B)
    assert values(tmp_path) == [b"second"]


def test_objects_beyond_two_gib(tmp_path: Path) -> None:
    """Read blocks that begin and end beyond 2 GiB and 4 GiB of an object; filler in between isn't read."""
    parts = [entries_of(b"a", b"b"), entries_of(b"c"), entries_of(b"d", b"e")]
    flat = [entry for part in parts for entry in part]
    path = write_ledger(tmp_path, 3, flat, name=_A)
    starts, at = (0, (2 << 30) + 7, (4 << 30) + 100), 0
    table = b""
    with path.open("wb") as file:
        for part, start, end in zip(parts, starts, (*starts[1:], None), strict=True):
            body = b"".join(struct.pack(">iq", len(e), at + n) + e for n, e in enumerate(part))
            size = (end or start + 128 + len(body)) - start
            file.seek(start)
            file.write(struct.pack(">Iqqq", 0xFBDBABCB, 128, size, at).ljust(128, b"\0") + body)
            if end is not None:
                file.write(b"\xfe\xdc\xde\xad")
            table += struct.pack(">qiq", at, 1, start)
            at += len(part)
        total = file.tell()
    metadata = ledger_metadata("public/default/persistent/orders", flat)
    head = struct.pack(">IiqqiI", 0xDE47DE47, 32 + len(metadata) + len(table), total, 128, 3, len(metadata))
    path.with_name(f"{path.name}-index").write_bytes(head + metadata + table)
    assert values(tmp_path) == [b"a", b"b", b"c", b"d", b"e"]
    partition = only_topic(tmp_path)
    of = PositionRange(Position(3, 4), Position(3, 5))
    assert [row["value"] for row in rows_of(partition, of, columns=("value",), unit_bytes=1)] == [b"e"]


def _change(path: Path, at: int, data: bytes) -> None:
    old = path.read_bytes()
    path.write_bytes(old[:at] + data + old[at + len(data) :])


def test_damaged_index(tmp_path: Path) -> None:
    """Damage an index: it is said when a topic is opened that it may belong to."""
    path = write_ledger(tmp_path, 3, entries_of(b"a"), name=_A)
    write_ledger(tmp_path, 4, entries_of(b"b"), name=_B)
    index = path.with_name(f"{path.name}-index")
    sound = index.read_bytes()
    for what, data in {
        "too few bytes": sound[:20],
        "begins with": b"\0" + sound[1:],
        "with 1 blocks": sound[:-1],
        "can't be parsed": sound[:32] + b"\xff" * 4 + sound[36:],
        "don't follow": sound[:-8] + struct.pack(">q", 5),
        "which is no topic": sound.replace(b"persistent/orders", b"persistent-orders"),
        "not closed": sound.replace(number(5, 3) + b"\x32", number(5, 1) + b"\x32"),
    }.items():
        index.write_bytes(data)
        with pytest.raises(SegmentUnreadableError, match=f"-index .*{what}|-index is damaged.*too few"):
            values(tmp_path)
        assert values(tmp_path, ledgers=info((4, 1, _B))) == [b"b"]
    index.write_bytes(struct.pack(">I", 0x3D1FB0BC) + sound[4:])
    with pytest.raises(LogVersionError, match="streaming offloader"):
        values(tmp_path)


def test_damaged_data_object(tmp_path: Path) -> None:
    """Damage block headers and entries' frames, and cut the object: the error names object and byte."""
    path = write_ledger(tmp_path, 3, entries_of(b"a" * 50, b"b" * 50, b"c" * 50), block_bytes=300)
    sound = path.read_bytes()
    second = sound.index(struct.pack(">I", 0xFBDBABCB), 4)
    for at, data, what in (
        (0, b"\0", "the block at byte 0 begins with 00dbabcb"),
        (second + 19, b"\x77", f"the block at byte {second} has a header of 128 bytes"),
        (second + 27, b"\x09", f"the block at byte {second} has .* first entry 9"),
        (128, b"\x00\x00\x00\x00", "has entry .* at byte"),
        (139, b"\x05", "has entry 5 of .* bytes at byte 128, where entry 0 should be"),
        (128, b"\xfe\xdc\xde\xad", "has filler at byte 128"),
        (128, b"\x7f\xff\xff\xff", "is cut in entry 0"),
        (200, b"\x00", "CRC-32C"),
    ):
        _change(path, at, data)
        with pytest.raises(SegmentUnreadableError, match=what):
            values(tmp_path)
        path.write_bytes(sound)
    path.write_bytes(sound[:-1])
    with pytest.raises(SegmentUnreadableError, match=f"it has {len(sound) - 1} bytes, and its index says {len(sound)}"):
        values(tmp_path)
    path.write_bytes(sound)
    assert len(values(tmp_path)) == 3


def test_index_that_has_fewer_entries(tmp_path: Path) -> None:
    """An index has no checksum: one that says of fewer entries than there are must not hide the others."""
    path = write_ledger(tmp_path, 3, entries_of(b"a", b"b", b"c"))
    index = path.with_name(f"{path.name}-index")
    sound = index.read_bytes()
    index.write_bytes(sound.replace(number(4, 2) + number(5, 3), number(4, 1) + number(5, 3)))
    with pytest.raises(SegmentUnreadableError, match=r"has more at byte .*, behind the last entry"):
        values(tmp_path)
    index.write_bytes(sound.replace(number(4, 2) + number(5, 3), number(4, 3) + number(5, 3)))
    with pytest.raises(SegmentUnreadableError, match="is cut in entry 3"):
        values(tmp_path)


def test_object_that_goes_away(tmp_path: Path) -> None:
    """Delete an object after the log was opened: that is data loss, and not damage."""
    path = write_ledger(tmp_path, 3, entries_of(b"a"))
    partition = only_topic(tmp_path)
    path.unlink()
    with pytest.raises(DataLossError, match="-ledger-3 is gone"):
        partition.bounds()


def test_damaged_map_file(tmp_path: Path) -> None:
    """Cut a SequenceFile, take its sync marker away, and give it another codec or version."""
    path = write_map_file(tmp_path, entries_of(*(b"%d" % at for at in range(20))))
    sound = path.read_bytes()
    sync = bytes(range(100, 116))
    for data, error, what in (
        (sound[:-5], SegmentUnreadableError, "it is cut"),
        (sound[: sound.rindex(sync) - 4], SegmentUnreadableError, "it ends before entry"),
        (sound.replace(sync, sync[::-1], 1), SegmentUnreadableError, "no sync marker"),
        (b"SEQ\x05" + sound[4:], LogVersionError, "version 5"),
        (b"PAR1" + sound[4:], SegmentUnreadableError, "isn't a SequenceFile"),
        (sound.replace(b"DefaultCodec", b"SecretCodec0"), LogVersionError, "SecretCodec0"),
        (sound + sound[sound.index(sync) + 16 :], SegmentUnreadableError, "more than the 20 entries"),
        (sound.replace(b"BytesWritable", b"BooleWritable"), SegmentUnreadableError, "not an offloaded ledger"),
    ):
        path.write_bytes(data)
        with pytest.raises(error, match=what):
            values(tmp_path)


def test_partitions_by_their_names() -> None:
    """A partition's number is what Pulsar writes as one; other topics may end alike."""
    assert partition_of("persistent://t/n/a-partition-10") == PartitionName("persistent://t/n/a", 10)
    for topic in ("a-partition-01", "a-partition-", "a-partition-x", "a-partition--1", "-partition"):
        assert partition_of(f"persistent://t/n/{topic}") == PartitionName(f"persistent://t/n/{topic}", -1)


@pytest.mark.parametrize(
    ("managed", "topic"),
    [
        ("t/n/persistent/a", "persistent://t/n/a"),
        ("t/n/persistent/a%2Fb%25", "persistent://t/n/a/b%"),
        ("t/n/persistent/a+b%2Bc", "persistent://t/n/a b+c"),
        ("t/cluster/n/persistent/a", "persistent://t/cluster/n/a"),
    ],
)
def test_topics_of_managed_ledgers(managed: str, topic: str) -> None:
    """A managed ledger's name has the topic's, escaped as in a URL; old ones have a cluster, too."""
    assert topic_of(managed, "x") == topic


def test_ids_that_positions_cannot_have(tmp_path: Path) -> None:
    """A ledger id beyond 2^31 is refused in words."""
    write_ledger(tmp_path, 1 << 31, entries_of(b"a"))
    write_ledger(tmp_path, 3, entries_of(b"a"))
    with pytest.raises(LogVersionError, match="ledger 2147483648"):
        values(tmp_path)


def test_units_are_of_the_size_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut a ledger into units: they make up the range, know their rows, and begin in the middle of a block."""
    monkeypatch.setattr("txn_source.foreign.pulsar.summary.STRETCH_BYTES", 2000)
    monkeypatch.setattr("txn_source.foreign.pulsar.data_object.PIECE_BYTES", 1500)
    sent = [[Sent(b"%d.%d" % (at * 7919, n) * 9) for n in range(5)] for at in range(80)]
    write_ledger(tmp_path, 3, [batch(messages, Frame(codec=LZ4)) for messages in sent], block_bytes=4000)
    partition = only_topic(tmp_path)
    of = whole(partition)
    units = partition.units(of, 3000)
    assert len(units) > 3
    assert [unit.of.start for unit in units] == [of.start, *(unit.of.end for unit in units[:-1])]
    assert units[-1].of.end == of.end
    assert sum(unit.rows for unit in units) == 400
    assert max(unit.bytes for unit in units) < 5000
    assert all(unit.at > 128 for unit in units[1:])
    units, decided = pickle.loads(pickle.dumps((units, partition.decisions(of))))
    for unit in units:
        rows = [r for b in partition.read(unit, UNCOMMITTED, decided, ("value",)) for r in b.column(0).to_pylist()]
        wanted = sent[unit.of.start.entry_id : unit.of.end.entry_id]
        assert rows == [message.value for messages in wanted for message in messages]


def test_first_entry_after_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers' clocks differ: the first entry at or after a time is found, wherever later ones lie."""
    monkeypatch.setattr("txn_source.foreign.pulsar.summary.STRETCH_BYTES", 100)
    times = [10, 30, 20, 50, 40, 60]
    for ledger in (3, 4):
        frames = [Frame(publish_time=time + 100 * (ledger - 3)) for time in times]
        write_ledger(tmp_path, ledger, [single(Sent(b"v" * 60), frame) for frame in frames])
    partition = only_topic(tmp_path)
    for time in range(0, 170, 5):
        places = [(ledger, at) for ledger in (3, 4) for at in range(6) if times[at] + 100 * (ledger - 3) >= time]
        assert partition.position_at(time) == (Position(*places[0]) if places else None)
    assert raw_entries.PIECE_BYTES > 1 << 20


def test_summaries_of_others_are_taken(tmp_path: Path) -> None:
    """Give what was learnt of a ledger elsewhere: it isn't looked at again."""
    path = write_ledger(tmp_path, 3, entries_of(b"a", b"b"))
    partition = only_topic(tmp_path)
    [other] = partitions(log_of(tmp_path))
    other.add_summaries(pickle.loads(pickle.dumps(partition.summaries())))
    path.unlink()
    assert other.bounds() == partition.bounds()
    assert [unit.rows for unit in other.units(whole(other), 1 << 20)] == [2]
