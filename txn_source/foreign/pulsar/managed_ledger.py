"""What Pulsar says about a topic besides its objects: the list of its ledgers, and its transaction buffer's snapshot.

Both are options, given as the JSON that Pulsar's tools print.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txn_source.foreign.pulsar.entries import txn_bits, txn_number
from txn_source.foreign.pulsar.snapshot_messages import decode_message
from txn_source.model.errors import InvalidArgumentError, shown
from txn_source.model.position import Position

_SNAPSHOT = "Give messages of the namespace's __transaction_buffer_snapshot topics, as JSON or their bytes as base64."
_ASK = "Give what `pulsar-admin topics info-internal` prints"


@dataclass(frozen=True, slots=True)
class ListedLedger:
    """A ledger as its managed ledger lists it; ``uuid`` is that of its object, None if it isn't offloaded."""

    ledger_id: int
    entries: int
    uuid: str | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a topic's transaction buffer: what is aborted, and the last key up to which all is decided."""

    topic: str
    last_key: int
    aborted: frozenset[int]


def parse_info(text: str | Mapping[str, Any], topic: str | None = None) -> list[ListedLedger]:
    """Return the ledgers of a topic from its ``internalInfo``.

    Args:
        text: the JSON, or what it says; that of a partitioned topic has all its partitions.
        topic: the full name of the topic, or of the partition, if the JSON has several.

    Raises:
        InvalidArgumentError: it is none, or has nothing of the topic.
    """
    info = _object(text, f"{_ASK}.")
    partitions = info.get("partitions")
    if isinstance(partitions, Mapping):
        if topic not in partitions:
            raise InvalidArgumentError(
                f"The list of ledgers has partitions {', '.join(sorted(partitions)) or 'none'}, not {topic}.",
                f"{_ASK} for the topic.",
            )
        info = partitions[topic]
    ledgers = info.get("ledgers") if isinstance(info, Mapping) else None
    if not isinstance(ledgers, Sequence) or isinstance(ledgers, str):
        raise InvalidArgumentError("The list of ledgers has no 'ledgers'.", f"{_ASK}.")
    found = []
    for ledger in ledgers:
        try:
            offloaded = bool(ledger.get("isOffloaded", ledger.get("offloaded", False)))
            uuid = ledger.get("offloadedContextUuid") if offloaded else None
            found.append(ListedLedger(int(ledger["ledgerId"]), int(ledger.get("entries", 0)), uuid and uuid.lower()))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InvalidArgumentError(f"The list of ledgers has {shown(str(ledger))}.", f"{_ASK}.") from None
    return sorted(found, key=lambda ledger: ledger.ledger_id)


def parse_snapshots(given: Sequence[Any]) -> dict[str, Snapshot]:
    """Return the newest snapshot of each topic.

    Args:
        given: of each what ``parse_snapshot`` takes, or an object that has it as ``snapshot``; or a message's bytes as
            base64. Segments may be among them by themselves.

    Raises:
        InvalidArgumentError: one is none of these, or segments of the newest one aren't there.
    """
    bare = [_bare(item) for item in given]
    segments = {(str(s["topicName"]), str(s["sequenceId"])): s for s in bare if _is_segment(s)}
    newest: dict[str, Snapshot] = {}
    for item in bare:
        if _is_segment(item):
            continue
        found = parse_snapshot(_with_segments(item, segments))
        before = newest.get(found.topic)
        if before is None or before.last_key <= found.last_key:
            newest[found.topic] = found
    return newest


def _with_segments(
    given: Mapping[str, Any], segments: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return a snapshot with those of its segments that are given by themselves, if it has none."""
    if not given.get("indexList") or "segments" in given:
        return given
    try:
        wanted = [(str(given["topicName"]), str(index["sequenceID"])) for index in given["indexList"]]
    except (AttributeError, KeyError, TypeError):
        raise InvalidArgumentError(f"{shown(str(given))} is not a snapshot.", _SNAPSHOT) from None
    return {**given, "segments": [segments[name] for name in wanted if name in segments]}


def _bare(item: Any) -> Mapping[str, Any]:
    """Return a snapshot without what tools put around it."""
    if isinstance(item, str) and not item.lstrip().startswith("{"):
        return from_message(item)
    given = _object(item, _SNAPSHOT)
    if "topicName" not in given and isinstance(given.get("snapshot"), (Mapping, str)):
        return _bare(given["snapshot"])
    return given


def _is_segment(given: Mapping[str, Any]) -> bool:
    return "sequenceId" in given and "topicName" in given and "maxReadPositionLedgerId" not in given


def from_message(text: str) -> Mapping[str, Any]:
    """Return the snapshot, or part of one, in a message of the system topics, given as base64."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    found = decode_message(data)
    if found is None:
        raise InvalidArgumentError(f"{shown(text)} is not a snapshot.", _SNAPSHOT)
    return found


def parse_snapshot(text: str | Mapping[str, Any]) -> Snapshot:
    """Return a snapshot of a transaction buffer, of either kind that Pulsar writes.

    Args:
        text: JSON of a ``TransactionBufferSnapshot``, or of a ``TransactionBufferSnapshotIndexes``; the latter, if it
            lists segments, with these as ``segments``.

    Raises:
        InvalidArgumentError: it is none, or its segments aren't all there.
    """
    given = _object(text, _SNAPSHOT)
    try:
        topic = str(given["topicName"])
        body, segments = given, []
        if "snapshot" in given:
            body, segments = given["snapshot"], list(given.get("segments", ()))
            if len(segments) != len(given.get("indexList") or ()):
                raise InvalidArgumentError(
                    f"The snapshot of {topic} lists {len(given['indexList'])} segments, and {len(segments)} are given.",
                    "Give all of them as 'segments'.",
                )
        pairs = [txn for part in (body, *segments) for txn in part.get("aborts") or ()]
        ledger, entry = int(body["maxReadPositionLedgerId"]), int(body["maxReadPositionEntryId"])
        return Snapshot(topic, Position(ledger, entry).key, frozenset(txn_number(*_halves(txn)) for txn in pairs))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(f"{shown(str(text))} is not a snapshot.", _SNAPSHOT) from None


def _halves(txn: Mapping[str, Any]) -> tuple[int, int]:
    names = ("txnIdMostBits", "txnIdLeastBits") if "txnIdMostBits" in txn else ("mostSigBits", "leastSigBits")
    most, least = (int(txn[name]) for name in names)
    if txn_bits(txn_number(most, least)) != (most, least) or most < 0 or txn_number(most, least) >= 1 << 63:
        raise ValueError
    return most, least


def _object(text: str | Mapping[str, Any], remedy: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        raise InvalidArgumentError(f"{shown(str(text))} is not a JSON object.", remedy)
    return found
