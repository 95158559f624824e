"""Checkpoints of earlier releases: what they hold is read, and written again as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from txn_source.client.reading.own_log import DESCRIPTION
from txn_source.foreign.source import ForeignSource
from txn_source.foreign.target import ForeignTarget
from txn_source.reading.log_source import OffsetText

TEXTS: dict[str, list[str]] = json.loads((Path(__file__).parent / "stream_offsets.json").read_text())


def text_of(kind: str) -> OffsetText:
    """Return how checkpoints over a kind of log are written."""
    if kind == "own":
        return DESCRIPTION.offsets
    return ForeignSource(ForeignTarget.parse(f"{kind}:/nowhere")).describe().offsets


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in TEXTS.items() for text in texts])
def test_text_of_an_offset_stays(kind: str, text: str) -> None:
    """Read a text and write it: byte for byte the same; that of Kafka's own connector gets a ``$log`` that is empty."""
    offset = text_of(kind).from_json(json.loads(text))
    written = json.loads(text)
    if kind != "own":
        written.setdefault("$log", {})
    assert json.dumps(text_of(kind).to_json(offset)) == json.dumps(written)
    assert text_of(kind).from_json(text_of(kind).to_json(offset)) == offset
