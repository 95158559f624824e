"""What this process has read from which copies of ledgers.

Readers read segments and objects themselves, so a service sees little of it. ``reads()`` tells it, and ``register()``
lets Prometheus's client library export it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txn_source.observing.read_counts import OF_PROCESS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["Reads", "reads", "register"]


@dataclass(frozen=True, slots=True)
class Reads:
    """Ledgers that were read, and copies that a read had to leave for another one, by tier: bookkeeper, tiered."""

    ledgers: Mapping[str, int]
    fallbacks: Mapping[str, int]


def reads() -> Reads:
    """Return what this process has read since it began, of all logs."""
    return Reads(*OF_PROCESS.now())


def register(registry: CollectorRegistry | None = None) -> None:
    """Export ``txnlog_reader_ledgers_total`` and ``txnlog_reader_fallbacks_total``, each by ``tier``.

    Args:
        registry: of prometheus-client; None: its default one.
    """
    from prometheus_client import REGISTRY
    from prometheus_client.core import CounterMetricFamily

    class Collector:
        def collect(self) -> Iterator[Any]:
            found = reads()
            for name, text, counts in (
                ("ledgers", "Ledgers read, by the copy", found.ledgers),
                ("fallbacks", "Copies that a read had to leave", found.fallbacks),
            ):
                family = CounterMetricFamily(f"txnlog_reader_{name}", text, labels=["tier"])
                for tier, count in counts.items():
                    family.add_metric([tier], count)
                yield family

    (registry or REGISTRY).register(Collector())
