"""Traces: spans from a caller's own to the service's, links from what is read to what was sent; off, nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.cli.test_serve import address_of
from tests.log.sites import Site
from txn_source import TopicNotFoundError, connect, tracing


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """What is made of spans; ``provider`` is what makes them."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    exporter.provider = provider  # type: ignore[attr-defined]
    tracing.enable(provider)
    yield exporter
    tracing.disable()


def caller(spans: Any, name: str = "nightly") -> Any:
    return spans.provider.get_tracer("a program").start_as_current_span(name)


def named(spans: InMemorySpanExporter, name: str) -> Any:
    [found] = [span for span in spans.get_finished_spans() if span.name == name]
    return found


def test_calls_are_below_their_caller_and_above_the_service(remote_site: Site, spans: Any) -> None:
    """Make a topic and write to it in a span: each call is its child, and the service's part the call's."""
    log = remote_site.connect()
    with caller(spans):
        log.create_topic("orders")
        producer = log.producer("orders")
        txn = log.begin_transaction()
        producer.send(b"a", txn=txn)
        producer.flush()
        txn.commit()
        producer.close()
    top = named(spans, "nightly")
    served = [span.name for span in spans.get_finished_spans() if span.kind is SpanKind.SERVER]
    assert {"txnlog.serve CreateTopic", "txnlog.serve OpenProducer"} <= set(served)
    assert any(name.endswith(("Append", "WriteAll", "WriteTransaction")) for name in served)
    call, below = named(spans, "txnlog CreateTopic"), named(spans, "txnlog.serve CreateTopic")
    assert call.kind is SpanKind.CLIENT
    assert call.parent.span_id == top.context.span_id
    assert below.parent.span_id == call.context.span_id
    assert {span.context.trace_id for span in (top, call, below)} == {top.context.trace_id}


def test_refusals_have_their_code_and_no_text(remote_site: Site, spans: Any) -> None:
    """Ask for a topic that isn't there: both spans say so, without its name."""
    log = remote_site.connect()
    with pytest.raises(TopicNotFoundError):
        log.stats("secret")
    for name in ("txnlog GetView", "txnlog.serve GetView"):
        span = named(spans, name)
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["txnlog.code"] == "TOPIC_NOT_FOUND"
        assert "secret" not in span.to_json()


def test_embedded_calls_have_spans_too(embedded_site: Site, spans: Any) -> None:
    """There is no service: the call is all there is."""
    with caller(spans):
        embedded_site.connect().create_topic("orders")
    assert named(spans, "txnlog CreateTopic").parent.span_id == named(spans, "nightly").context.span_id


def test_what_is_read_is_linked_with_what_was_sent(embedded_site: Site, spans: Any) -> None:
    """Send in two spans with their context, and once without: the reader's span is linked with the two, each once."""
    log = embedded_site.connect()
    log.create_topic("orders")
    with log.producer("orders") as producer:
        for name in ("first", "second"):
            with caller(spans, name):
                for _ in range(2):
                    producer.send(b"a", properties=tracing.properties(kind="order"))
        producer.send(b"b", properties=tracing.properties())
        producer.send(b"c", properties={"traceparent": "nonsense"})
    rows = log.scan("orders", columns=["__properties"]).read_all()
    assert dict(rows["__properties"].to_pylist()[0])["kind"] == "order"
    with tracing.reading("booking", rows["__properties"].to_pylist()):
        pass
    linked = {link.context.span_id for link in named(spans, "booking").links}
    assert linked == {named(spans, name).context.span_id for name in ("first", "second")}


def test_without_spans_there_is_nothing_to_link(embedded_site: Site) -> None:
    """Nothing was enabled: no property, and no span."""
    assert tracing.properties(kind="order") == {"kind": "order"}
    with tracing.reading("booking", [None, {"traceparent": "00-1-2-01"}]):
        pass


@pytest.mark.long
def test_off_means_that_nothing_is_loaded(tmp_path: Path) -> None:
    """Write and read in a new process: OpenTelemetry and prometheus-client stay out of it."""
    program = f"""
import sys
import txn_source
from txn_source import metrics, tracing
with txn_source.connect({str(tmp_path / "log")!r}) as log:
    log.create_topic("orders")
    with log.producer("orders") as producer:
        producer.send(b"a", properties=tracing.properties())
    assert log.scan("orders").read_all().num_rows == 1
assert metrics.reads().ledgers == {{"bookkeeper": 1}}
print([name for name in sys.modules if name.split(".")[0] in ("opentelemetry", "prometheus_client", "starlette")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_service_sends_its_spans(spawn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve with traces and a collector that takes them: after a call, and the stop, its span has come."""
    came: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        process = spawn("serve", "--root", tmp_path / "log", "--port", "0", "--traces")
        with connect(endpoint=address_of(process)) as log:
            log.create_topic("orders")
        process.terminate()
        assert process.wait(120) == 0
        collector.shutdown()
    assert any(path == "/v1/traces" and b"txnlog.serve CreateTopic" in body for path, body in came)
