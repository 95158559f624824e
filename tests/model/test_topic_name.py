"""Names of topics, of their partitions, and of namespaces."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.selection import for_each
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.topic_name import MAX_NAME_LENGTH, TopicName, parse_namespace

PARTS = st.from_regex(r"[A-Za-z0-9_.=:-]{1,20}", fullmatch=True).filter(lambda part: part not in (".", ".."))


@given(PARTS, PARTS, PARTS)
def test_name_survives_its_long_and_its_short_form(tenant: str, namespace: str, name: str) -> None:
    """Write any name in full and as people do, and read both back."""
    topic = TopicName(tenant, namespace, name)
    assert TopicName.parse(str(topic)) == TopicName.parse(topic.short) == topic


@pytest.mark.parametrize("text", ["orders", " orders ", "public/default/orders", "persistent://public/default/orders"])
def test_short_name_lies_in_public_default(text: str) -> None:
    """Parse all forms of one name."""
    topic = TopicName.parse(text)
    assert str(topic) == "persistent://public/default/orders"
    assert topic.short == "orders"
    assert TopicName.parse(topic) is topic


def test_name_outside_public_default_is_written_in_full() -> None:
    """Write the short form of a topic of another namespace, whose bare name would mean another topic."""
    assert TopicName("acme", "shop", "orders").short == "persistent://acme/shop/orders"
    assert TopicName("public", "shop", "orders").short == "persistent://public/shop/orders"


BAD = ["", "/", "a/b", "a//b", "a/b/c/d", "or ders", "orders/", ".", "..", "a/../b", "ordérs", "a\nb", "a%2fb", 5, None]


@for_each("value", [*BAD, "non-persistent://a/b/c", "persistent://a/b", b"orders"])
def test_text_that_is_no_name_is_refused(value: object) -> None:
    """Parse malformed names: the error shows the value and the form."""
    with pytest.raises(InvalidArgumentError) as caught:
        TopicName.parse(value)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"[TXNLOG_INVALID_ARGUMENT] {value!r} is not a topic name."
        ' Use letters, digits and "_.=:-" in "name" or "persistent://tenant/namespace/name".'
    )


def test_name_has_a_limit() -> None:
    """Parse a name of the longest length, and one longer by a letter."""
    assert TopicName.parse("a" * MAX_NAME_LENGTH).name == "a" * MAX_NAME_LENGTH
    with pytest.raises(InvalidArgumentError, match=r"has 256 characters\. Use 255 at most\."):
        TopicName.parse("a" * (MAX_NAME_LENGTH + 1))


@pytest.mark.parametrize(
    ("name", "topic", "index"),
    [
        ("orders-partition-3", "orders", 3),
        ("orders-partition-0", "orders", 0),
        ("a-partition-1-partition-12", "a-partition-1", 12),
    ],
)
def test_name_of_a_partition_gives_topic_and_index(name: str, topic: str, index: int) -> None:
    """Split names of partitions, in a namespace of their own."""
    assert TopicName("acme", "shop", name).split_partition() == (TopicName("acme", "shop", topic), index)


@for_each("name", ["orders", "orders-partition-", "-partition-3", "orders-partition-x", "partition-3"])
def test_name_of_a_topic_is_not_split(name: str) -> None:
    """Split names that only look like a partition's."""
    assert TopicName("public", "default", name).split_partition() is None


@pytest.mark.parametrize(("text", "namespace"), [("acme/shop", "acme/shop"), ("shop", "public/shop"), (" a/b ", "a/b")])
def test_namespace_belongs_to_a_tenant(text: str, namespace: str) -> None:
    """Parse namespaces; a bare one is public's, and only its topics are in it."""
    assert parse_namespace(text) == namespace
    tenant, name = namespace.split("/")
    assert TopicName(tenant, name, "orders").in_namespace(namespace)
    assert not TopicName(tenant, name + "x", "orders").in_namespace(namespace)


@for_each("value", ["", "/", "a/", "a/b/c", "a b", None, 5])
def test_text_that_is_no_namespace_is_refused(value: object) -> None:
    """Parse malformed namespaces: the error shows the value and the form."""
    with pytest.raises(InvalidArgumentError, match=r'is not a namespace\. Write it as "tenant/namespace"\.'):
        parse_namespace(value)  # type: ignore[arg-type]
