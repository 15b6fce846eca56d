"""Sends spans by OTLP over HTTP with OpenTelemetry's SDK, which is imported only if it is used.

A thread of the SDK sends in batches. Spans that cannot be sent for long, or do not fit, are lost,
and the SDK logs that. Headers, certificates and timeouts are the variables OTEL_EXPORTER_OTLP_* of
https://opentelemetry.io/docs/specs/otel/protocol/exporter/.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rankscope_analyzers.tracing.spans import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

PATH = "/v1/traces"
SERVICE = "rankscope-watch"
EXTRA = "pip install 'rankscope[tracing]'"


class TracingError(Exception):
    """Nothing can be sent; the message says why."""


class Sender:
    """Sends spans to a collector.

    Args:
        endpoint: its address; the path of traces is appended, as to OTEL_EXPORTER_OTLP_ENDPOINT.

    Raises:
        TracingError: it is not an address, or OpenTelemetry is not installed.
    """

    def __init__(self, endpoint: str) -> None:
        if urlsplit(endpoint).scheme not in {"http", "https"}:
            raise TracingError(f"{endpoint} is not an http address")
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import SpanProcessor
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise TracingError(f"{error.name} is missing: {EXTRA}") from None
        exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + PATH)
        self._resource = Resource.create(
            {"service.name": SERVICE, "service.version": version("rankscope")}
        )
        self._processor: SpanProcessor = BatchSpanProcessor(exporter)

    def send(self, spans: Sequence[Span]) -> None:
        """Queue spans for sending, and return at once."""
        for span in spans:
            self._processor.on_end(_readable(span, self._resource))

    def close(self) -> None:
        """Send what is left."""
        self._processor.shutdown()


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    def context(identity: int) -> SpanContext:
        sampled = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(span.trace, identity, is_remote=False, trace_flags=sampled)

    return ReadableSpan(
        name=span.name,
        context=context(span.identity),
        parent=None if span.parent is None else context(span.parent),
        resource=resource,
        attributes=span.attributes,
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
        start_time=_nanoseconds(span.start),
        end_time=_nanoseconds(span.end),
        instrumentation_scope=InstrumentationScope("rankscope", version("rankscope")),
    )


def _nanoseconds(unix_seconds: float) -> int:
    return round(unix_seconds * 1e9)
