"""The public doors: whatever goes wrong behind one comes out as a ``TxnLogError``, with its cause chained.

``translated`` is the one place that turns an error of Python, the disk, SQL or Arrow into ours. Classes whose methods
the public calls are ``guarded``. What is called for each message has no wrapper, which would cost it a tenth: those
methods catch for themselves, which is free as long as nothing is raised.
"""

from __future__ import annotations

import errno
import inspect
import re
from collections.abc import Callable, Iterator
from functools import reduce, wraps
from typing import Any, TypeVar, cast

from txn_source.model.errors import (
    InternalError,
    InvalidArgumentError,
    StorageWriteError,
    TxnLogError,
    UnavailableError,
)

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG))
_NO_PATH = frozenset((errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP))
_GIVEN = ("embedded null", "unhashable type", "out of range")
"""What Python and protobuf say of values that come from the caller."""
_PLAIN: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "bytes": bytes,
    "bool": bool,
    "int": int,
    "float": (int, float),
    "None": type(None),
}
_ENTRANCES = ("__init__", "__enter__", "__iter__", "__next__", "__len__", "__getitem__")


def passes(error: Exception) -> bool:
    """Return whether an error goes through a door as it is: ours, and what is nobody's fault in particular."""
    return isinstance(error, TxnLogError | MemoryError | StopIteration | Warning)


def translated(error: Exception, doing: str) -> TxnLogError:
    """Return our error for another one; raise it ``from`` that.

    Args:
        error: what was raised.
        doing: which call it was, for the message.
    """
    if isinstance(error, TxnLogError):
        return error
    why = f"{type(error).__name__}: {_text(error)}"
    if isinstance(error, OSError):
        where = f"{error.filename!r:.300}" if error.filename is not None else "a file"
        reason = (error.strerror or _text(error)).lower()
        if error.errno in _NO_PATH:
            return InvalidArgumentError(f"{doing} can't use {where}: {reason}.", "Check the path.")
        if error.errno in _NO_ROOM:
            return StorageWriteError(f"{doing} can't write {where}: {reason}.", "Free some space, then try again.")
        return UnavailableError(f"{doing} can't use {where}: {reason}.", "Check path and permissions, then try again.")
    if isinstance(error, UnicodeError | OverflowError) or any(hint in why for hint in _GIVEN):
        return InvalidArgumentError(
            f"{doing} can't use what it was given ({why}).", "Give what its documentation says."
        )
    return InternalError(f"{doing} failed with {why.rstrip('.: ')}.", "Please report it.")


def guarded(cls: Any = None, *, but: tuple[str, ...] = (), also: tuple[str, ...] = ()) -> Any:
    """Class decorator: every public method and property raises ``TxnLogError`` only.

    Args:
        cls: the class.
        but: methods that see to it themselves: those called for each message, and those that call the caller back,
            whose own errors are to come through.
        also: private ones, where these are what such a method calls once in a while.
    """
    if cls is None:
        return lambda decorated: guarded(decorated, but=but, also=also)
    for name, member in list(vars(cls).items()):
        if name in but or (name.startswith("_") and name not in (*_ENTRANCES, *also)):
            continue
        doing = f"{cls.__name__}()" if name == "__init__" else f"{name}()"
        if isinstance(member, property):
            setattr(
                cls, name, property(guard(cast("Any", member.fget), doing), member.fset, member.fdel, member.__doc__)
            )
        elif isinstance(member, classmethod | staticmethod):
            setattr(cls, name, type(member)(guard(member.__func__, doing)))
        elif inspect.isfunction(member):
            setattr(cls, name, guard(member, doing))
    return cls


def guard(function: _Function, doing: str | None = None) -> _Function:
    """Return a function that raises ``TxnLogError`` only, and TypeError if it is called with other arguments."""
    name = doing or f"{function.__name__}()"
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def iterate(*args: Any, **kwargs: Any) -> Iterator[Any]:
            try:
                yield from function(*args, **kwargs)
            except Exception as error:
                ours = _judged(error, function, name, args, kwargs)
                try:
                    if ours is error:
                        raise
                    raise ours from error
                finally:
                    del ours

        return cast("_Function", iterate)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            ours = _judged(error, function, name, args, kwargs)
            try:
                if ours is error:
                    raise
                raise ours from error
            finally:
                del ours  # no cycle with its traceback, which would keep what the caller drops

    return cast("_Function", call)


def _judged(
    error: Exception, function: Callable[..., Any], doing: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception:
    """Return what is to be raised: the error itself, or ours for it."""
    if passes(error) and not isinstance(error, InternalError):  # which may be of an inner door, for want of a reason
        return error
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return error  # Python's own words about missing and unknown arguments
    for name, value in bound.arguments.items():
        wanted = function.__annotations__.get(name)
        if isinstance(wanted, str) and not _is_of(value, wanted, function.__globals__):
            return InvalidArgumentError(f"{doing}: {name} is {_shown(value)}.", f"Give it as {wanted}.")
    return translated(error, doing)


def _is_of(value: Any, wanted: str, names: dict[str, Any]) -> bool:
    """Return False if an annotation leaves a value out; what is in brackets isn't looked at."""
    for part in re.sub(r"\[.*?\]", "", wanted).split("|"):
        name = part.strip()
        first, *rest = name.split(".")
        kind = _PLAIN.get(name) or reduce(lambda found, part: getattr(found, part, None), rest, names.get(first))
        try:
            if kind is None or isinstance(value, kind):
                return True
        except TypeError:  # no class
            return True
    return False


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.80}"
    except Exception:
        return f"a {type(value).__name__}"


def _text(error: Exception) -> str:
    try:
        return " ".join(str(error).split())[:500]
    except Exception:
        return "?"
