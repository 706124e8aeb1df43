"""One trace from the client to the Job, and nothing in it that anybody said."""

import asyncio
import subprocess
import sys

import pytest
from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from anima.model.attempts import AttemptKey
from anima.model.errors import Refusal
from anima.model.reasons import Reason
from anima.model.steps import Bind, CreateJob, JobCreated
from anima.telemetry.traces import JOB_COLLECTOR, Traces, configure_traces
from tests.doubles.collector import Collector, attributes
from tests.doubles.traced_workflow import Traced

MARKER = "PERSONA-MARKER"
KEY = AttemptKey(task_uid="uid-1", attempt=2)
CREATE = CreateJob(key=KEY, job_name="review-a2", prompt_digest="sha256:" + "a" * 64)

JOB = """
import os
from anima.telemetry.traces import configure_traces
traces = configure_traces("anima-job", os.environ)
with traces.attached(os.environ), traces.span("attempt", attempt="uid-1/0/2"):
    print(traces.headers()["traceparent"])
traces.shutdown()
"""

SILENT = """
import os, sys
from anima.model.task import Phase
from anima.telemetry.logs import configure_logs
from anima.telemetry.metrics import configure_metrics, temporal_runtime
from anima.telemetry.steps import StepMetrics
from anima.telemetry.traces import configure_traces
configure_logs("anima-test")
traces, metrics = configure_traces("anima-test", os.environ), configure_metrics("anima-test", os.environ)
temporal_runtime("anima-test", os.environ)
with traces.attached({"TRACEPARENT": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}), traces.span("attempt"):
    print(list(traces.interceptors), traces.headers(), traces.job_environment())
metrics.task_closed(Phase.SUCCEEDED, None)
traces.shutdown()
metrics.shutdown()
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))])
"""


