"""Policies that are set for a topic, for its namespace or for the broker, each of them apart.

What is not set anywhere has its default. *Unset is not a value*: a namespace that sets one policy leaves the others to
the broker (in Pulsar an empty namespace policy masked the broker's read priority, #24151).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.read_priority import ReadPriority
from txn_source.model.roots import MAIN, parse_roots
from txn_source.model.topic_name import TopicName
from txn_source.model.units import given_duration, parse_duration, parse_size

SOURCES = ("topic", "namespace", "broker")
"""Who sets policies, the strongest first. A read's own option is stronger than all of them."""
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy: its name, the setting of the broker's configuration that means it, and what it is if unset.

    ``parse`` takes a value or its text, in the policy's unit (seconds, bytes); ``setting_unit`` is how many of
    these one unit of the setting has.
    """

    name: str
    setting: str
    parse: Callable[[Any], Any]
    default: Any
    meaning: str
    setting_unit: float = 1


@dataclass(frozen=True, slots=True)
class Scope:
    """What policies are set for: a topic, or a namespace, or (both None) the broker."""

    topic: TopicName | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """A policy's value, and where it comes from: ``topic``, ``namespace``, ``broker`` or ``default``."""

    value: Any
    source: str


def _seconds(value: Any) -> float:
    try:
        number = float(value if _is_number(value) else given_duration(value))
    except (TypeError, ValueError, InvalidArgumentError):
        number = math.nan
    if isinstance(value, bool) or not 0 <= number < 1e12:
        raise InvalidArgumentError(
            f"{value!r} is not a time.", "Use seconds, 0 or more, or a text such as 7d, 12h or 90s."
        )
    return number


def _size(value: Any) -> int:
    try:
        number = parse_size(value) if isinstance(value, str) else _whole_number(value)
    except InvalidArgumentError:
        number = None
    if number is None or number < 0 or number >= 1 << 62:
        raise InvalidArgumentError(f"{value!r} is not a size.", "Use bytes, 0 or more, or a text such as 64m or 10GB.")
    return number


def _is_number(value: Any) -> bool:
    """True for a number and its text, which is in the unit of the setting or, in the database, in seconds."""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _level(value: Any) -> int:
    number = _whole_number(value)
    if number is None or not 1 <= number <= 22:
        raise InvalidArgumentError(f"{value!r} is not a compression level of zstd.", "Use 1 to 22.")
    return number


def _copies(value: Any) -> int:
    number = _whole_number(value)
    if number is None or not 1 <= number <= 16:
        raise InvalidArgumentError(f"{value!r} is not a number of copies.", "Use 1 to 16.")
    return number


def _whole_number(value: Any) -> int | None:
    try:
        fits = not isinstance(value, bool) and (not isinstance(value, float) or value == int(value))
        return int(value) if fits else None
    except (TypeError, ValueError, OverflowError):
        return None


def _uri(value: Any) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not text:
        raise InvalidArgumentError(
            f"{value!r} is not an offload target.", "Use a folder's path, or a URI such as s3://bucket/folder."
        )
    authority = text.partition("://")[2].partition("/")[0]
    lowered = text.lower()
    if "@" in authority or any(word in lowered for word in ("secret_key=", "access_key=", "password=", "token=")):
        raise InvalidArgumentError(
            "The offload target has credentials in it, which the log would store for everybody to read.",
            "Leave them out; they are taken from the environment, the profile or the machine's role.",
        )
    return text


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(
            "data_read_priority", "managedLedgerDataReadPriority", ReadPriority.parse, ReadPriority.TIERED_FIRST,
            "which copy of a ledger is read first",
        ),
        Policy(
            "offload_uri", "managedLedgerOffloadUri", _uri, None,
            "folder of the offloaded ledgers: a path or URI; unset: in the log's own root",
        ),
        Policy(
            "offload_compression_level", "managedLedgerOffloadCompressionLevel", _level, 1, "zstd's level, 1 to 22",
        ),
        Policy(
            "offload_after_age", "managedLedgerOffloadThresholdInSeconds", _seconds, None,
            "offload a ledger so many seconds after it was closed; unset: not by age",
        ),
        Policy(
            "offload_after_bytes", "managedLedgerOffloadAutoTriggerSizeThresholdBytes", _size, None,
            "offload the oldest ledgers of a partition that has more hot bytes; unset: not by size",
        ),
        Policy(
            "offload_deletion_lag", "managedLedgerOffloadDeletionLagMs", _seconds, None,
            "delete the hot copy so many seconds after the offload; unset: never", 0.001,
        ),
        Policy(
            "retention_age", "defaultRetentionTimeInMinutes", _seconds, None,
            "trim ledgers that were closed longer ago, in seconds; unset: never", 60,
        ),
        Policy(
            "retention_bytes", "defaultRetentionSizeInMB", _size, None,
            "trim the oldest ledgers of a partition that has more bytes; unset: never", 1 << 20,
        ),
        Policy(
            "hot_copies", "managedLedgerHotCopies", parse_roots, MAIN,
            "roots that have a copy of each hot entry, with commas between their names",
        ),
        Policy(
            "acknowledge_copies", "managedLedgerAcknowledgeCopies", _copies, None,
            "how many copies must be safe before a producer is told so; unset: all of hot_copies",
        ),
    )
}  # fmt: skip
"""All policies by name."""


