"""Checkpoints of earlier releases: what they hold is read, and written again as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.selection import for_each
from txn_source.client.reading.own_log import DESCRIPTION
from txn_source.foreign.source import ForeignSource
from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import InvalidArgumentError
from txn_source.reading.log_source import OffsetText

_TWO = {"epoch": 0, "decisions": 1}
NONE: dict[str, list[Any]] = {
    "own": [None, 7, [], "latest", {}, {"orders": {"0": 12}}, _TWO, {**_TWO, "epoch": "now", "positions": {}}]
    + [{**_TWO, "decisions": None, "positions": {}}, {**_TWO, "positions": []}]
    + [{**_TWO, "positions": {"orders": at}} for at in ("1:2", {"0": 12}, {"0": "12"}, {"first": "1:2"})]
    + [{**_TWO, "positions": {"a/b": {"0": "1:2"}}}],
    "kafka": [None, [], {"t": 3}, {"t": {"0": -1}}, {"t": {"0": "x"}}, {"t": {"0": 1}, "$log": 2}],
}
TEXTS: dict[str, list[str]] = json.loads((Path(__file__).parent / "stream_offsets.json").read_text())


def text_of(kind: str) -> OffsetText:
    """Return how checkpoints over a kind of log are written."""
    if kind == "own":
        return DESCRIPTION.offsets
    return ForeignSource(ForeignTarget.parse(f"{kind}:/nowhere")).describe().offsets


@for_each(("kind", "text"), [(kind, text) for kind, texts in TEXTS.items() for text in texts])
def test_text_of_an_offset_stays(kind: str, text: str) -> None:
    """Read a text and write it: byte for byte the same; that of Kafka's own connector gets a ``$log`` that is empty."""
    offset = text_of(kind).from_json(json.loads(text))
    written = json.loads(text)
    if kind != "own":
        written.setdefault("$log", {})
    assert json.dumps(text_of(kind).to_json(offset)) == json.dumps(written)
    assert text_of(kind).from_json(text_of(kind).to_json(offset)) == offset


@for_each(("kind", "value"), [(kind, value) for kind, values in NONE.items() for value in values])
def test_what_is_no_offset_is_refused(kind: str, value: Any) -> None:
    """Read what another source, or a hand, may have left in a checkpoint; the error shows it and says what to do."""
    with pytest.raises(InvalidArgumentError, match="checkpoint belongs to another query") as refused:
        text_of(kind).from_json(value)
    assert repr(value)[:200] in str(refused.value)


def test_text_is_sorted() -> None:
    """Read places in any order: they are written by topic and number."""
    places = {"refunds": {"0": "9:0"}, "orders": {"10": "3:4", "2": "1:2"}}
    written = text_of("own").to_json(text_of("own").from_json({**_TWO, "positions": places}))["positions"]
    assert json.dumps(written) == '{"orders": {"2": "1:2", "10": "3:4"}, "refunds": {"0": "9:0"}}'
