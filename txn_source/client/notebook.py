"""What a notebook shows of a log, a topic, transactions and subscriptions: plain HTML tables, every text escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from txn_source.metadata.stub.metadata_stub import TransactionInfo
from txn_source.metadata.stub.subscriptions import SubscriptionInfo
from txn_source.model.errors import TxnLogError

if TYPE_CHECKING:
    from txn_source.client.connected import Connected
    from txn_source.client.topic_stats import TopicStats

_MOST_ROWS = 50


class Transactions(list[TransactionInfo]):
    """Transactions; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        rows = (
            (t.id, t.state, f"{t.age:.1f} s", len(t.partitions), ", ".join(t.producers), t.held_back_messages)
            for t in self
        )
        columns = ("Transaction", "State", "Began before", "Partitions", "Producers", "Messages held back")
        return html_table("Transactions", columns, rows, len(self))


class Subscriptions(list[SubscriptionInfo]):
    """Subscriptions of a topic; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        rows = (
            (s.name, s.type, s.isolation_level, s.epoch, s.backlog, len(s.consumers), ", ".join(map(str, s.held_by)))
            for s in self
        )
        columns = ("Subscription", "Type", "Isolation level", "Epoch", "Backlog", "Consumers", "Held by")
        return html_table("Subscriptions", columns, rows, len(self))


def stats_html(stats: TopicStats) -> str:
    """Return a topic's partitions with their bounds, and the open transactions with what each holds back."""
    columns = ("Partition", "Log start", "Last stable", "High watermark", "Log end", "Messages", "Bytes")
    rows = (
        (p.partition, p.log_start, p.last_stable, p.high_watermark, p.log_end, p.messages, p.bytes)
        for p in stats.partitions
    )
    shown = html_table(f"Topic {stats.topic}", columns, rows, len(stats.partitions))
    ongoing = stats.ongoing_transactions
    if ongoing:
        held = ((t.id, f"{t.age:.1f} s", t.first_position, t.messages_held_back, t.bytes_held_back) for t in ongoing)
        names = ("Transaction", "Began before", "First position", "Messages held back", "Bytes held back")
        shown += html_table("Open transactions", names, held, len(ongoing))
    return shown


def log_html(log: Connected) -> str:
    """Return what a log is connected to and its topics; where it can't be reached, why."""
    try:
        names = log.metadata.list_topics()
        views = log.metadata.get_view(names[:_MOST_ROWS]).topics
    except TxnLogError as error:
        return f"<p>{html.escape(repr(log))}: {html.escape(str(error))}</p>"
    rows = (
        (
            v.topic.name.short,
            len(v.partitions),
            sum(p.messages for p in v.partitions),
            sum(p.bytes for p in v.partitions),
        )
        for v in views
    )
    return html_table(f"Log {log.target}", ("Topic", "Partitions", "Messages", "Bytes"), rows, len(names))


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], number: int) -> str:
    """Return a table of the first rows, with a note of how many there are if that is more."""
    shown = [row for row, _ in zip(rows, range(_MOST_ROWS), strict=False)]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in shown)
    more = f"<p>The first {len(shown):,} of {number:,}.</p>" if number > len(shown) else ""
    caption = f"<caption>{html.escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td style="text-align: right">{value:,}</td>'
    return f"<td>{html.escape(str(value))}</td>"
