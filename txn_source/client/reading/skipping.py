"""What is known of units of a read without reading them: of partitions, ledgers, entries and row groups.

Each function returns what ``Filters`` asks for a column's bounds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from txn_source.model.kinds import ABORTED, COMMITTED, OPEN, STATES
from txn_source.model.position import entry_of, ledger_of
from txn_source.model.transaction import id_of
from txn_source.model.visibility import NO_TXN, IntArray
from txn_source.reading.filters import Bounds, Coded, Column, Columns, kind_of, ordered

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_EVENT_TIME = "__event_time"
_PREFIX = "__"
_NANOSECONDS = {"milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}
_INTEGERS = ("INT32", "INT64")
_BYTES = ("BYTE_ARRAY",)


def of_partition(topic: str, partition: int) -> Columns:
    """Return what is known of all messages of a partition; the topic by its short name."""
    constants = {
        "__topic": Bounds.constant("string", topic.encode()),
        "__partition": Bounds.constant("integer", partition),
    }
    return lambda path: constants.get(_metadata_name(path))


def of_ledgers(
    partition: Columns, ledger_ids: Any, first: Any, last: Any, times: tuple[Any, Any] | None = None
) -> Columns:
    """Return what is known of pieces of ledgers: a number for each, or for one.

    Args:
        partition: what is known of their partition.
        ledger_ids: of each piece.
        first: the first entry's id.
        last: the last entry's id, inclusive.
        times: the earliest and the latest publish time in each, or bounds of them; None: not known.
    """
    known = {
        "__ledger_id": Bounds("integer", ledger_ids, ledger_ids),
        "__entry_id": Bounds("integer", first, last),
    }
    if times is not None:
        known["__publish_time"] = Bounds("timestamp", *times)
    return lambda path: known.get(_metadata_name(path)) or partition(path)


def either(first: Columns, second: Columns) -> Columns:
    """Return what is known of columns by the first, or else by the second."""
    return lambda path: first(path) or second(path)


def is_stored(path: tuple[str, ...]) -> bool:
    """Tell whether a column is stored with messages, so that its bounds are in objects' statistics."""
    name = path[0].lower()
    return not name.startswith(_PREFIX) or name == _EVENT_TIME


class EntriesKnown:
    """What is known of entries without their messages, as ``Columns``; looked up only where a filter asks for it."""

    def __init__(
        self,
        partition: Columns,
        columns: Mapping[str, IntArray],
        producers: Mapping[int, str],
        decided: tuple[IntArray, IntArray] | None,
        payload: Columns | None,
    ) -> None:
        """Take the entries.

        Args:
            partition: what is known of their partition.
            columns: those of a page of entries.
            producers: names by id.
            decided: the aborted transactions and the committed ones, None if they aren't known.
            payload: what is known of the payload of all of them; None: nothing.
        """
        self._partition = partition
        self._of = columns
        self._producers = producers
        self._decided = decided
        self._payload = payload

    def __call__(self, path: tuple[str, ...]) -> Column | None:
        """Return what is known of a column."""
        of, last = self._of, self._of["messages"] - 1
        match _metadata_name(path):
            case "__ledger_id":
                return _exactly("integer", ledger_of(of["position"]))
            case "__entry_id":
                return _exactly("integer", entry_of(of["position"]))
            case "__batch_index":
                return Bounds("integer", np.zeros_like(last), last)
            case "__publish_time":
                return _exactly("timestamp", of["publish_time_us"])
            case "__sequence_id":
                return Bounds("integer", of["base_sequence"], of["base_sequence"] + last)
            case "__producer_name":
                ids, codes = np.unique(of["producer_id"], return_inverse=True)
                return Coded([_text(self._producers.get(int(i))) for i in ids], codes)
            case "__txn_id":
                txns, codes = np.unique(of["txn"], return_inverse=True)
                return Coded([_text(None if txn == NO_TXN else str(id_of(txn))) for txn in txns.tolist()], codes)
            case "__txn_status":
                return self._statuses()
        return self._partition(path) or (None if self._payload is None else self._payload(path))

    def _statuses(self) -> Column | None:
        if self._decided is None:
            return None
        aborted, committed = self._decided
        txns = self._of["txn"]
        codes = np.where(np.isin(txns, aborted), ABORTED, np.where(np.isin(txns, committed), COMMITTED, OPEN))
        values = [_text(state.value) for state in STATES]
        return Coded([*values, _text(None)], np.where(txns == NO_TXN, len(STATES), codes))


class RowGroups:
    """What Parquet's statistics tell of an object's row groups."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        """Take a file's footer."""
        self._metadata = metadata

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        """The numbers of the columns by their paths; those that two have are left out: ``a.b``, and ``b`` in ``a``."""
        schema = self._metadata.schema
        paths = [schema.column(i).path.lower() for i in range(self._metadata.num_columns)]
        times = Counter(paths)
        return {path: i for i, path in enumerate(paths) if times[path] == 1}

    def of(self, group: int) -> Columns:
        """Return what is known of the columns in a row group."""
        return lambda path: self._column(group, path)

    def _column(self, group: int, path: tuple[str, ...]) -> Bounds | None:
        name = ".".join(path).lower()
        number = self._numbers.get(name)
        if number is None or (name.startswith(_PREFIX) and name != _EVENT_TIME):
            return None  # what is made of entries is known exactly, and has other names here
        column = self._metadata.schema.column(number)
        statistics = self._metadata.row_group(group).column(number).statistics
        if statistics is None or column.max_repetition_level > 0:
            return None
        null = bool(statistics.null_count) if statistics.has_null_count else True
        if statistics.has_null_count and statistics.null_count == self._metadata.row_group(group).num_rows:
            return Bounds("void", None, None, may_be_null=True, may_have_values=False)
        low, high, kind = None, None, "unknown"
        if statistics.has_min_max:
            kind, low, high = _values(column, statistics)
        return Bounds(kind, low, high, may_be_null=null)


def _values(column: Any, statistics: Any) -> tuple[str, Any, Any]:
    """Return the kind of a Parquet column, and bounds of its values; None and None if they can't be compared."""
    logical = json.loads(column.logical_type.to_json())
    physical, what = column.physical_type, logical.get("Type", "None")
    low, high = statistics.min_raw, statistics.max_raw
    if what == "Timestamp":
        kind = "timestamp" if logical["isAdjustedToUTC"] else "timestamp_ntz"
        unit = _NANOSECONDS[logical["timeUnit"]]
        return kind, low * unit // 1000, -(-high * unit // 1000)
    if what == "Date":
        return "date", low, high
    if what == "Decimal":
        return kind_of(f"decimal({column.precision},{column.scale})"), statistics.min, statistics.max
    if physical == "BOOLEAN":
        return "boolean", int(low), int(high)
    if physical in _INTEGERS and what in ("Int", "None"):
        return "integer", low, high
    if physical in _BYTES and what in ("String", "None"):
        return ("string" if what == "String" else "binary"), low, high
    if physical in ("FLOAT", "DOUBLE") and what == "None":  # NaN isn't in the statistics, and is the greatest
        return physical.lower(), ordered(low), ordered(float("nan"))
    return "unknown", None, None


def _metadata_name(path: tuple[str, ...]) -> str:
    return path[0].lower() if len(path) == 1 else ""


def _exactly(kind: str, values: IntArray) -> Bounds:
    return Bounds(kind, values, values)


def _text(value: str | None) -> Bounds:
    return Bounds.constant("string", None if value is None else value.encode())
