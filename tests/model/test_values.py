"""Classes made by ``model/values.py`` are what ``dataclasses`` makes of them, for all that uses them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from txn_source.model import values


def _made(dataclass: Callable[..., Any]) -> tuple[type[Any], ...]:
    @dataclass(frozen=True, slots=True)
    class Point:
        x: int
        """First."""
        y: int = 7
        names: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False, repr=False)
        shared: ClassVar[int] = 3

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError(self.x)

        @property
        def total(self) -> int:
            return self.x + self.y

    @dataclass(frozen=True, slots=True)
    class Only:
        x: int

    @dataclass(frozen=True, slots=True)
    class Own:
        x: int
        y: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and other.x == self.x

        def __hash__(self) -> int:
            return 5

    return Point, Only, Own


LIBRARYS, OURS = _made(dataclasses.dataclass), _made(values.dataclass)
Point, Only, Own = OURS


def _tries(of: tuple[type[Any], ...]) -> Iterator[Callable[[], Any]]:
    point, only, own = of
    a, b = point(1, names=["n"]), point(1, 7, ["n"], note="other")
    yield lambda: (repr(a), repr(only("t")), repr(own(1, 2)))
    yield lambda: (a == b, a != b, a == point(2), a == (1, 7), only(1) == only(1.0), own(1, 2) == own(1, 3))
    yield lambda: (hash(only(3)) == hash(only(3)), hash(own(1, 2)))
    yield lambda: hash(a)  # a list can't be hashed
    yield lambda: {only(1): 1}[only(1)]
    yield lambda: (point(1).names, point(1).names is point(1).names, a.total, point.shared)
    yield lambda: point(-1)
    yield lambda: dataclasses.replace(a, x=-1)
    yield lambda: (dataclasses.asdict(a), dataclasses.astuple(a), [f.name for f in dataclasses.fields(a)])
    yield lambda: dataclasses.replace(a, y=9) == point(1, 9, ["n"])
    yield lambda: (copy.copy(a) == a, copy.deepcopy(a) == a, copy.deepcopy(a).names is a.names)
    yield lambda: (point.__match_args__, point.__slots__, hasattr(a, "__dict__"))
    yield lambda: setattr(a, "x", 2)
    yield lambda: delattr(a, "x")
    yield lambda: point()
    yield lambda: point(1, z=2)
    yield lambda: point(1, 2, [], "", 5)
    yield lambda: point(y=2, x=1).y


def _came_of(attempt: Callable[[], Any]) -> Any:
    try:
        return attempt()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("number", range(len(list(_tries(OURS)))))
def test_a_class_is_what_the_library_makes_of_it(number: int) -> None:
    ours, librarys = list(_tries(OURS))[number], list(_tries(LIBRARYS))[number]
    assert _came_of(ours) == _came_of(librarys)


@values.dataclass(frozen=True, slots=True)
class Sent:
    """One that a pickle can name."""

    x: int
    of: Only | None = None  # type: ignore[valid-type]


def test_a_pickled_one_comes_back_frozen() -> None:
    back = pickle.loads(pickle.dumps(Sent(3)))
    assert back == Sent(3)
    assert back is not Sent(3)
    with pytest.raises(FrozenInstanceError):
        back.x = 4


def test_other_options_are_the_librarys() -> None:
    """Ask for order, and for a class that can be changed: neither is made in a hurry."""

    @values.dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        x: int

    @values.dataclass(slots=True)
    class Changing:
        x: int

    assert Ordered(1) < Ordered(2)
    changing = Changing(1)
    changing.x = 2
    assert changing == Changing(2)


def test_a_match_takes_fields_by_place() -> None:
    match Sent(3):
        case Sent(x):
            assert x == 3
