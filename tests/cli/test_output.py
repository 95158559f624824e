from __future__ import annotations

import enum
from dataclasses import dataclass

import pytest

from txn_source.cli.output import console, table, to_json
from txn_source.model.position import MessageId, Position, PositionRange
from txn_source.model.transaction import TransactionState, TxnId


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Inner:
    at: Position
    txn: TxnId | None


@dataclass(frozen=True)
class Outer:
    inner: tuple[Inner, ...]
    state: TransactionState
    data: bytes


def test_dataclasses_become_objects_with_positions_as_text() -> None:
    """Keys are the fields' names and ids what the API takes: convert nested values and compare."""
    value = Outer((Inner(Position(12, 40), TxnId(0, 7)), Inner(Position(1, -1), None)), TransactionState.OPEN, b"\xff")
    assert to_json(value) == {
        "inner": [{"at": "12:40", "txn": "(0,7)"}, {"at": "1:-1", "txn": None}],
        "state": "open",
        "data": {"base64": "/w=="},
    }
    assert to_json([MessageId(1, 2, 3), PositionRange(Position(1, 2), Position(1, 3)), Colour.RED]) == [
        "1:2:3",
        "[1:2, 1:3)",
        1,
    ]


def test_value_without_a_json_form_is_our_mistake() -> None:
    """Nothing is printed that a program can't read: convert a bare object."""
    with pytest.raises(TypeError, match="object has no JSON form"):
        to_json(object())


def test_table_prints_text_as_it_is_and_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    """Names from anywhere aren't markup, and a pipe has no width: print brackets and a long cell."""
    rows = table("", "Name", "Long")
    rows.add_row("[red]:smile:[/]", "x" * 1000)
    console().print(rows)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["[red]:smile:[/]", "x" * 1000]
