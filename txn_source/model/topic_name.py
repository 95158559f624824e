"""Names of topics: ``persistent://tenant/namespace/name``, of which ``name`` is the short form in public/default."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from txn_source.model.errors import InvalidArgumentError

_SEGMENT = re.compile(r"[A-Za-z0-9_.=:-]+")
_PARTITION = re.compile(r"(.+)-partition-(\d+)")
_SCHEME = "persistent://"
MAX_NAME_LENGTH = 255


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A topic's full name in its three parts."""

    tenant: str
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: TopicName | str) -> TopicName:
        """Return the topic that a full name, ``tenant/namespace/name`` or a short name means."""
        if isinstance(text, TopicName):
            return text
        if not isinstance(text, str):
            raise _malformed(text)
        return _parsed(text)

    def __str__(self) -> str:
        return f"{_SCHEME}{self.tenant}/{self.namespace}/{self.name}"

    @property
    def short(self) -> str:
        """The name as people write it: the bare name in public/default, the full one elsewhere."""
        return self.name if self.in_namespace("public/default") else str(self)

    def in_namespace(self, namespace: str) -> bool:
        """True if the topic belongs to ``tenant/namespace``."""
        return f"{self.tenant}/{self.namespace}" == namespace

    def split_partition(self) -> tuple[TopicName, int] | None:
        """Return topic and index if the name has the form of one partition's, ``orders-partition-3``."""
        found = _PARTITION.fullmatch(self.name)
        return (TopicName(self.tenant, self.namespace, found[1]), int(found[2])) if found else None


@lru_cache(maxsize=10_000)  # a stream over hundreds of topics meets each name several times in a batch
def _parsed(text: str) -> TopicName:
    parts = text.strip().removeprefix(_SCHEME).split("/")
    if len(parts) == 1:
        parts = ["public", "default", *parts]
    if len(parts) != 3 or not all(_SEGMENT.fullmatch(p) and p not in (".", "..") for p in parts):
        raise _malformed(text)
    if len(text) > MAX_NAME_LENGTH:
        raise InvalidArgumentError(f"The topic name has {len(text)} characters.", f"Use {MAX_NAME_LENGTH} at most.")
    return TopicName(*parts)


def parse_namespace(text: str) -> str:
    """Return the namespace ``tenant/namespace``; a bare ``namespace`` belongs to the tenant ``public``."""
    parts = text.strip().split("/") if isinstance(text, str) else []
    if len(parts) == 1:
        parts = ["public", *parts]
    if len(parts) != 2 or not all(_SEGMENT.fullmatch(p) for p in parts):
        raise InvalidArgumentError(f"{text!r} is not a namespace.", 'Write it as "tenant/namespace".')
    return "/".join(parts)


def _malformed(text: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{text!r} is not a topic name.",
        'Use letters, digits and "_.=:-" in "name" or "persistent://tenant/namespace/name".',
    )
