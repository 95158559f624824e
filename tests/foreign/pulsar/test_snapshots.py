"""Snapshots of transaction buffers: in all forms that one gets them in, and from the brokers' own offloaded topic."""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.foreign.pulsar.offload_writer import Frame, Sent, batch, single, write_ledger
from tests.foreign.pulsar.sample_cases import log_of, partitions, rows_of, unpack, whole
from tests.foreign.pulsar.test_typed_values import avro
from tests.selection import examples
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.pulsar.managed_ledger import parse_info, parse_snapshots
from txn_source.foreign.pulsar.schema_option import parse_schema
from txn_source.foreign.pulsar.snapshot_messages import decode_message
from txn_source.model.errors import InvalidArgumentError, TxnLogError

_BASE = "public/default/persistent/"
_TOPIC = "persistent://public/default/orders"
_L, _T = "long", ["null", "string"]


def _record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f, "type": of} for f, of in fields.items()]}


_ID = _record("i", leastSigBits=_L, mostSigBits=_L)
_WHOLE = _record(
    "s",
    aborts=[
        "null",
        {"type": "array", "items": _record("a", entryId=_L, ledgerId=_L, txnIdLeastBits=_L, txnIdMostBits=_L)},
    ],
    maxReadPositionEntryId=_L,
    maxReadPositionLedgerId=_L,
    topicName=_T,
)
_AT = ("abortedMarkEntryID", "abortedMarkLedgerID", "segmentEntryID", "segmentLedgerID", "sequenceID")
_IDS = ["null", {"type": "array", "items": _ID}]
_INDEXES = _record(
    "x",
    indexList=["null", {"type": "array", "items": _record("e", **dict.fromkeys(_AT, _L))}],
    snapshot=["null", _record("m", aborts=_IDS, maxReadPositionEntryId=_L, maxReadPositionLedgerId=_L)],
    topicName=_T,
)
_SEGMENT = _record(
    "g", aborts=_IDS, persistentPositionEntryId=_L, persistentPositionLedgerId=_L, sequenceId=_L, topicName=_T
)


def snapshot(ledger: int, entry: int, *aborted: int) -> bytes:
    """Return a snapshot as a broker writes it."""
    aborts = [{"entryId": 0, "ledgerId": 9, "txnIdLeastBits": least, "txnIdMostBits": 0} for least in aborted]
    value = {"maxReadPositionEntryId": entry, "maxReadPositionLedgerId": ledger, "topicName": _TOPIC}
    return avro(_WHOLE, {**value, "aborts": aborts})


def ids(*least: int) -> list[dict[str, int]]:
    return [{"leastSigBits": bits, "mostSigBits": 0} for bits in least]


def segmented(ledger: int, entry: int, sequences: list[int], *aborted: int) -> bytes:
    at = [dict.fromkeys(_AT, 0) | {"sequenceID": number} for number in sequences]
    inner = {"aborts": ids(*aborted), "maxReadPositionEntryId": entry, "maxReadPositionLedgerId": ledger}
    return avro(_INDEXES, {"indexList": at, "snapshot": inner, "topicName": _TOPIC})


def segment(sequence: int, *aborted: int) -> bytes:
    place = {"persistentPositionEntryId": 0, "persistentPositionLedgerId": 0, "sequenceId": sequence}
    return avro(_SEGMENT, {"aborts": ids(*aborted), "topicName": _TOPIC, **place})


@pytest.mark.parametrize("name", ["txn-mix", "txn-open"])
def test_messages_of_real_brokers(name: str, tmp_path: Path) -> None:
    """Decode what brokers wrote to the topics of snapshots: it is what Pulsar's own client made of it."""
    case = unpack(name, tmp_path)
    messages = case.json("tb-snapshot.json")
    for message in messages:
        assert decode_message(base64.b64decode(message["raw"])) == message["snapshot"]
    told = [[m["snapshot"] for m in messages], messages, [m["raw"] for m in messages]]
    told.append([json.dumps(m) for m in messages])
    assert all(parse_snapshots(given) == parse_snapshots(told[0]) for given in told)


def test_tail_of_a_real_broker(tmp_path: Path) -> None:
    """Put the messages that a broker kept into the topic that it keeps them in: the tail is decided then."""
    case = unpack("txn-tail", tmp_path)
    [plain] = partitions(case.log())
    [given] = partitions(case.log(snapshots=case.snapshots()))
    wanted = rows_of(given, whole(given))
    assert len(wanted) > len(rows_of(plain, whole(plain)))
    messages = [Sent(base64.b64decode(m["raw"]), m["key"].encode()) for m in case.json("tb-snapshot.json")]
    managed = "lab/tail/persistent/__transaction_buffer_snapshot"
    write_ledger(case.folder / "objects", 7, [single(message) for message in messages], managed)
    partition = case.log().partition(plain.name)
    assert rows_of(partition, whole(partition)) == wanted


