"""What an identity may do: roles on topics, by patterns of their names.

A pattern is ``*`` (everything), ``tenant/*``, ``tenant/namespace/*``, ``tenant/namespace/topic``, or
``tenant/namespace/prefix*``. Nothing else is one: a short name, or a scheme, would be a second spelling of the same.
Names and patterns are compared character by character.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from txn_source.model.errors import InvalidArgumentError, shown
from txn_source.model.topic_name import TopicName

_PART = r"(?!\.{1,2}/)[A-Za-z0-9_.=:-]+"
_PATTERN = re.compile(rf"\*|{_PART}/\*|{_PART}/{_PART}/(?:[A-Za-z0-9_.=:-]+\*?|\*)")
MAX_PATTERNS = 100


class Role(Enum):
    """What somebody may do with a topic."""

    PRODUCE = "produce"
    """Write messages, in transactions or not."""
    CONSUME = "consume"
    """Read messages, and keep subscriptions: make, seek and delete them."""
    ADMIN = "admin"
    """Make, change and delete topics, tiers and policies, abort transactions, and all that CONSUME may."""
    MONITOR = "monitor"
    """See the figures of the log; for all of it, or not at all."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of topic names."""

    text: str

    @classmethod
    def parse(cls, text: Any) -> Pattern:
        """Return a pattern, or raise INVALID_ARGUMENT."""
        if not isinstance(text, str) or len(text) > 255 or not _PATTERN.fullmatch(text):
            raise InvalidArgumentError(
                f"{shown(text)} is no pattern of topics.",
                'Use "*", "tenant/*", "tenant/namespace/*", "tenant/namespace/topic" or "tenant/namespace/prefix*".',
            )
        return cls(text)

    def covers(self, topic: TopicName) -> bool:
        """True if a topic is one of those."""
        name = f"{topic.tenant}/{topic.namespace}/{topic.name}"
        return name.startswith(self.text[:-1]) if self.text.endswith("*") else name == self.text

    def covers_namespace(self, namespace: str) -> bool:
        """True if all topics of ``tenant/namespace`` are."""
        return self.text.endswith("*") and f"{namespace}/".startswith(self.text[:-1])

    def touches_namespace(self, namespace: str) -> bool:
        """True if a topic of ``tenant/namespace`` can be."""
        return self.covers_namespace(namespace) or self.text.startswith(f"{namespace}/")


@dataclass(frozen=True, slots=True)
class Roles:
    """The patterns of each role."""

    patterns: Mapping[Role, tuple[Pattern, ...]]

    @classmethod
    def parse(cls, claim: Any) -> Roles:
        """Return what ``{"produce": [pattern, ...], "consume": [...], "admin": [...], "monitor": [...]}`` says.

        Raises:
            InvalidArgumentError: it isn't of that form, names another role, or has too many patterns.
        """
        if not isinstance(claim, Mapping):
            raise InvalidArgumentError(f"Roles are {shown(claim)}.", 'Use {"consume": ["tenant/namespace/*"]}.')
        known = {role.value: role for role in Role}
        patterns: dict[Role, tuple[Pattern, ...]] = {}
        for name, of_role in claim.items():
            if name not in known:
                raise InvalidArgumentError(f"{shown(name)} is no role.", f"The roles are {', '.join(known)}.")
            if not isinstance(of_role, Sequence) or isinstance(of_role, str | bytes) or len(of_role) > MAX_PATTERNS:
                raise InvalidArgumentError(
                    f"The topics of role {name} are {shown(of_role)}.",
                    f"Use a list of {MAX_PATTERNS} patterns at most.",
                )
            patterns[known[name]] = tuple(Pattern.parse(text) for text in of_role)
        return cls(patterns)

    def of(self, *roles: Role) -> list[Pattern]:
        """Return the patterns of some roles."""
        return [pattern for role in roles for pattern in self.patterns.get(role, ())]

    def allow(self, roles: Sequence[Role], topic: TopicName) -> bool:
        """True if any of some roles is there for a topic."""
        return any(pattern.covers(topic) for pattern in self.of(*roles))

    def allow_namespace(self, roles: Sequence[Role], namespace: str) -> bool:
        """True if any of some roles is there for all topics of ``tenant/namespace``."""
        return any(pattern.covers_namespace(namespace) for pattern in self.of(*roles))

    def allow_everything(self, roles: Sequence[Role]) -> bool:
        """True if any of some roles is there for the whole log."""
        return Pattern("*") in self.of(*roles)

    def __str__(self) -> str:
        return ", ".join(f"{r.value} {' '.join(p.text for p in ps)}" for r, ps in self.patterns.items() if ps) or "none"


EVERYTHING = Roles({role: (Pattern("*"),) for role in Role})
"""Of whoever calls a service that asks for no token."""
