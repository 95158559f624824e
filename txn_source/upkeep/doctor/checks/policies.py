"""Policies that contradict each other, or that can do nothing."""

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
    if policies.deletion_lag_s is not None and not policies.offloads:
        fact = f"{_said('offload_deletion_lag', set_)}, and nothing is offloaded by itself."
        yield _finding("policy-lag-without-offload", topic, fact)
    if set_["offload_uri"].value is not None and not policies.offloads:
        shown = str(set_["offload_uri"].value).partition("?")[0]
        fact = f"offload_uri is {shown} ({set_['offload_uri'].source}), and nothing is offloaded by itself."
        yield _finding("policy-target-without-offload", topic, fact)
    if policies.deletion_lag_s is not None and policies.keeps_what_is_read and _has_durable(subject, topic):
        fact = (
            f"{_said('offload_deletion_lag', set_)} and {_said('data_read_priority', set_)}: hot copies that a"
            " subscription still reads are kept past the lag."
        )
        yield _finding("policy-lag-kept", topic, fact)
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


def _has_durable(subject: Subject, topic: TopicName) -> bool:
    return any(one.durable for one in subject.access.metadata.list_subscriptions(topic, brief=True))


def _finding(code: str, topic: TopicName, fact: str) -> Finding:
    return finding(code, f"topic {topic.short}", fact if fact.endswith(".") else f"{fact}.", topic=topic.short)
