"""What is done for many items is begun for several at once, and told in their order."""

from __future__ import annotations

import threading

import pytest

from txn_source.client.reading.window import AT_ONCE, each

WAIT_S = 30.0


def test_results_come_in_the_order_of_the_items() -> None:
    """Let the first item end last."""
    last = threading.Event()

    def wait(item: int) -> int:
        if item == 0:
            assert last.wait(WAIT_S)
        elif item == AT_ONCE - 1:
            last.set()
        return item * item

    assert list(each(wait, range(3 * AT_ONCE))) == [item * item for item in range(3 * AT_ONCE)]


def test_no_more_are_begun_than_fit_in_the_window() -> None:
    """Take one result, and look at how many items were begun: as many as fit, and one for the one that was taken."""
    begun: list[int] = []
    before = set(threading.enumerate())

    def begin(item: int) -> int:
        begun.append(item)
        return item

    results = each(begin, range(10 * AT_ONCE))
    assert next(results) == 0
    assert set(begun) <= set(range(AT_ONCE))
    assert next(results) == 1
    assert set(begun) <= set(range(AT_ONCE + 1))
    results.close()  # type: ignore[attr-defined]
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("txnlog-window")]


def test_an_error_comes_in_its_items_turn() -> None:
    """Let one item of many fail: those before it are told, and nothing runs on."""

    def fail(item: int) -> int:
        if item == 5:
            raise ValueError(item)
        return item

    told: list[int] = []
    before = set(threading.enumerate())
    results = each(fail, range(3 * AT_ONCE))
    with pytest.raises(ValueError, match="5"):
        told.extend(results)
    assert told == [0, 1, 2, 3, 4]
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("txnlog-window")]
