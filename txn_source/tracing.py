"""Following what a program does into the service: ids of requests, and traces of OpenTelemetry.

```python
from txn_source import tracing

with tracing.request_id("nightly-42"):  # in lines of the service's log, and of its audit
    log.delete_topic("orders")

tracing.enable()  # spans around all calls, with the extra `otel`
```

A stored message tells of the span that sent it only if it is asked to: ``send(value,
properties=tracing.properties())``. What reads it then links its own span to that one: ``with tracing.reading("booking",
rows.column("__properties").to_pylist())``.
"""

from __future__ import annotations

from typing import Any

from txn_source.model.errors import InvalidArgumentError
from txn_source.observing.request_ids import request_id
from txn_source.observing.spans import TRACE_KEY, current, reading, switch_off, switch_on

__all__ = ["disable", "enable", "properties", "reading", "request_id"]


def enable(provider: Any = None) -> None:
    """Make spans around this process's calls from now on; the service's, if it has traces, are below them.

    Args:
        provider: a tracer provider of OpenTelemetry; None: the process's own.

    Raises:
        InvalidArgumentError: OpenTelemetry isn't installed.
    """
    try:
        switch_on(provider)
    except ImportError:
        raise InvalidArgumentError("Traces need OpenTelemetry.", "Install txn-source[otel].") from None


def disable() -> None:
    """Make no spans any more."""
    switch_off()


def properties(**others: str) -> dict[str, str]:
    """Return a message's properties with the trace context of this moment, if there is one, and others."""
    parent = current()
    return {**others, TRACE_KEY: parent} if parent else others
