"""The topics of the log."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from txn_source.console.query import page, text
from txn_source.console.snapshot import TopicFigures
from txn_source.console.viewer import Viewer
from txn_source.model.topic_name import TopicName
from txn_source.storage.schema import commented_schema


def topics(request: Request, viewer: Viewer) -> Any:
    """List the topics with their figures."""
    rows = [row_of(topic, viewer) for topic in viewer.topics()]
    return page(request, rows, viewer.snapshot.now_ms, ["name"])


def topic(request: Request, viewer: Viewer) -> Any:
    """Describe one topic; its columns only to whoever may know them."""
    found = viewer.topic(text(request, "name"))
    fields = _fields(found.name, viewer) if viewer.has_role(found.name) else None
    return {"now_ms": viewer.snapshot.now_ms, **row_of(found, viewer), "schema": fields}


def _fields(topic: TopicName, viewer: Viewer) -> list[dict[str, Any]]:
    [view] = viewer.access.metadata.get_view([topic]).topics
    schema = commented_schema(view.topic.schema)
    return [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in schema]


def row_of(topic: TopicFigures, viewer: Viewer) -> dict[str, Any]:
    """Return a topic's row; what concerns its consumers only for whoever may know."""
    knows = viewer.sees_subscriptions(topic.name)
    return {
        "name": topic.name.short,
        "partitions": len(topic.partitions),
        "messages": topic.messages,
        "bytes": topic.bytes,
        "rate_messages": topic.rate_messages,
        "rate_bytes": topic.rate_bytes,
        "held_back_messages": topic.held_back_messages,
        "held_back_bytes": topic.held_back_bytes,
        "held_back_since_ms": topic.held_back_since_ms,
        "open_transactions": topic.open_transactions,
        "subscriptions": len(topic.subscriptions) if knows else None,
        "backlog": topic.backlog if knows else None,
        "last_publish_ms": topic.last_publish_ms,
        "short_messages": topic.short_messages,
    }
