"""The log as a whole: its figures, how they went, and what somebody should look at."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request

from txn_source.console.snapshot import TopicFigures
from txn_source.console.viewer import Viewer
from txn_source.model.transaction import id_of
from txn_source.model.units import format_count

_EACH = 3
"""So many findings of a kind are told one by one, and one more if it is the last."""
_SLOW_MS = 10_000
_STUCK_MS = 60_000
_UNREAD_MS = 3_600_000
_LONG_OFFLOAD_MS = 3_600_000
_ORDER = ("critical", "warning", "info")
_OTHERS = {
    "TRANSACTION_HOLDS_BACK": ("transactions hold back messages", "#/blockers"),
    "TOO_FEW_COPIES": ("topics have messages with too few copies", "#/topics"),
    "SUBSCRIPTION_UNREAD": ("subscriptions that nobody reads", "#/subscriptions"),
}
"""What is said of further findings of a kind, and where they are listed."""


def about(request: Request, viewer: Viewer) -> Any:
    """Say which log it is, and who asks."""
    visitor, service = viewer.visitor, viewer.service
    return {
        "log_id": service.log_id,
        "version": request.app.state.version,
        "database": "SQLite" if service.database_file else "PostgreSQL",
        "address": request.headers.get("host"),
        "tokens": visitor.known,
        "caller": visitor.name if visitor.known else None,
        "may": {"administer": viewer.administers_all, "monitor": viewer.sees_all},
    }


def overview(request: Request, viewer: Viewer) -> Any:
    """Return the figures of what the visitor sees; what is of the whole log only to whoever sees all."""
    topics = viewer.topics()
    snapshot = viewer.snapshot
    log = snapshot.moment.log
    rates = snapshot.rates([topic.topic_id for topic in topics])
    blocking = [found for found in snapshot.blockers.values() if viewer.sees_all or viewer.sees_any(found)]
    subscriptions = [s for t in topics if viewer.sees_subscriptions(t.name) for s in t.subscriptions]
    attention = _shortened(sorted(_attention(viewer, topics), key=lambda each: _ORDER.index(each["severity"])))
    oldest = min((found[0].created_at_ms for found in blocking), default=None)
    return {
        "now_ms": snapshot.now_ms,
        "topics": len(topics),
        "partitions": sum(len(topic.partitions) for topic in topics),
        "messages": sum(topic.messages for topic in topics),
        "bytes": sum(topic.bytes for topic in topics),
        "rate_messages": rates[0],
        "rate_bytes": rates[1],
        "open_transactions": log.open_transactions if viewer.sees_all else len(blocking),
        "oldest_open_ms": log.oldest_open_ms if viewer.sees_all else oldest,
        "held_back_messages": sum(topic.held_back_messages for topic in topics),
        "held_back_bytes": sum(topic.held_back_bytes for topic in topics),
        "short_messages": sum(topic.short_messages for topic in topics),
        "subscriptions": len(subscriptions),
        "backlog": sum(each.backlog for each in subscriptions if each.durable),
        "consumers": sum(each.consumers for each in subscriptions),
        "doomed_files": log.doomed_files if viewer.sees_all else None,
        "offloads_under_way": log.offloads_under_way if viewer.sees_all else None,
        "attention": attention,
        "history": _history(viewer, None if viewer.sees_all else {topic.topic_id for topic in topics}),
    }


def _history(viewer: Viewer, topic_ids: Container[int] | None) -> dict[str, Any]:
    """Return how the figures of some topics, or of all, were in the last minutes."""
    points = viewer.snapshots.history()
    rates = [point.rate_messages for point in points]
    return {
        "t": [point.at_ms for point in points],
        "rate_messages": [None if rate is None else rate.of_topics(topic_ids) for rate in rates],
        "held_back_messages": [int(point.held_back_messages.of_topics(topic_ids)) for point in points],
        "open_transactions": [point.open_transactions if viewer.sees_all else None for point in points],
    }


def _attention(viewer: Viewer, topics: Sequence[TopicFigures]) -> Iterator[dict[str, Any]]:
    snapshot = viewer.snapshot
    now_ms = snapshot.now_ms
    for txn, found in snapshot.blockers.items():
        seen = [each for each in found if viewer.sees(snapshot.topic_of(each.partition_id))]
        held_back, age_ms = sum(each.held_back_messages for each in seen), now_ms - found[0].created_at_ms
        if held_back and age_ms >= _SLOW_MS:
            behind = held_back > sum(each.messages for each in seen)
            severity = "critical" if age_ms >= _STUCK_MS and behind else "warning"
            what = f"{format_count(held_back, 'message')} on {format_count(len(seen), 'partition')}"
            fact = f"Transaction {id_of(txn)} holds back {what} for {_duration(age_ms)}."
            yield _finding(severity, "TRANSACTION_HOLDS_BACK", fact, f"#/blockers?txn={quote(str(id_of(txn)), '')}")
    for topic in topics:
        if topic.short_messages:
            what = (
                f"{format_count(topic.short_messages, 'message')} of {topic.name.short} can't be read: too few copies."
            )
            yield _finding("critical", "TOO_FEW_COPIES", what, _topic_link(topic))
        for each in topic.subscriptions if viewer.sees_subscriptions(topic.name) else ():
            since_us = each.waits_since_us() if each.durable and not each.consumers else None
            if since_us is not None and now_ms - since_us // 1000 >= _UNREAD_MS:
                what = f"Nobody reads subscription {each.name} of {topic.name.short}, backlog {each.backlog:,}."
                link = f"#/subscriptions/{quote(topic.name.short, '')}/{quote(each.name, '')}"
                yield _finding("info", "SUBSCRIPTION_UNREAD", what, link)
    log = snapshot.moment.log
    if viewer.sees_all and log.oldest_offload_ms is not None and now_ms - log.oldest_offload_ms >= _LONG_OFFLOAD_MS:
        what = f"{format_count(log.offloads_under_way, 'offload')} under way, the oldest for more than an hour."
        yield _finding("warning", "OFFLOAD_TAKES_LONG", what, "#/topics")


def _shortened(findings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first findings of each kind, and what the others are in one of their own."""
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in findings:
        kinds.setdefault((each["severity"], each["code"]), []).append(each)
    told = []
    for (severity, code), of_kind in kinds.items():
        more = len(of_kind) - _EACH
        if more <= 1:
            told += of_kind
            continue
        what, link = _OTHERS[code]
        told += [*of_kind[:_EACH], _finding(severity, code, f"{more:,} more {what}.", link)]
    return told


def _finding(severity: str, code: str, fact: str, link: str) -> dict[str, Any]:
    return {"severity": severity, "code": code, "fact": fact, "link": link}


def _topic_link(topic: TopicFigures) -> str:
    return f"#/topics/{quote(topic.name.short, '')}"


def _duration(ms: int) -> str:
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{seconds} s"
