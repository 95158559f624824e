"""Each value that has a number on the wire, and each number that has a value."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from tests.selection import for_each
from txn_source import InternalError
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import enums
from txn_source.model.copies import Tier
from txn_source.model.isolation import IsolationLevel
from txn_source.model.policies import DEFAULT, SOURCES
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.read_priority import ReadPriority
from txn_source.model.subscription import SubscriptionType
from txn_source.model.transaction import EndReason, TransactionState
from txn_source.model.verdict import Doom, Verdict

VALUES: dict[str, tuple[Any, list[Any]]] = {
    "TransactionState": (enums.TRANSACTION_STATE, list(TransactionState)),
    "EndReason": (enums.END_REASON, list(EndReason)),
    "IsolationLevel": (enums.ISOLATION_LEVEL, list(IsolationLevel)),
    "SubscriptionType": (enums.SUBSCRIPTION_TYPE, list(SubscriptionType)),
    "Tier": (enums.TIER, list(Tier)),
    "TopicEnd": (enums.TOPIC_END, [EARLIEST, LATEST]),
    "ReadPriority": (enums.READ_PRIORITY, list(ReadPriority)),
    "FileVerdict": (enums.FILE_VERDICT, list(Verdict)),
    "FileDoom": (enums.FILE_DOOM, list(Doom)),
    "PolicySource": (enums.POLICY_SOURCE, [*SOURCES, DEFAULT]),
}


def test_every_enum_of_the_wire_is_converted() -> None:
    """Compare with the descriptors."""
    assert set(VALUES) == set(pb.DESCRIPTOR.enum_types_by_name)


@for_each("name", VALUES)
def test_each_value_has_its_number_and_back(name: str) -> None:
    """Convert all values, and all numbers, whose names say the same."""
    converted, values = VALUES[name]
    described = pb.DESCRIPTOR.enum_types_by_name[name]
    assert {converted.to_wire(value) for value in [None, *values]} == set(described.values_by_number)
    for value in values:
        number = converted.to_wire(value)
        text = value if isinstance(value, str) or not isinstance(value, Enum) else value.value
        assert described.values_by_number[number].name.endswith(f"_{text.upper().replace('-', '_')}")
        assert converted.from_wire(number) is converted.given(number) is value
    assert converted.from_wire(0) is None


@for_each("name", VALUES)
def test_number_of_a_newer_release_is_an_error_of_ours(name: str) -> None:
    """Convert a number that nobody has, and none where there must be one."""
    converted, _ = VALUES[name]
    with pytest.raises(InternalError, match="99, which this release doesn't know"):
        converted.from_wire(99)
    with pytest.raises(InternalError, match="where there must be one"):
        converted.given(0)
