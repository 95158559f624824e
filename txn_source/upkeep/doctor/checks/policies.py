"""Policies that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.policies import EffectivePolicy
from txn_source.model.retention import CopyPolicies
from txn_source.model.roots import hot_copies
from txn_source.model.topic_name import TopicName
from txn_source.upkeep.doctor.findings import Finding, finding
from txn_source.upkeep.doctor.subject import Subject


def check_policies(subject: Subject) -> Iterator[Finding]:
    """Look at the policies of each topic as they are in force."""
    yield from subject.of_each_topic(lambda topic: _of_topic(subject, topic))


def _of_topic(subject: Subject, topic: TopicName) -> Iterator[Finding]:
    set_ = subject.access.metadata.policies_in_force(topic)
    policies = CopyPolicies.of(set_)
    yield from _trims_first(topic, policies, set_)
    if (why := _no_copies(subject, set_)) is not None:
        yield _finding("policy-copies", topic, why)


def policies_fit(subject: Subject, topic: TopicName) -> bool:
    """True if the policies of a topic about copies can be."""
    return _no_copies(subject, subject.access.metadata.policies_in_force(topic)) is None


def _no_copies(subject: Subject, set_: dict[str, EffectivePolicy]) -> str | None:
    """Return why there can be no copies as policies say; None if there can."""
    try:
        hot_copies(set_["hot_copies"].value, set_["acknowledge_copies"].value, subject.access.metadata.roots)
    except InvalidArgumentError as error:
        return error.fact
    return None


def _trims_first(topic: TopicName, policies: CopyPolicies, set_: dict[str, EffectivePolicy]) -> Iterator[Finding]:
    age, offload_age = policies.retention_age_s, policies.offload_after_age_s
    size, offload_size = policies.retention_bytes, policies.offload_after_bytes
    pairs = []
    if age is not None and offload_age is not None and age <= offload_age:
        pairs.append(("retention_age", "offload_after_age"))
    if size is not None and offload_size is not None and size <= offload_size:
        pairs.append(("retention_bytes", "offload_after_bytes"))
    both = (offload_age is not None) + (offload_size is not None)
    if pairs and len(pairs) == both:  # else the other threshold is reached before
        for retention, threshold in pairs:
            both_said = f"{_said(retention, set_)}, and {_said(threshold, set_)}"
            fact = f"{both_said}: ledgers are trimmed before they are offloaded."
            yield _finding("policy-trims-first", topic, fact)


def _said(name: str, set_: dict[str, EffectivePolicy]) -> str:
    value = set_[name].value
    return f"{name} is {getattr(value, 'value', value)} ({set_[name].source})"


def _finding(code: str, topic: TopicName, fact: str) -> Finding:
    return finding(code, f"topic {topic.short}", fact if fact.endswith(".") else f"{fact}.", topic=topic.short)