OF_COPIES = frozenset(("hot_copies", "acknowledge_copies"))
"""The policies that say where hot entries lie."""


def parse_policies(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return policies in their types, or raise INVALID_ARGUMENT for the first that can't be."""
    return {name: parse_policy(name, value) for name, value in values.items()}


def given_policies(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return policies in their types as somebody gives them: the text of a time must have a unit there."""
    for name, value in values.items():
        policy = POLICIES.get(name)
        if policy is not None and policy.parse is _seconds and isinstance(value, str) and _is_number(value):
            try:
                parse_duration(value)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"Policy {name!r}: {error.fact}", error.remedy) from None
    return parse_policies(values)


def parse_policy(name: str, value: Any) -> Any:
    """Return the value of one policy from the value or its text."""
    policy = POLICIES.get(name)
    if policy is None:
        raise InvalidArgumentError(f"{name!r} is not a policy.", one_of(name, POLICIES))
    try:
        return policy.parse(value)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"Policy {name!r}: {error.fact}", error.remedy) from None


def one_of(name: str, known: Collection[str]) -> str:
    """Return what to do about a name that isn't known: take one that is near, or else one of all."""
    import difflib  # which only an error needs

    near = difflib.get_close_matches(name, known, n=2, cutoff=0.75)
    return f"Did you mean {' or '.join(near)}?" if near else f"Use {', '.join(known)}."


def effective(layers: Mapping[str, Mapping[str, Any]]) -> dict[str, EffectivePolicy]:
    """Return every policy as it is in force.

    Args:
        layers: by source (``topic``, ``namespace``, ``broker``), the policies that are set there and no others.
    """
    found = {}
    for name, policy in POLICIES.items():
        source = next((s for s in SOURCES if name in layers.get(s, {})), DEFAULT)
        found[name] = EffectivePolicy(policy.default if source == DEFAULT else layers[source][name], source)
    return found


def parse_configuration(text: str) -> dict[str, Any]:
    """Return the broker's policies from a configuration file: lines ``setting=value``, ``#`` begins a comment.

    A number is in the unit that the setting's name says; a text such as ``7d`` or ``10GB`` brings its own.

    Raises:
        InvalidArgumentError: names the line, and what is wrong with it.
    """
    by_setting = {policy.setting: policy for policy in POLICIES.values()}
    found: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "!")):
            continue
        name, _, value = (part.strip() for part in stripped.partition("="))
        policy = by_setting.get(name)
        if policy is None:
            raise InvalidArgumentError(
                f"Line {number} of the configuration sets {name!r}, which is not a setting.",
                f"Use {', '.join(by_setting)}.",
            )
        if value in ("", "-1") or (value == "0" and policy.name.startswith("retention")):
            continue  # unset; Pulsar's own broker.conf says 0 for "no longer than it is needed", which isn't "nothing"
        try:
            parsed = policy.parse(value)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(
                f"Line {number} of the configuration, {name}: {error.fact}", error.remedy
            ) from None
        bare = policy.setting_unit != 1 and _is_number(value)  # one with a unit of its own isn't in the setting's
        found[policy.name] = type(parsed)(parsed * policy.setting_unit) if bare else parsed
    return found
