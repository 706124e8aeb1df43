"""OpenTelemetry's SDK, set up so that no message or text leaves with a span.

Temporal's `TracingInterceptor`, and OpenTelemetry itself, record the message and the
stack of every exception, and the message once more as the span's status.  A foreign
message may quote a soul, so the exporter drops what it does not know to be harmless.
"""

from collections.abc import Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, Status
from opentelemetry.util.types import Attributes, AttributeValue

import anima
from anima.telemetry.marks import PREFIX

_ALLOWED = frozenset({
    "error.type",
    "exception.type",
    "http.request.method",
    "http.response.status_code",
    "http.route",
    "temporalActivityID",
    "temporalActivityType",
    "temporalRunID",
    "temporalUpdateID",
    "temporalWorkflowID",
})  # fmt: skip


def open_provider(service: str, collector: str, timeout: float | None) -> TracerProvider:
    """Return a provider that sends spans in batches, without the text of any exception.

    Args:
        service: the name of the process.
        collector: the full address for OTLP over HTTP.
        timeout: of one export, in seconds.
    """
    provider = TracerProvider(resource=resource(service))
    provider.add_span_processor(BatchSpanProcessor(SafeExporter(OTLPSpanExporter(collector, timeout=timeout))))
    return provider


def resource(service: str) -> Resource:
    """Return what every span and metric of a process says of it."""
    return Resource.create({"service.name": service, "service.version": anima.__version__})


class SafeExporter(SpanExporter):
    """Passes spans on with their allowed attributes only."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export copies; whoever else looks at a span sees it whole."""
        return self._exporter.export([_safe(span) for span in spans])

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _safe(span: ReadableSpan) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=_allowed(span.attributes),
        events=[Event(event.name, _allowed(event.attributes), event.timestamp) for event in span.events],
        links=[Link(link.context) for link in span.links],
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _allowed(attributes: Attributes | Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    return {name: value for name, value in (attributes or {}).items() if name in _ALLOWED or name.startswith(PREFIX)}
