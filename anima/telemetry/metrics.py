"""What is counted and measured, with a typed method for each.

Labels have few values: phases, reasons, steps; never a name or an id.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.util.re import parse_env_headers
from temporalio.runtime import (
    LoggingConfig,
    LoggingFormat,
    OpenTelemetryConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

import anima
from anima.model.errors import Refusal
from anima.model.reasons import Reason
from anima.model.task import Phase
from anima.model.wire import Step
from anima.telemetry import otlp

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider

# Seconds.  A fork takes milliseconds, a Pod takes tens of seconds.
_START_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_DEFAULT_INTERVAL_MS = 60_000
_CORE_LEVELS = TelemetryFilter(core_level="WARN", other_level="ERROR")

DRIFT = frozenset({
    Reason.FROZEN_INPUT_DRIFT,
    Reason.SOUL_DRIFT,
    Reason.SOUL_INTRODUCED_LATE,
    Reason.SOUL_REMOVED,
})  # fmt: skip


class Metrics:
    """Anima's own metrics of one process.  Without a collector every method does nothing.

    Args:
        provider: keeps and sends them; none if metrics are off.
    """

    def __init__(self, provider: "MeterProvider | None" = None) -> None:
        self.provider = provider
        meter = (provider or NoOpMeterProvider()).get_meter("anima", anima.__version__)
        self._closed = meter.create_counter("anima.task.closed", "{task}", "Tasks that ended")
        self._attempts = meter.create_counter("anima.attempts", "{attempt}", "Attempts whose outcome was decided")
        self._drift = meter.create_counter("anima.drift.rejections", "{rejection}", "Steps refused because of drift")
        self._retries = meter.create_counter(
            "anima.step.retries", "{try}", "Failed tries of steps that are tried again"
        )
        self._start = meter.create_histogram(
            "anima.job.start.latency",
            "s",
            "From the workflow's wish for a Job until it exists",
            explicit_bucket_boundaries_advisory=_START_BUCKETS,
        )

    def task_closed(self, phase: Phase, reason: Reason | None) -> None:
        """Count a Task that ended, in its final phase."""
        self._closed.add(1, _labels(phase=phase, reason=reason))

    def attempt_decided(self, succeeded: bool, reason: Reason | None) -> None:
        """Count an attempt by how it ended."""
        self._attempts.add(1, _labels(outcome="succeeded" if succeeded else "failed", reason=reason))

    def drift_rejected(self, reason: Reason) -> None:
        """Count a step that was refused for one of `DRIFT`."""
        self._drift.add(1, _labels(reason=reason))

    def step_retried(self, step: Step) -> None:
        """Count a try that failed for an operational cause."""
        self._retries.add(1, _labels(step=step))

    def job_started(self, latency: timedelta) -> None:
        """Record how long it took until a Job existed."""
        self._start.record(max(latency.total_seconds(), 0.0))

    def shutdown(self) -> None:
        """Send what is left; a collector that is away delays this by one export's timeout."""
        if self.provider is not None:
            self.provider.shutdown()


def configure_metrics(service: str, environ: Mapping[str, str]) -> Metrics:
    """Return this process's metrics, sent to the collector that `environ` names, if any.

    Args:
        service: the name of the process.
        environ: the variables of OpenTelemetry.

    Raises:
        Refusal: `SettingInvalid`.
    """
    collector = otlp.endpoint(environ, "metrics")
    if collector is None:
        return Metrics()
    # The SDK takes half a second to import.
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    from anima.telemetry.spans import resource

    exporter = OTLPMetricExporter(collector, timeout=otlp.timeout(environ, "metrics"))
    reader = PeriodicExportingMetricReader(exporter, _interval(environ))
    return Metrics(MeterProvider([reader], resource(service)))


def temporal_runtime(service: str, environ: Mapping[str, str]) -> Runtime:
    """Return the runtime for `Client.connect`: it logs JSON on standard output, and sends its metrics.

    Args:
        service: the name of the process.
        environ: the variables of OpenTelemetry.

    Raises:
        Refusal: `SettingInvalid`.
    """
    return Runtime(
        telemetry=TelemetryConfig(
            # Forwarded to Python's logging, a record at the end of the process locks it up.
            logging=LoggingConfig(_CORE_LEVELS, format=LoggingFormat.JSON),
            metrics=_core_metrics(environ),
            global_tags={"service.name": service},
            attach_service_name=False,
        )
    )


def _core_metrics(environ: Mapping[str, str]) -> OpenTelemetryConfig | None:
    collector = otlp.endpoint(environ, "metrics")
    if collector is None:
        return None
    return OpenTelemetryConfig(
        collector,
        http=True,
        headers=parse_env_headers(otlp.setting(environ, "metrics", "HEADERS") or "", liberal=True),
        metric_periodicity=timedelta(milliseconds=_interval(environ)),
        durations_as_seconds=True,
    )


def _interval(environ: Mapping[str, str]) -> int:
    given = environ.get("OTEL_METRIC_EXPORT_INTERVAL") or str(_DEFAULT_INTERVAL_MS)
    if not (given.isascii() and given.isdecimal() and int(given)):
        raise Refusal(Reason.SETTING_INVALID, "OTEL_METRIC_EXPORT_INTERVAL must be a number of milliseconds above 0")
    return int(given)


def _labels(**labels: str | None) -> dict[str, str]:
    return {name: str(value) for name, value in labels.items() if value is not None}
