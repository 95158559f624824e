"""The tree of errors: codes, texts, and that they survive the way between Spark's processes."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from tests.selection import for_each
from txn_source.model import errors
from txn_source.model.errors import ERROR_CLASSES, InternalError, TransactionEndedError, TxnLogError

CONTRACT = {
    "LOG_NOT_FOUND",
    "TOPIC_NOT_FOUND",
    "TOPIC_EXISTS",
    "INVALID_ARGUMENT",
    "SCHEMA_MISMATCH",
    "OUT_OF_RANGE",
    "TXN_NOT_FOUND",
    "TXN_ENDED",
    "TXN_TIMED_OUT",
    "PRODUCER_FENCED",
    "SEGMENT_UNREADABLE",
    "MESSAGE_UNREADABLE",
    "DATA_LOSS",
    "UNAVAILABLE",
}
"""Codes that other programs rely on. Those of subscriptions come with the subscriptions."""


def test_codes_of_the_contract_are_there() -> None:
    """Look for each code that the public contract names."""
    assert CONTRACT - set(ERROR_CLASSES) == set()


def test_every_class_has_a_code_of_its_own_and_is_listed() -> None:
    """Collect the classes of the module by themselves, and compare with the table that the wire uses."""
    classes = {c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, TxnLogError)} - {TxnLogError}
    assert set(ERROR_CLASSES.values()) == classes
    assert {code: cls.code for code, cls in ERROR_CLASSES.items()} == {code: code for code in ERROR_CLASSES}
    assert all("code" in vars(cls) for cls in classes)


def test_picture_of_the_tree_is_true() -> None:
    """Read classes, codes and depths from the module's docstring, and compare with the classes."""
    drawn = re.findall(r"^\s*([│ ]*)[├└]── (\w+) +([A-Z_]+)", errors.__doc__ or "", re.MULTILINE)
    assert {code: name for _, name, code in drawn} == {code: cls.__name__ for code, cls in ERROR_CLASSES.items()}
    for indent, _, code in drawn:
        parents = ERROR_CLASSES[code].__mro__[1 : 2 + ("│" in indent)]
        assert parents[-1] is TxnLogError


@for_each("cls", ERROR_CLASSES.values())
def test_text_is_code_fact_and_remedy(cls: type[TxnLogError]) -> None:
    """Raise one of each class and read its text and its parts."""
    with pytest.raises(TxnLogError) as caught:
        raise cls("Topic 'a' is gone.", "Make it again.")
    error = caught.value
    assert str(error) == f"[TXNLOG_{cls.code}] Topic 'a' is gone. Make it again."
    assert (error.fact, error.remedy) == ("Topic 'a' is gone.", "Make it again.")


@pytest.mark.parametrize("cls", ERROR_CLASSES.values(), ids=ERROR_CLASSES)
@pytest.mark.parametrize("travel", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_error_survives_pickling_and_copying(cls: type[TxnLogError], travel: object) -> None:
    """Send one of each class through pickle, as Spark does between processes, and copy it."""
    error = cls("Topic 'a' is gone.", "Make it again.")
    came: TxnLogError = travel(error)  # type: ignore[operator]
    assert type(came) is cls
    assert (str(came), came.fact, came.remedy) == (str(error), error.fact, error.remedy)


def test_bad_values_are_value_errors_too() -> None:
    """Catch what Python programmers expect of a bad value."""
    assert {code for code, cls in ERROR_CLASSES.items() if issubclass(cls, ValueError)} == {
        "INVALID_ARGUMENT",
        "SCHEMA_MISMATCH",
    }


def test_timed_out_transaction_is_an_ended_one() -> None:
    """Catch a time-out where an ended transaction is expected; our own bugs are caught by nobody's."""
    assert issubclass(ERROR_CLASSES["TXN_TIMED_OUT"], TransactionEndedError)
    assert InternalError.__bases__ == (TxnLogError,)
