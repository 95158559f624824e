"""Describing a topic among its segments, so that it can be made again if the metadata is lost (``txnlog rebuild``).

Segments tell what was written and, mostly, what became of it. What belongs to none of them is told here: name, schema,
partitions, policies, as soon as they change; subscriptions, trimmed ledgers, and whose transactions were aborted by
somebody else, whenever the log is maintained.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from contextlib import suppress
from typing import Any

from txn_source.client.access import Access
from txn_source.metadata.stub.subscriptions import SubscriptionPartition
from txn_source.model.errors import TopicNotFoundError, TxnLogError
from txn_source.model.policies import Scope
from txn_source.model.position import PositionRange
from txn_source.model.topic import PartitionView
from txn_source.model.topic_name import TopicName
from txn_source.storage.root_files import StoreRestsError
from txn_source.storage.topic_file import note_deletion_of, remove_topic_file, topic_file_state, write_topic_file

_log = logging.getLogger(__name__)
_WRITTEN: dict[tuple[str, int], tuple[bytes, tuple[int, int] | None]] = {}
"""What this process has written last, as digests, and the files: most often nothing has changed."""


def describe_topic(access: Access, name: TopicName) -> None:
    """Write the description of a topic, if it has changed. What fails is logged: nothing depends on it for now."""
    try:
        topic_id, described = _described(access, name)
        key, digest = (access.metadata.log_id, topic_id), hashlib.sha256(json.dumps(described).encode()).digest()
        if _WRITTEN.get(key) == (digest, topic_file_state(access.root, topic_id)):
            return
        write_topic_file(access.root, access.metadata.log_id, topic_id, described)
        _WRITTEN[key] = digest, topic_file_state(access.root, topic_id)
        if not _is_there(access, name, topic_id):  # deleted meanwhile: it must not come back
            remove_topic_file(access.root, topic_id)
    except StoreRestsError:
        return
    except (TxnLogError, OSError) as error:
        _log.warning("the description of topic %s was not written: %s", name.short, error)


def note_deletion(access: Access, name: TopicName) -> int | None:
    """Note in the description of a topic that it is going to be deleted: then no rebuild makes it by itself.

    Return the topic's id; None if that can't be. The next description takes it back. What fails is logged.
    """
    try:
        [of] = access.metadata.get_view([name]).topics
        note_deletion_of(access.root, access.metadata.log_id, of.topic.topic_id, going=True)
        return of.topic.topic_id
    except TopicNotFoundError:
        return None
    except (TxnLogError, OSError, ValueError) as error:
        _log.warning("that topic %s is going to be deleted was not noted: %s", name.short, error)
    return None


def take_deletion_back(access: Access, topic_id: int | None) -> None:
    """Note that a topic stays, as far as that is possible."""
    if topic_id is not None:
        with suppress(OSError, ValueError, TxnLogError):
            note_deletion_of(access.root, access.metadata.log_id, topic_id, going=False)


def forget_description(access: Access, topic_id: int) -> None:
    """Remove the description of a topic that was deleted, as far as that is possible."""
    with suppress(OSError):
        remove_topic_file(access.root, topic_id)


def _is_there(access: Access, name: TopicName, topic_id: int) -> bool:
    try:
        [of] = access.metadata.get_view([name]).topics
    except TopicNotFoundError:
        return False
    return of.topic.topic_id == topic_id


def _described(access: Access, name: TopicName) -> tuple[int, dict[str, Any]]:
    stub = access.metadata
    imported = _import_of(access, name)
    view = stub.get_view([name])
    [of] = view.topics
    topic = of.topic
    described = {
        "log_id": stub.log_id,
        "topic_id": topic.topic_id,
        "name": str(name),
        "schema": None if topic.schema is None else base64.b64encode(topic.schema).decode(),
        "limits": [topic.limits.max_entries, topic.limits.max_bytes, topic.limits.max_age_ms],
        "created_at_ms": topic.created_at_ms,
        "policies": {
            of_scope: {policy: str(value) for policy, value in sorted(stub.get_policies(scope).items())}
            for of_scope, scope in (
                (f"topic:{topic.topic_id}", Scope(topic=name)),
                (f"namespace:{name.tenant}/{name.namespace}", Scope(namespace=f"{name.tenant}/{name.namespace}")),
                ("broker", Scope()),
            )
        },
        "roots": [[root.root_id, root.name, root.uri] for root in stub.roots],
        "decisions": view.decisions,
        "partitions": [_partition(access, each, view.decisions) for each in of.partitions],
        "subscriptions": [
            {
                "name": each.name,
                "type": each.type.value,
                "level": each.isolation_level.value,
                "epoch": each.epoch,
                "marks": [_mark(at) for at in each.partitions],
            }
            for each in sorted(stub.list_subscriptions(name), key=lambda each: each.name)
            if each.durable
        ],
    }
    if imported and imported == _import_of(access, name):  # else it has gone on since the view
        described["import"] = imported
    return topic.topic_id, described


def _import_of(access: Access, name: TopicName) -> str:
    """Return how far the import of a topic has come; empty: there is none, or it isn't told."""
    try:
        return access.metadata.get_import(name)
    except TxnLogError:
        return ""


def _mark(at: SubscriptionPartition) -> list[Any]:
    return [at.partition_id, at.mark, [[r.start, r.end, r.messages] for r in at.acknowledged]]


def _partition(access: Access, of: PartitionView, decisions: int) -> dict[str, Any]:
    """Describe a partition: where it starts, and which transactions below its last stable position were aborted."""
    whole = PositionRange(of.bounds.log_start, of.bounds.last_stable)
    aborted: list[list[int]] = []
    if not whole.empty:
        found = access.metadata.list_decisions(of.partition_id, whole, aborted_only=True, decisions=decisions)
        columns = ("txn", "first_position", "marker_position")
        aborted = sorted(list(row) for row in zip(*(found[name].to_pylist() for name in columns), strict=True))
    return {
        "id": of.partition_id,
        "index": of.index,
        "log_start": of.bounds.log_start.key,
        "trimmed_end": of.trimmed_end.key,
        "last_stable": of.bounds.last_stable.key,
        "log_end": of.bounds.log_end.key,
        "aborted": aborted,
    }
