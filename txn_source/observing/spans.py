"""Spans of OpenTelemetry around calls, where they were asked for. Else nothing is imported, and nothing is done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

TRACE_KEY = "traceparent"
"""Of a call's metadata, and of a message's properties: W3C's trace context."""
_MAX_LINKS = 128
_OFF: AbstractContextManager[None] = nullcontext()
_tracer: Any = None


def switch_on(provider: Any = None) -> None:
    """Make spans from now on, of a tracer provider of OpenTelemetry; None: the process's.

    Raises:
        ImportError: OpenTelemetry isn't installed.
    """
    from opentelemetry import trace

    global _tracer
    _tracer = (provider or trace.get_tracer_provider()).get_tracer("txn_source")


def switch_off() -> None:
    """Make none any more."""
    global _tracer
    _tracer = None


def calling(name: str) -> AbstractContextManager[Any]:
    """A span around a call that this process makes."""
    return _OFF if _tracer is None else _spanned(f"txnlog {name}", "CLIENT")


def serving(name: str, parent: str | None) -> AbstractContextManager[Any]:
    """A span around a call that this process carries out, below its caller's."""
    return _OFF if _tracer is None else _spanned(f"txnlog.serve {name}", "SERVER", parent)


def working(name: str) -> AbstractContextManager[Any]:
    """A span around work of this process."""
    return _OFF if _tracer is None else _spanned(name, "INTERNAL")


def current() -> str:
    """Return the trace context of the span that this thread is in; nothing if it is in none."""
    if _tracer is None:
        return ""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(TRACE_KEY, "")


@contextmanager
def _spanned(name: str, kind: str, parent: str | None = None) -> Iterator[Any]:
    from opentelemetry.trace import SpanKind, Status, StatusCode

    tracer = _tracer
    if tracer is None:  # switched off meanwhile
        yield None
        return
    context = None if parent is None else _extracted(parent)
    with tracer.start_as_current_span(
        name, context, SpanKind[kind], record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            code = getattr(error, "code", None)
            span.set_attribute("txnlog.code", code if isinstance(code, str) else type(error).__name__)
            span.set_status(Status(StatusCode.ERROR))  # without the text, which may name what a trace shouldn't
            raise


@contextmanager
def reading(name: str, properties: Iterable[Any]) -> Iterator[None]:
    """A span around the work on some messages, linked with the spans in which they were sent.

    ``properties`` are theirs: mappings, lists of pairs, or None.
    """
    if _tracer is None:
        yield
        return
    from opentelemetry.trace import Link, get_current_span

    parents = list(dict.fromkeys(parent for of in properties if (parent := _parent_in(of))))
    found = [get_current_span(_extracted(parent)).get_span_context() for parent in parents[:_MAX_LINKS]]
    links = [Link(context) for context in found if context.is_valid]
    with _tracer.start_as_current_span(name, links=links) as span:
        span.set_attribute("txnlog.linked", len(parents))
        yield


def _parent_in(properties: Any) -> str | None:
    pairs = properties if isinstance(properties, Mapping) else dict(properties or ())
    parent = pairs.get(TRACE_KEY)
    return parent if isinstance(parent, str) else None


def _extracted(parent: str) -> Any:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({TRACE_KEY: parent}, Context())