def values(folder: Path, **options: Any) -> list[bytes]:
    partition = log_of(folder, **options).partition(PartitionName(_TOPIC, -1))
    return [row["value"] for row in rows_of(partition, whole(partition), columns=("value",))]


def write_topic(folder: Path) -> None:
    """Write three transactions of which none has a marker that is offloaded."""
    entries = [single(Sent(b"%d" % at), Frame(txn=(0, at))) for at in (1, 2, 3)]
    write_ledger(folder, 5, [*entries, single(Sent(b"plain"))])


@pytest.mark.parametrize("batched", [False, True])
def test_newest_of_the_own_topic_counts(tmp_path: Path, batched: bool) -> None:
    """The brokers' topic has many snapshots of a topic, deletions, and those of others: the newest one counts."""
    write_topic(tmp_path)
    assert values(tmp_path) == []
    others = snapshot(9, 9).replace(b"orders", b"others")
    told = [snapshot(5, -1), snapshot(5, 1, 2), others, b"", b"noise", snapshot(5, 0)]
    messages = [*map(Sent, told), Sent(None)]
    entries = [batch(messages)] if batched else [single(message) for message in messages]
    write_ledger(tmp_path, 6, entries, _BASE + "__transaction_buffer_snapshot-partition-0")
    assert values(tmp_path) == [b"1"]
    assert values(tmp_path, snapshots=[base64.b64encode(snapshot(5, 3, 1)).decode()]) == [b"2", b"3", b"plain"]
    assert values(tmp_path, schema="STRING") == ["1"]
    write_ledger(tmp_path, 8, [single(Sent(snapshot(5, 3, 2)))], _BASE + "__transaction_buffer_snapshot")
    assert values(tmp_path) == [b"1", b"3", b"plain"]


def test_segments_of_the_own_topics(tmp_path: Path) -> None:
    """A snapshot in segments counts if all its segments are there, written anew or not."""
    write_topic(tmp_path)
    write_ledger(
        tmp_path, 6, [single(Sent(segmented(5, 3, [0, 1], 3)))], _BASE + "__transaction_buffer_snapshot_indexes"
    )
    own = _BASE + "__transaction_buffer_snapshot_segments"
    write_ledger(tmp_path, 7, [single(Sent(segment(0, 1, 2))), single(Sent(segment(0, 1)))], own)
    assert values(tmp_path) == []
    write_ledger(tmp_path, 8, [single(Sent(segment(1)))], own)
    assert values(tmp_path) == [b"2", b"plain"]


def test_segments_that_are_given(tmp_path: Path) -> None:
    """Give segments beside their index, in any order; without them the snapshot is refused."""
    write_topic(tmp_path)
    told = [base64.b64encode(data).decode() for data in (segment(4, 1), segmented(5, 3, [4], 3))]
    assert values(tmp_path, snapshots=told) == values(tmp_path, snapshots=told[::-1]) == [b"2", b"plain"]
    with pytest.raises(InvalidArgumentError, match="lists 1 segments, and 0 are given"):
        values(tmp_path, snapshots=told[1:])
    for noise in ("AAAA", "not base64!", base64.b64encode(snapshot(1, 1)[:-1]).decode()):
        with pytest.raises(InvalidArgumentError, match="is not a snapshot"):
            values(tmp_path, snapshots=[noise])


_NAMES = """topicName snapshot indexList segments aborts sequenceId sequenceID mostSigBits leastSigBits version ledgers
maxReadPositionLedgerId maxReadPositionEntryId ledgerId type schema"""
_KEYS = st.sampled_from(_NAMES.split())
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "a", "AVRO", "{}", "t://a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=6),
    max_leaves=20,
)


_NUMBERS = ("maxReadPositionLedgerId", "maxReadPositionEntryId", "txnIdMostBits", "txnIdLeastBits")


@pytest.mark.parametrize("field", _NUMBERS)
@pytest.mark.parametrize("value", [1 << 63, 1 << 80, -2, "x", None])
def test_numbers_that_no_snapshot_has(field: str, value: Any) -> None:
    """A position or an id that can't be is refused, before it is compared with any."""
    given_: dict[str, Any] = dict.fromkeys(_NUMBERS, 1) | {field: value}
    abort = {name: given_.pop(name) for name in _NUMBERS[2:]}
    with pytest.raises(InvalidArgumentError):
        parse_snapshots([{"topicName": _TOPIC, "aborts": [abort], **given_}])


@settings(suppress_health_check=list(HealthCheck), max_examples=examples(40), deadline=None)
@given(_JSON)
def test_any_json_is_taken_or_refused(given_: Any) -> None:
    """Give JSON of any shape as snapshots, as a list of ledgers and as a schema: no error but ours comes out."""
    for parse in (
        lambda: parse_snapshots(given_ if isinstance(given_, list) else [given_]),
        lambda: parse_info(given_, _TOPIC),
        lambda: parse_schema(given_, _TOPIC),
    ):
        with contextlib.suppress(TxnLogError):
            parse()
