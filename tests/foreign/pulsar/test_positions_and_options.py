"""Positions as Pulsar's clients give them, and the options that opening needs, given as JSON or by a file of it."""

from __future__ import annotations

import base64
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_source
from tests.foreign.pulsar.offload_writer import Frame, Sent, batch, marker, number, single, write_ledger
from tests.foreign.pulsar.test_objects import TOPIC, info
from tests.selection import for_each
from txn_source.foreign.pulsar.format import FORMAT
from txn_source.foreign.pulsar.message_ids import point_of
from txn_source.foreign.read_only_log import ReadOnlyLog
from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import DataLossError, InvalidArgumentError, SchemaMismatchError
from txn_source.model.position import MessageId, Position

_BYTES = number(1, 12) + number(2, 40) + number(3, -1) + number(4, 0)
_INSIDE = number(1, 12) + number(2, 40) + number(4, 3)
_LAST = (1 << 63) - 1


@for_each(
    "given",
    [
        "12:40",
        " 12:40 ",
        "12:40:0",
        "12:40:-1",
        "12:40:-1:-1",
        "12:40:7:0",
        "(12,40,-1,-1)",
        "(12, 40, 3, 0)",
        Position(12, 40),
        MessageId(12, 40, 0),
        _BYTES,
        base64.b64encode(_BYTES).decode(),
        base64.urlsafe_b64encode(_BYTES).decode(),
        number(1, 12) + number(2, 40),
    ],
)
def test_forms_of_message_ids(given: Any) -> None:
    """Each form of a message id names its entry."""
    assert point_of(given) == Position(12, 40)


@for_each(
    ("given", "wanted"),
    [
        ("(-1,-1,-1,-1)", "earliest"),
        (number(1, -1) + number(2, -1) + number(3, -1), "earliest"),
        (base64.b64encode(number(1, _LAST) + number(2, _LAST)).decode(), "latest"),
        (f"{_LAST}:{_LAST}:-1", "latest"),
        ("Latest", "latest"),
    ],
)
def test_ends_as_message_ids(given: Any, wanted: str) -> None:
    """Pulsar has ids of its own for both ends."""
    assert point_of(given) == wanted


@for_each("given", ["", "12", "12:", "12:40:3:4:5", "AAAA", "orders", b"", b"\xff", 12, None, number(1, 12)])
def test_what_is_no_message_id(given: Any) -> None:
    """Give something else."""
    with pytest.raises(InvalidArgumentError, match="is not a position"):
        point_of(given)


@for_each(
    "given",
    ["12:40:-1:3", "12:40:7:3", "(12,40,-1,3)", MessageId(12, 40, 3), _INSIDE, base64.b64encode(_INSIDE).decode()],
)
def test_ids_inside_a_batch(given: Any) -> None:
    """An id inside a batch names its message."""
    assert point_of(given) == MessageId(12, 40, 3)


def test_ids_that_may_mean_two_places() -> None:
    """Pulsar's clients print the partition where txnlog prints the index: the error says how to write both."""
    with pytest.raises(InvalidArgumentError, match=r"partition 3, or of message 3.*Use 12:40 for.*12:40:-1:3 for"):
        point_of("12:40:3")


def scanned(path: Path, options: dict[str, str], **arguments: Any) -> list[Any]:
    target = ForeignTarget.parse(f"pulsar:{path}", options)
    with ReadOnlyLog(target) as log:
        return [row["value"] for row in log.scan("orders", columns=["value"], **arguments).read_all().to_pylist()]


def test_reads_between_message_ids(tmp_path: Path) -> None:
    """Read from one message id to another, given as a client gives them."""
    write_ledger(tmp_path, 12, [batch([Sent(b"%d" % at), Sent(b"x")]) for at in range(9)])
    start, end = base64.b64encode(number(1, 12) + number(2, 3)).decode(), "(12,5,-1,0)"
    assert scanned(tmp_path, {}, start=start, end=end) == [b"3", b"x", b"4", b"x"]
    assert scanned(tmp_path, {}, start={TOPIC: {-1: "12:8:-1"}}) == [b"8", b"x"]


def test_options_by_json_and_by_file(tmp_path: Path) -> None:
    """Give the managed ledger's list, snapshots and a schema as JSON, by the path and by the URI of a file."""
    names = [uuid.UUID(int=at) for at in (1, 2, 3)]
    for ledger, name in zip((3, 4, 5), names, strict=True):
        write_ledger(tmp_path, ledger, [single(Sent(b"\0\0\0" + bytes([ledger])), Frame(txn=(0, ledger)))], name=name)
    [listed] = [json.loads(text) for text in info((3, 1, names[0]), (4, 1, names[1]), (9, 0, None)).values()]
    snapshot = {"topicName": TOPIC, "maxReadPositionLedgerId": 4, "maxReadPositionEntryId": 0, "aborts": []}
    schema = {"type": "INT32", "schema": "", "properties": {}}
    forms: dict[str, list[Any]] = {
        "managedLedgers": [listed, {TOPIC: listed}, {TOPIC: {"internalInfo": listed, "offload": 3}}],
        "transactionSnapshots": [snapshot, [snapshot], [{"key": TOPIC, "snapshot": snapshot}]],
        "schema": [schema, [schema], {TOPIC: schema}],
    }
    for name, given in forms.items():
        for value in given:
            file = tmp_path / f"{name}.json"
            file.write_text(json.dumps(value))
            for text in (json.dumps(value), str(file), f"file://{file}"):
                others = {other: json.dumps(values[0]) for other, values in forms.items()}
                assert scanned(tmp_path, {**others, name: text}) == [3, 4]
    assert scanned(tmp_path, {"schema": "int32"}, isolation_level="read_uncommitted") == [3, 4, 5]


