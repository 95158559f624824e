"""Options of a query as somebody gave them: text by name, in any case.

An option that doesn't apply to a kind of query is refused, and so is an unknown one: a query that takes no notice of an
option would do something else than it says.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TypeVar

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.units import parse_size

T = TypeVar("T")
CATALOG_DEFAULTS = "catalogdefaults"
"""Names of options, with commas between them, that a catalog gives to all queries: where one means nothing it is left
out. It comes with each query through a catalog."""
INTERNAL = "__"
"""The names of options begin with it that a catalog adds to a query, and nobody else."""
_OBEYED_BY_SPARK = ("timestampasof", "versionasof")
"""Where a query goes through a catalog."""
_PASSED_ON = ("table-of-topic", "nativetieredreads")
"""Options that our tables and our catalog hand over with others; they change nothing here."""
_SELECTING = ("topic", "topics", "topicsPattern")


class GivenOptions:
    """The options of one query."""

    def __init__(self, options: Mapping[str, str], passed_on: Collection[str] = ()) -> None:
        """Take options; ``passed_on`` are lower-case names that change nothing, whatever they are."""
        self._passed_on = {*_PASSED_ON, *passed_on}
        self._options = {name.lower(): (name, value) for name, value in options.items()}
        _, defaults = self._options.pop(CATALOG_DEFAULTS, ("", None))
        self._internal = defaults is not None
        self._defaults = set((defaults or "").split(","))
        if defaults is not None:
            self._defaults |= set(_OBEYED_BY_SPARK)

    @property
    def values(self) -> dict[str, str]:
        """The values by lower-case names."""
        return {name: value for name, (_, value) in self._options.items()}

    def check(
        self,
        allowed: Collection[str],
        elsewhere: Mapping[str, Collection[str]],
        others: Callable[[str], tuple[str, str] | None] = lambda _: None,
        remedies: Mapping[str, str] = {},
    ) -> None:
        """Refuse options that are for something else, and unknown ones.

        Spark hands names over in lower case; they are told as they are documented.

        Args:
            allowed: what means something here; a name that ends in a dot stands for all that begin so.
            elsewhere: our options, by what they are for.
            others: returns the name of another system's option, and what to do instead; None if it is none.
            remedies: what to do about those of ``elsewhere``, if it isn't to leave them out.
        """
        known = {name.lower(): name for name in allowed}
        beginnings = tuple(name for name in known if name.endswith("."))
        if "paths" in self._options:
            raise InvalidArgumentError("The query has several paths.", "Load one log, and union the frames.")
        ours = {name.lower(): (name, what) for what, names in elsewhere.items() for name in names}
        self._options = {n: o for n, o in self._options.items() if n in known or n not in self._defaults}
        for lower, (name, _) in self._options.items():
            if lower.startswith(INTERNAL) and not self._internal:
                raise InvalidArgumentError(f"There is no option {name!r}.", "Leave it out.")
            if lower in known or (beginnings and lower.startswith(beginnings)):
                continue
            if lower in ours:
                proper, what = ours[lower]
                raise InvalidArgumentError(f"The option {proper!r} is for {what}.", remedies.get(what, "Leave it out."))
            if (told := others(name)) is not None:
                raise InvalidArgumentError(f"There is no option {told[0]!r} here.", told[1])
            near = difflib.get_close_matches(lower, [n for n in known if not n.startswith(INTERNAL)], n=1, cutoff=0.75)
            if near:
                raise InvalidArgumentError(f"There is no option {name!r}.", f"Did you mean {known[near[0]]!r}?")
            if lower not in self._passed_on:
                raise InvalidArgumentError(f"There is no option {name!r}.", "Leave it out.")

    def get(self, name: str) -> str | None:
        """Return an option as text, None if it isn't given."""
        found = self._options.get(name.lower())
        return None if found is None else found[1]

    def optional(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Return the meaning of an option, None if it isn't given; an error names the option."""
        value = self.get(name)
        return None if value is None else named(name, lambda: parse(value))

    def flag(self, name: str, *, default: bool) -> bool:
        """Return an option that is true or false."""
        found = self.optional(name, truth)
        return default if found is None else found


def named(name: str, parse: Callable[[], T]) -> T:
    """Return what parsing an option gives; an error names the option."""
    try:
        return parse()
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"Option {name!r}: {error.fact}", error.remedy) from None


def selecting(options: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return which of ``topic``, ``topics`` and ``topicsPattern`` is given, and its names, or its pattern alone.

    Args:
        options: by lower-case names.

    Raises:
        InvalidArgumentError: not exactly one is given, or it is empty.
    """
    given = [name for name in _SELECTING if name.lower() in options]
    if len(given) != 1:
        which = f"{' and '.join(map(repr, given))} at once" if given else "none of them"
        raise InvalidArgumentError(
            f"The query needs one of the options 'topic', 'topics' and 'topicsPattern', and has {which}.",
            'Give one, such as .option("topic", "orders").',
        )
    [name] = given
    value = options[name.lower()]
    names = [value] if name != "topics" else [part.strip() for part in value.split(",") if part.strip()]
    if not names or not names[0].strip():
        raise InvalidArgumentError(f"The option {name!r} is empty.", "Name a topic.")
    return name, tuple(names)


def offsets_or_time(options: Mapping[str, str], which: str) -> tuple[str, str] | None:
    """Return the option that says where a read starts (``starting``) or ends (``ending``), and its text."""
    offsets, time = f"{which}Offsets", f"{which}Timestamp"
    if offsets.lower() in options and time.lower() in options:
        raise InvalidArgumentError(f"The query has both {offsets!r} and {time!r}.", "Give one of them.")
    return next(((name, options[name.lower()]) for name in (offsets, time) if name.lower() in options), None)


def truth(text: str) -> bool:
    """Return a truth value."""
    if text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    raise InvalidArgumentError(f"{text!r} is neither true nor false.", "Use one of them.")


def natural(text: str) -> int:
    """Return a whole number from 0."""
    if text.strip().isascii() and text.strip().isdigit():
        return int(text)
    raise InvalidArgumentError(f"{text!r} is not a number from 0.", "Use one, such as 10.")


def positive(text: str) -> int:
    """Return a whole number above 0."""
    if text.strip().isascii() and text.strip().isdigit() and int(text) > 0:
        return int(text)
    raise InvalidArgumentError(f"{text!r} is not a number above 0.", "Use one, such as 8.")


def size(text: str) -> int:
    """Return a number of bytes above 0."""
    with suppress(InvalidArgumentError):
        found = parse_size(text)
        if found > 0:
            return found
    raise InvalidArgumentError(f"{text!r} is not a size.", "Use bytes, or a number with k, m or g, such as 128m.")
