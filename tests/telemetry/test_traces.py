"""One trace from the client to the Job, and nothing in it that anybody said."""

import asyncio
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from anima.model.attempts import AttemptKey
from anima.model.errors import Refusal
from anima.model.reasons import Reason
from anima.model.steps import CreateJob
from anima.telemetry.traces import JOB_COLLECTOR, Traces, configure_traces
from tests.doubles.collector import Collector, attributes
from tests.doubles.traced_workflow import Traced

MARKER = "PERSONA-MARKER"
DIGEST = "sha256:" + "a" * 64
KEY = AttemptKey(task_uid="uid-1", attempt=2)

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
from anima.telemetry.logs import configure_logs
from anima.telemetry.metrics import configure_metrics, temporal_runtime
from anima.telemetry.steps import StepMetrics
from anima.telemetry.traces import configure_traces
from anima.model.task import Phase
configure_logs("anima-test")
traces, metrics = configure_traces("anima-test", os.environ), configure_metrics("anima-test", os.environ)
temporal_runtime("anima-test", os.environ)
with traces.attached({"TRACEPARENT": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}), traces.span("attempt"):
    assert (traces.interceptors, traces.headers(), traces.job_environment()) == ((), {}, {})
metrics.task_closed(Phase.SUCCEEDED, None)
traces.shutdown(); metrics.shutdown()
loaded = [name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))]
assert not loaded, loaded
"""


class Activities:
    """An activity that starts a child process, and one that fails with a persona on its lips."""

    def __init__(self, traces: Traces) -> None:
        self.traces = traces
        self.heard: list[str] = []

    @activity.defn(name="job.create")
    async def create(self, request: CreateJob | None = None) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", JOB, env=self.traces.job_environment(), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        self.heard.append(output.decode().strip())
        return "created"

    @activity.defn(name="soul.bind")
    async def bind(self) -> str:
        try:
            raise ValueError(MARKER)
        except ValueError as error:
            raise ApplicationError(MARKER, type=Reason.SOUL_DRIFT, non_retryable=True) from error


async def run(address: str, collector: Collector, step: str) -> Activities:
    """Run a workflow with one step, all of it traced."""
    traces = configure_traces("anima-orchestrator", collector.environ)
    client = await Client.connect(address, interceptors=traces.interceptors)
    activities = Activities(traces)
    worker = Worker(
        client,
        task_queue=f"traced-{step}",
        workflows=[Traced],
        activities=[activities.create, activities.bind],
    )
    async with worker:
        try:
            await client.execute_workflow(Traced.run, step, id=f"traced-{step}", task_queue=f"traced-{step}")
        except WorkflowFailureError:
            assert step == "soul.bind"
    traces.shutdown()
    return activities


async def test_one_trace_goes_from_the_client_through_workflow_and_activity_into_the_job(
    temporal_address: str, collector: Collector
) -> None:
    activities = await run(temporal_address, collector, "job.create")
    spans = collector.spans
    chain = [
        "StartWorkflow:Traced",
        "RunWorkflow:Traced",
        "StartActivity:job.create",
        "RunActivity:job.create",
        "attempt",
    ]
    for parent, child in zip(chain, chain[1:], strict=False):
        assert spans[child].parent_span_id == spans[parent].span_id
    assert len({spans[name].trace_id for name in chain}) == 1
    assert collector.services["attempt"] == "anima-job"
    assert attributes(spans["attempt"]) == {"anima.attempt": "uid-1/0/2"}
    assert activities.heard == [f"00-{spans['attempt'].trace_id.hex()}-{spans['attempt'].span_id.hex()}-01"]


async def test_a_failed_activity_shows_its_reason_and_no_word_of_any_exception(
    temporal_address: str, collector: Collector
) -> None:
    await run(temporal_address, collector, "soul.bind")
    span = collector.spans["RunActivity:soul.bind"]
    assert attributes(span)["anima.reason"] == Reason.SOUL_DRIFT
    assert span.status.code == span.status.STATUS_CODE_ERROR
    assert [attributes(event) for event in span.events] == [{"exception.type": "temporalio.exceptions.ApplicationError"}]
    assert collector.spans["CompleteWorkflow:Traced"].events
    assert MARKER.encode() not in b"".join(collector.bodies)


async def test_an_activity_span_names_attempt_job_and_prompt_digest(
    temporal_address: str, collector: Collector
) -> None:
    traces = configure_traces("anima-orchestrator", collector.environ)
    client = await Client.connect(temporal_address, interceptors=traces.interceptors)

    @activity.defn(name="job.create")
    async def create(request: CreateJob) -> str:
        return request.job_name

    request = CreateJob(key=KEY, job_name="review-a2", prompt_digest=DIGEST)
    async with Worker(client, task_queue="named", activities=[create], workflows=[Named]):
        await client.execute_workflow(Named.run, request, id="named", task_queue="named")
    traces.shutdown()
    named = {name: value for name, value in attributes(collector.spans["RunActivity:job.create"]).items() if "anima" in name}
    assert named == {"anima.attempt": "uid-1/0/2", "anima.job_name": "review-a2", "anima.prompt_digest": DIGEST}
