"""``dataclass``, made in a sixth of the time: a process that reads makes a hundred of them before it begins.

The library's writes the source of six methods for each class and compiles them. Here it makes the fields and slots, and
of the methods only ``__init__`` is compiled; the others are the same for all classes. What differs otherwise nobody
sees: ``fields``, ``replace``, ``asdict``, pickling and matching work as ever.
"""

from __future__ import annotations

import dataclasses
import inspect
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        """``dataclasses.dataclass``; with options other than frozen and slots, both set, it is the library's own."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if options != {"frozen": True, "slots": True} or not inspect.get_annotations(cls):
            return dataclasses.dataclass(cls, **options)
        own = cls.__dict__
        if own.get("__doc__") is None:
            cls.__doc__ = ""  # else a signature is made of it
        made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=True)
        fields = dataclasses.fields(made)
        compared = [f.name for f in fields if f.compare]
        made._compared = attrgetter(*compared)
        made.__init__ = _init(made, fields)
        for name, method in _METHODS.items():
            if name not in own or own[name] is None:  # of a class with an __eq__, __hash__ is None
                setattr(made, name, method)
        return made


def _init(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> Any:
    """Return the class's ``__init__``."""
    given: dict[str, Any] = {"__set": object.__setattr__, "__missing": dataclasses.MISSING}
    parameters, lines = [], []
    for field in fields:
        name, value = field.name, field.name
        if field.default is not dataclasses.MISSING:
            given[f"__default_{name}"] = field.default
            parameters.append(f"{name}=__default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            given[f"__new_{name}"] = field.default_factory
            parameters.append(f"{name}=__missing")
            value = f"__new_{name}() if {name} is __missing else {name}"
        else:
            parameters.append(name)
        lines.append(f"__set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(('self', *parameters))}):\n " + "\n ".join(lines or ["pass"]), given)
    made = given["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _equal(self: Any, other: Any) -> Any:
    return self._compared(self) == self._compared(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_METHODS = {
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}
