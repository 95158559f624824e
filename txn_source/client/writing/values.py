"""Values of typed columns as Python has them: taken exactly, or refused.

What Arrow would bend without a word is refused: 1.5 to 1, a moment to its second or day, 1e300 to infinity in a
float32, a moment without a zone to one of UTC, a null where a part has none. That is what ``send_batch`` refuses of
columns, so that a row means the same in either way. A float is rounded to a float32, which is what that type is; a
whole number stands for days, or the units of a time or duration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from txn_source.model.errors import SchemaMismatchError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_MAX_NANOS = ((1 << 63) - 1) * 1_000
"""As far as microseconds can be counted."""
_BITS = {pa.int8().id: 8, pa.int16().id: 16, pa.int32().id: 32, pa.int64().id: 64}
_PLAIN: dict[int, type] = {
    pa.bool_().id: bool,
    pa.float64().id: float,
    pa.string().id: str,
    pa.large_string().id: str,
    pa.binary().id: bytes,
    pa.large_binary().id: bytes,
    pa.date32().id: date,
} | dict.fromkeys(_BITS, int)
_KEPT = frozenset((int, float, str, bytes, bool, date, datetime, timedelta, Decimal))
"""Values that can't change until they are written; of others Arrow's copy is kept."""
_FIXED_BYTES = 8


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A payload column, and how its values are checked."""

    name: str
    type: pa.DataType
    nullable: bool
    plain: type | None
    """Python's own type for it; most values are of that."""
    limit: int
    """Of whole numbers: they lie in ``[-limit, limit)``."""

    @classmethod
    def of(cls, field: pa.Field) -> TypedColumn:
        """Return the column of a field."""
        t = field.type
        return cls(field.name, t, field.nullable, _PLAIN.get(t.id), 1 << (_BITS.get(t.id, 1) - 1))

    def take(self, given: Any) -> tuple[Any, int]:
        """Return what is to be kept of a value, the value itself or an array with it, and about how many bytes it has.

        Raises:
            SchemaMismatchError: it doesn't fit.
        """
        plain = self.plain
        if type(given) is plain:
            if plain is int:
                if -self.limit <= given < self.limit:
                    return given, _FIXED_BYTES
            elif plain is str:
                if given.isascii():
                    return given, len(given)
            else:
                return given, len(given) if plain is bytes else _FIXED_BYTES
        if given is None:
            if self.nullable:
                return None, 1
            raise SchemaMismatchError(
                f"Column {self.name!r} doesn't fit: expected {self.type} and no null, came none.", "Give it a value."
            )
        try:
            alone = pa.array([given], self.type)
            _check(given, alone[0], self.type)
        except MemoryError:
            raise
        except Exception:  # the value's own methods may raise anything
            raise SchemaMismatchError(
                f"Column {self.name!r} doesn't fit: expected {self.type}, came {_shown(given)}.",
                "Convert it before you send it.",
            ) from None
        return given if type(given) in _KEPT else alone, alone.nbytes

    def array(self, taken: list[Any]) -> pa.Array:
        """Return the column of what ``take`` returned."""
        if types.is_nested(self.type) or any(isinstance(value, pa.Array) for value in taken):
            null = pa.array([None], self.type)
            return pa.concat_arrays([self._alone(value, null) for value in taken])
        return pa.array(taken, self.type)

    def _alone(self, value: Any, null: pa.Array) -> pa.Array:
        if value is None:
            return null
        return value if isinstance(value, pa.Array) else pa.array([value], self.type)


def _check(given: Any, came: pa.Scalar, t: pa.DataType) -> None:
    """Raise ValueError if Arrow's value of a type isn't the very one that was given."""
    if not came.is_valid:
        raise ValueError("another library's null")
    if types.is_nested(t):
        _check_parts(given, t)
    elif types.is_boolean(t):
        return
    elif isinstance(given, bool):
        raise ValueError("a truth for a number")
    elif types.is_integer(t) or types.is_decimal(t):
        _expect(came.as_py() == given)
    elif types.is_floating(t):
        _expect(not math.isinf(came.as_py()) or math.isinf(given))
    elif types.is_string(t) or types.is_large_string(t):
        _expect(isinstance(given, str))
    elif types.is_date(t):
        _expect(came.value == given if isinstance(given, int) else came.as_py() == given)
    elif types.is_timestamp(t) or types.is_duration(t):
        _expect(t.unit in ("us", "ns") or abs(came.value) * _NANOS[t.unit] <= _MAX_NANOS)
        if isinstance(given, datetime):
            _expect((given.tzinfo is None) == (t.tz is None))
            since = given.replace(tzinfo=UTC) - _EPOCH if given.tzinfo is None else given - _EPOCH
            _expect(_nanos(since) + getattr(given, "nanosecond", 0) == came.value * _NANOS[t.unit])
        elif isinstance(given, timedelta):
            _expect(_nanos(given) + getattr(given, "nanoseconds", 0) == came.value * _NANOS[t.unit])
        elif not isinstance(given, int):  # numpy's, of the same unit, or Arrow would have refused it
            _expect(types.is_duration(t) or t.tz is None)


def _check_parts(given: Any, t: pa.DataType) -> None:
    """Check what is inside of a list, struct or map."""
    parts: list[tuple[Any, pa.Field]]
    if types.is_struct(t):
        pairs = list(given.items()) if isinstance(given, Mapping) else list(given)
        fields = dict(pairs)
        _expect(len(fields) == len(pairs) and fields.keys() <= {field.name for field in t})
        parts = [(fields.get(field.name), field) for field in t]
    elif types.is_map(t):
        pairs = list(given.items()) if isinstance(given, Mapping) else list(given)
        parts = [(key, t.key_field) for key, _ in pairs] + [(value, t.item_field) for _, value in pairs]
    else:
        _expect(not isinstance(given, str | bytes))
        parts = [(item, t.value_field) for item in given]
    for value, field in parts:
        if value is None:
            _expect(field.nullable)
        else:
            _check(value, pa.scalar(value, field.type), field.type)


def _nanos(span: timedelta) -> int:
    return span // _MICROSECOND * 1_000


def _expect(holds: bool) -> None:
    if not holds:
        raise ValueError("Arrow would bend it")


def _shown(given: Any) -> str:
    try:
        return f"{type(given).__name__} {given!r:.80}"
    except Exception:
        return type(given).__name__
