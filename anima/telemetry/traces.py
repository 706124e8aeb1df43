"""The spans of a process, and how a trace goes on in the next one.

Its way: client, workflow, activity (Temporal's headers), Job (its environment), the
gateway's routes (HTTP headers).  Spans hold ids, digests, numbers and reasons.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import context, trace
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import anima
from anima.telemetry import otlp
from anima.telemetry.marks import PREFIX, mark_failed
from anima.telemetry.redaction import fields

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from anima.telemetry.interceptors import TemporalTracing

JOB_COLLECTOR = "ANIMA_OTLP_TRACES_ENDPOINT"
"""Where a Job's worker sends its spans.

A Job has no ``OTEL_`` variable: a program that an Agent runs would take it for its
own, and send prompts there.
"""
_CARRIER = ("TRACEPARENT", "TRACESTATE")
_propagator = TraceContextTextMapPropagator()


class Traces:
    """The spans of one process.  Without a collector every method does nothing.

    Args:
        provider: makes spans and sends them; none if traces are off.
        collector: the address to which Jobs send their spans.
    """

    def __init__(self, provider: "TracerProvider | None" = None, collector: str = "") -> None:
        self.provider = provider
        self._collector = collector
        self._tracer = (provider or trace.NoOpTracerProvider()).get_tracer("anima", anima.__version__)

    @property
    def interceptors(self) -> "Sequence[TemporalTracing]":
        """For `Client.connect`; the workers of that client use them too."""
        if self.provider is None:
            return []
        from anima.telemetry.interceptors import TemporalTracing

        return [TemporalTracing(self.provider.get_tracer("temporalio"))]

    @contextmanager
    def span(self, name: str, **attributes: str | int) -> Iterator[None]:
        """Measure the block as a child of the current span.

        Args:
            name: of few values; no ids.
            attributes: ids, digests, numbers and reasons; each gets the prefix ``anima.``.
        """
        named = {PREFIX + key: value for key, value in fields(attributes).items()}
        with self._tracer.start_as_current_span(
            name, kind=SpanKind.INTERNAL, attributes=named, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except Exception as error:
                mark_failed(span, error)
                raise

    def headers(self) -> dict[str, str]:
        """Return the headers that carry the current trace to another process."""
        if self.provider is None:
            return {}
        carrier: dict[str, str] = {}
        _propagator.inject(carrier)
        return carrier

    def job_environment(self) -> dict[str, str]:
        """Return the variables that carry the current trace into a Job."""
        carrier = {name.upper(): value for name, value in self.headers().items()}
        return carrier | {JOB_COLLECTOR: self._collector} if carrier else {}

    @contextmanager
    def attached(self, environ: Mapping[str, str]) -> Iterator[None]:
        """Continue the trace that `job_environment` put into this process's environment."""
        carrier = {name.lower(): environ[name] for name in _CARRIER if name in environ}
        token = context.attach(_propagator.extract(carrier))
        try:
            yield
        finally:
            context.detach(token)

    def shutdown(self) -> None:
        """Send what is left; a collector that is away delays this by one export's timeout."""
        if self.provider is not None:
            self.provider.shutdown()


def configure_traces(service: str, environ: Mapping[str, str]) -> Traces:
    """Return this process's traces, sent to the collector that `environ` names, if any.

    Args:
        service: the name of the process.
        environ: the variables of OpenTelemetry; in a Job `JOB_COLLECTOR` counts first.

    Raises:
        Refusal: `SettingInvalid`.
    """
    collector = environ.get(JOB_COLLECTOR) or otlp.endpoint(environ, "traces")
    if not collector:
        return Traces()
    # The SDK takes half a second to import.
    from anima.telemetry.spans import open_provider

    return Traces(open_provider(service, collector, otlp.timeout(environ, "traces")), collector)
