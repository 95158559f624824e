"""What a notebook shows of a log, a topic, transactions and subscriptions: plain HTML tables, every text escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from txn_source.metadata.stub.metadata_stub import TransactionInfo
from txn_source.metadata.stub.subscriptions import SubscriptionInfo

MOST_ROWS = 50


class Transactions(list[TransactionInfo]):
    """Transactions; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        rows = (
            (t.id, t.state, f"{t.age:.1f} s", len(t.partitions), ", ".join(t.producers), t.held_back_messages)
            for t in self
        )
        columns = ("Transaction", "State", "Age", "Partitions", "Producers", "Messages held back")
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


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], number: int) -> str:
    """Return a table of the first rows, with a note of how many there are if that is more."""
    shown = [row for row, _ in zip(rows, range(MOST_ROWS), strict=False)]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in shown)
    more = f"<p>The first {len(shown):,} of {number:,}.</p>" if number > len(shown) else ""
    caption = f"<caption>{html.escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td style="text-align: right">{value:,}</td>'
    return f"<td>{html.escape(str(value))}</td>"
