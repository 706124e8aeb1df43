"""A collector: receives OTLP over HTTP, as protobuf, and keeps what it is sent."""

import gzip
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from threading import Condition
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.doubles.loopback import LoopbackServer


class Collector(LoopbackServer):
    """Give its `address` as ``OTEL_EXPORTER_OTLP_ENDPOINT``."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self._arrived = Condition()
        self._spans: list[tuple[str, Span]] = []
        self._metrics: list[tuple[str, Metric]] = []
        self.bodies: list[bytes] = []
        """Everything that was sent, uncompressed."""

    @property
    def environ(self) -> dict[str, str]:
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.address}

    @property
    def spans(self) -> dict[str, Span]:
        """The spans by name; of spans with one name the last."""
        return {span.name: span for _, span in self._spans}

    @property
    def services(self) -> dict[str, str]:
        """The service of each span, by the span's name."""
        return {span.name: service for service, span in self._spans}

    def points(self, name: str) -> list[tuple[dict[str, Any], float]]:
        """Return the labels of a metric with the last value or, of a histogram, the number of records."""
        found: dict[str, tuple[dict[str, Any], float]] = {}
        for _, metric in self._metrics:
            if metric.name == name:
                found |= {str(labels): (labels, value) for labels, value in _points(metric)}
        return list(found.values())

    def metric(self, name: str, seconds: float = 30) -> str:
        """Wait for a metric and return the service that sent it."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: any(metric.name == name for _, metric in self._metrics), seconds)
        return next(service for service, metric in self._metrics if metric.name == name)

    def take(self, path: str, body: bytes) -> None:
        with self._arrived:
            self.bodies.append(body)
            if path == "/v1/traces":
                self._spans += _spans(ExportTraceServiceRequest.FromString(body))
            elif path == "/v1/metrics":
                self._metrics += _metrics(ExportMetricsServiceRequest.FromString(body))
            self._arrived.notify_all()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.owner.take(self.path, body)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def attributes(of: Any) -> dict[str, Any]:
    """Return the attributes of a span, an event, a resource or a data point."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in of.attributes}


def _spans(request: ExportTraceServiceRequest) -> Iterator[tuple[str, Span]]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            yield from ((attributes(resource.resource)["service.name"], span) for span in scope.spans)


def _metrics(request: ExportMetricsServiceRequest) -> Iterator[tuple[str, Metric]]:
    for resource in request.resource_metrics:
        said = attributes(resource.resource)
        for scope in resource.scope_metrics:
            yield from ((said.get("service.name", ""), metric) for metric in scope.metrics)


def _points(metric: Metric) -> Iterator[tuple[dict[str, Any], float]]:
    if metric.WhichOneof("data") == "histogram":
        yield from ((attributes(point), point.count) for point in metric.histogram.data_points)
    else:
        yield from ((attributes(point), point.as_int) for point in metric.sum.data_points)
