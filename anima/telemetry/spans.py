"""OpenTelemetry's SDK, set up so that no message or text leaves with a span.

Temporal's `TracingInterceptor`, and OpenTelemetry itself, record the message and the
stack of every exception, and the message once more as the span's status.  A foreign
message may quote a soul, so the exporter drops what it does not know to be harmless.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, Status
from opentelemetry.util.types import Attributes, AttributeValue
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

import anima
from anima.model.attempts import AttemptKey
from anima.telemetry.traces import mark_failed

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
_ALLOWED_PREFIX = "anima."
_FROM_REQUESTS = ("job_name", "prompt_digest", "task_uid")


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


class TemporalTracing(TracingInterceptor):
    """Temporal's spans, and on an activity's which attempt it is about and why it failed."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return super().intercept_activity(_Activity(next))


class _Activity(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        span = trace.get_current_span()
        for request in input.args:
            span.set_attributes(_identity(request))
        try:
            return await super().execute_activity(input)
        except Exception as error:
            mark_failed(span, error, error.type if isinstance(error, ApplicationError) else None)
            raise


def _identity(request: object) -> dict[str, AttributeValue]:
    found = {name: getattr(request, name, None) for name in _FROM_REQUESTS}
    key = getattr(request, "key", None)
    if isinstance(key, AttemptKey):
        found |= {"attempt": key.path}
    return {_ALLOWED_PREFIX + name: value for name, value in found.items() if isinstance(value, str)}


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
    return {
        name: value
        for name, value in (attributes or {}).items()
        if name in _ALLOWED or name.startswith(_ALLOWED_PREFIX)
    }