class Activities:
    """One that starts a child process, as a Job, and one that fails with a persona on its lips."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self.heard = ""

    @activity.defn(name="job.create")
    async def create(self, request: CreateJob) -> JobCreated:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", JOB, env=self._traces.job_environment(), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        self.heard = output.decode().strip()
        return JobCreated()

    @activity.defn(name="soul.bind")
    async def bind(self, request: Bind) -> None:
        try:
            raise ValueError(MARKER)
        except ValueError as error:
            raise ApplicationError(MARKER, type=Reason.SOUL_DRIFT, non_retryable=True) from error


async def run(address: str, collector: Collector, step: str, request: Bind | CreateJob) -> Activities:
    """Run a workflow of one step, all of it traced."""
    traces = configure_traces("anima-orchestrator", collector.environ)
    client = await Client.connect(address, data_converter=pydantic_data_converter, interceptors=traces.interceptors)
    activities = Activities(traces)
    async with Worker(client, task_queue=step, workflows=[Traced], activities=[activities.create, activities.bind]):
        handle = await client.start_workflow("Traced", args=[step, request.to_json()], id=step, task_queue=step)
        try:
            await handle.result()
        except WorkflowFailureError:
            assert step == "soul.bind"
    traces.shutdown()
    return activities


async def test_one_trace_goes_from_the_client_through_workflow_and_activity_into_the_job(
    temporal_address: str, collector: Collector
) -> None:
    activities = await run(temporal_address, collector, "job.create", CREATE)
    spans = collector.spans
    parents = {
        "RunWorkflow:Traced": "StartWorkflow:Traced",
        "StartActivity:job.create": "StartWorkflow:Traced",
        "RunActivity:job.create": "StartActivity:job.create",
        "attempt": "RunActivity:job.create",
    }
    assert spans["StartWorkflow:Traced"].parent_span_id == b""
    assert {name: spans[name].parent_span_id for name in parents} == {
        name: spans[parent].span_id for name, parent in parents.items()
    }
    assert len({spans[name].trace_id for name in parents}) == 1
    assert {collector.services[name] for name in parents} == {"anima-orchestrator", "anima-job"}
    attempt = spans["attempt"]
    assert activities.heard.startswith(f"00-{attempt.trace_id.hex()}-{attempt.span_id.hex()}-")


async def test_a_span_says_which_attempt_job_and_prompt_an_activity_is_about(
    temporal_address: str, collector: Collector
) -> None:
    await run(temporal_address, collector, "job.create", CREATE)
    said = attributes(collector.spans["RunActivity:job.create"])
    assert {name: value for name, value in said.items() if name.startswith("anima.")} == {
        "anima.attempt": "uid-1/0/2",
        "anima.job_name": "review-a2",
        "anima.prompt_digest": CREATE.prompt_digest,
    }
    assert said["temporalWorkflowID"] == "job.create"
    assert attributes(collector.spans["attempt"]) == {"anima.attempt": "uid-1/0/2"}


async def test_a_failed_activity_shows_its_reason_and_no_word_of_any_exception(
    temporal_address: str, collector: Collector
) -> None:
    await run(temporal_address, collector, "soul.bind", Bind(key=KEY))
    span = collector.spans["RunActivity:soul.bind"]
    assert attributes(span)["anima.reason"] == Reason.SOUL_DRIFT
    assert span.status.code == span.status.STATUS_CODE_ERROR
    assert [attributes(event) for event in span.events] == [
        {"exception.type": "temporalio.exceptions.ApplicationError"}
    ]
    assert collector.spans["CompleteWorkflow:Traced"].events
    assert MARKER.encode() not in b"".join(collector.bodies)


def test_a_failed_block_shows_the_type_of_its_error_only(collector: Collector) -> None:
    traces = configure_traces("anima-test", collector.environ)
    with pytest.raises(ValueError, match=MARKER), traces.span("foreign"):
        raise ValueError(MARKER)
    with pytest.raises(Refusal), traces.span("refused"):
        raise Refusal(Reason.ANSWER_BLANK, MARKER)
    traces.shutdown()
    assert attributes(collector.spans["foreign"]) == {"error.type": "ValueError"}
    assert attributes(collector.spans["refused"]) == {"error.type": "Refusal", "anima.reason": "AnswerBlank"}
    assert MARKER.encode() not in b"".join(collector.bodies)


def test_a_job_gets_the_trace_and_the_collector_but_no_variable_that_other_programs_obey(
    collector: Collector,
) -> None:
    environ = collector.environ | {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=secret"}
    traces = configure_traces("anima-test", environ)
    assert traces.job_environment() == {}
    with traces.span("activity"):
        given = traces.job_environment()
    traces.shutdown()
    assert given.keys() == {"TRACEPARENT", JOB_COLLECTOR}
    assert given[JOB_COLLECTOR] == f"{collector.address}/v1/traces"


async def test_a_web_framework_continues_the_trace_and_keeps_addresses_to_itself(collector: Collector) -> None:
    traces = configure_traces("anima-gateway", collector.environ)
    app = FastAPI(
        telemetry={
            "tracer_provider": traces.provider,
            "logs": False,
            "metrics": False,
            "operation_spans": False,
            "auto_configure": False,
        }
    )

    @app.get("/v1/things/{name}")
    async def thing(name: str) -> str:
        raise ValueError(name)

    async with AsyncClient(transport=ASGITransport(app, raise_app_exceptions=False), base_url="http://gateway") as http:
        with traces.span("caller"):
            await http.get(f"/v1/things/{MARKER}?q={MARKER}", headers=traces.headers() | {"User-Agent": MARKER})
    traces.shutdown()
    span = collector.spans["GET /v1/things/{name}"]
    assert span.parent_span_id == collector.spans["caller"].span_id
    assert attributes(span) == {
        "http.request.method": "GET",
        "http.response.status_code": 500,
        "http.route": "/v1/things/{name}",
        "error.type": "ValueError",
    }
    assert MARKER.encode() not in b"".join(collector.bodies)


def test_without_a_collector_nothing_is_imported_made_or_sent() -> None:
    done = subprocess.run([sys.executable, "-c", SILENT], env={}, capture_output=True, check=False)
    assert (done.stdout.decode().splitlines(), done.stderr, done.returncode) == (["[] {} {}", "[]"], b"", 0)


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:9"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_traces_are_off_when_opentelemetrys_variables_say_so(environ: dict[str, str]) -> None:
    assert configure_traces("anima-test", environ).provider is None


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "user:password@collector"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "collector:4318"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_and_named(environ: dict[str, str], named: str) -> None:
    with pytest.raises(Refusal, match=named) as refused:
        configure_traces("anima-test", environ)
    assert refused.value.reason is Reason.SETTING_INVALID
    assert "password" not in refused.value.message