def test_list_is_read_anew(tmp_path: Path) -> None:
    """A list of ledgers in a file is read each time: what is offloaded later counts once the list says so."""
    names = [uuid.UUID(int=at) for at in (1, 2)]
    file = tmp_path / "list.json"
    for ledger, name in zip((3, 4), names, strict=True):
        write_ledger(tmp_path, ledger, [single(Sent(b"%d" % ledger))], name=name)
    options = {"managedLedgers": str(file)}
    file.write_text(json.dumps(info((3, 1, names[0]), (4, 1, None))).replace('"[', "[").replace(']"', "]"))
    assert scanned(tmp_path, options) == [b"3"]
    file.write_text(json.dumps(info((3, 1, names[0]), (4, 1, names[1]), (5, 0, None))))
    assert scanned(tmp_path, options) == [b"3", b"4"]
    file.write_text(json.dumps(info((3, 1, names[0]), (4, 1, names[0]), (5, 0, None))))
    with pytest.raises(DataLossError, match="Ledger 4"):
        scanned(tmp_path, options)


def test_topics_of_which_nothing_lies_there(tmp_path: Path) -> None:
    """A topic with a list is there before its first ledger is offloaded, and when all its objects are gone."""
    write_ledger(tmp_path, 3, [single(Sent(b"a"))], "public/default/persistent/others")
    listed = info((5, 1, None))
    parts = {f"{TOPIC}-partition-0": {"ledgers": [{"ledgerId": 7, "entries": 1, "isOffloaded": False}]}}
    for given in (listed, {"partitions": parts}, {TOPIC: {"partitions": parts}}):
        assert scanned(tmp_path, {"managedLedgers": json.dumps(given)}) == []
    with pytest.raises(DataLossError, match="Ledger 5 of"):
        scanned(tmp_path, {"managedLedgers": json.dumps(info((5, 1, uuid.UUID(int=1)), (9, 0, None)))})


@for_each(
    ("options", "message"),
    [
        ({"managedLedgers": "[]"}, "info-internal"),
        ({"managedLedgers": "{"}, "Option 'managedLedgers' is no JSON"),
        ({"managedLedgers": "/nowhere/list.json"}, "isn't there"),
        ({"managedLedgers": "odd://list"}, "odd"),
        ({"transactionSnapshots": "{}"}, "is not a snapshot"),
        ({"encrypted": "maybe"}, "Use error or keep"),
        ({"badValues": "maybe"}, "Use error or null"),
        ({"encrypted": "keep", "schema": "STRING"}, "Encrypted values are bytes"),
    ],
)
def test_options_that_are_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    """Give what an option can't be: it is said when the log is opened, or its topic."""
    write_ledger(tmp_path, 3, [single(Sent(b"a"))])
    with pytest.raises(InvalidArgumentError, match=message):
        scanned(tmp_path, options)


def test_columns_have_the_types_of_the_schema(tmp_path: Path) -> None:
    """Topics that are read together need the same types; one without a schema has bytes."""
    for ledger, topic in ((3, "orders"), (4, "others"), (5, "more")):
        write_ledger(tmp_path, ledger, [single(Sent(b"\0\0\0\7"))], f"public/default/persistent/{topic}")
    schema = {TOPIC: "INT32", TOPIC.replace("orders", "more"): {"type": "INT32"}}
    target = ForeignTarget.parse(f"pulsar:{tmp_path}", {"schema": json.dumps(schema)})
    log = target.open()
    base = TOPIC.removesuffix("orders")
    assert FORMAT.columns(log, [base + "orders", base + "more"]).field("value").type == pa.int32()
    assert FORMAT.columns(log, [base + "others"]).field("value").type == pa.binary()
    with pytest.raises(SchemaMismatchError, match=r"orders and .*others make other columns"):
        FORMAT.columns(log, [base + "orders", base + "others"])


def test_own_topics_are_read_when_they_are_named(tmp_path: Path) -> None:
    """The brokers' own topics aren't listed and match no pattern; each can be read by its name."""
    own = ("__change_events", "__transaction_buffer_snapshot", "t-sub__transaction_pending_ack")
    for ledger, topic in enumerate(("orders", *own, "transaction_coordinator_assign-partition-0")):
        write_ledger(tmp_path, ledger, [single(Sent(b"a"))], f"public/default/persistent/{topic}")
    write_ledger(tmp_path, 9, [single(Sent(b"a"))], "pulsar/system/persistent/persistent__multiTopicsReader")
    log = txn_source.connect(f"pulsar:{tmp_path}")
    assert log.topics() == ["orders"]
    for topic in own:
        assert log.count(topic) == 1


def test_marker_of_another_topic_decides_nothing(tmp_path: Path) -> None:
    """A transaction is decided on each topic by its own marker."""
    write_ledger(tmp_path, 3, [single(Sent(b"a"), Frame(txn=(0, 1)))])
    write_ledger(tmp_path, 4, [marker((0, 1), commit=True)], "public/default/persistent/other")
    assert scanned(tmp_path, {}) == []
