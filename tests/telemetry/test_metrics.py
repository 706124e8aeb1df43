"""What the steps of a Task leave in the metrics, without knowing it."""

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from anima.model.attempts import Outcome
from anima.model.errors import Refusal
from anima.model.reasons import Reason
from anima.model.steps import JobCreated, Settled
from anima.model.task import Phase, TaskStatus
from anima.model.wire import Step
from anima.telemetry.metrics import Metrics, configure_metrics
from anima.telemetry.steps import StepMetrics
from tests.doubles.collector import Collector
from tests.doubles.traced_workflow import Traced

CONNECT = """
import asyncio, os, sys
from temporalio.client import Client
from anima.telemetry.metrics import temporal_runtime
async def main():
    client = await Client.connect(sys.argv[1], runtime=temporal_runtime("anima-orchestrator", os.environ))
    sys.stdin.read()
asyncio.run(main())
"""

AWAY = """
import os
from anima.model.task import Phase
from anima.telemetry.logs import configure_logs
from anima.telemetry.metrics import configure_metrics, temporal_runtime
configure_logs("anima-test")
runtime = temporal_runtime("anima-test", os.environ)
runtime.metric_meter.create_counter("tries").add(1)
metrics = configure_metrics("anima-test", os.environ)
metrics.task_closed(Phase.SUCCEEDED, None)
metrics.shutdown()
"""


@activity.defn(name=Step.CLOSE)
async def close(request: Any) -> TaskStatus:
    return TaskStatus(namespace="default", name="review", uid="u", phase=Phase.FAILED, reason=Reason.JOB_TIMEOUT)


@activity.defn(name=Step.SETTLE)
async def settle(request: dict[str, Any]) -> Settled:
    return Settled(outcome=Outcome(succeeded=True)) if request["ended"] else Settled()


@activity.defn(name=Step.CREATE)
async def create(request: dict[str, Any]) -> JobCreated:
    return JobCreated(stale=request["stale"])


@activity.defn(name=Step.BIND)
async def bind(request: Any) -> None:
    raise ApplicationError("the soul is another", type=Reason.SOUL_DRIFT, non_retryable=True)


@activity.defn(name=Step.DELETE)
async def delete(request: Any) -> None:
    if activity.info().attempt == 1:
        raise ApplicationError("the store is away", type="Operational")


async def run(address: str, metrics: Metrics, *steps: tuple[Step, dict[str, Any]]) -> None:
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    worker = Worker(
        client,
        task_queue="measured",
        workflows=[Traced],
        activities=[close, settle, create, bind, delete],
        interceptors=[StepMetrics(metrics, lambda: datetime.now(UTC))],
    )
    async with worker:
        for step, request in steps:
            try:
                await client.execute_workflow("Traced", args=[step, request], id="measured", task_queue="measured")
            except WorkflowFailureError:
                assert step is Step.BIND
    metrics.shutdown()


async def test_every_step_is_counted_by_what_became_of_it(temporal_address: str, collector: Collector) -> None:
    await run(
        temporal_address,
        configure_metrics("anima-orchestrator", collector.environ),
        (Step.CLOSE, {}),
        (Step.SETTLE, {"ended": False}),
        (Step.SETTLE, {"ended": True}),
        (Step.CREATE, {"stale": True}),
        (Step.CREATE, {"stale": False}),
        (Step.BIND, {}),
        (Step.DELETE, {}),
    )
    assert collector.points("anima.task.closed") == [({"phase": "Failed", "reason": "JobTimeout"}, 1)]
    assert collector.points("anima.attempts") == [({"outcome": "succeeded"}, 1)]
    assert collector.points("anima.job.start.latency") == [({}, 1)]
    assert collector.points("anima.drift.rejections") == [({"reason": "SoulDrift"}, 1)]
    assert collector.points("anima.step.retries") == [({"step": "job.delete"}, 1)]
    assert collector.metric("anima.task.closed") == "anima-orchestrator"


def test_equal_labels_add_up_and_a_latency_is_never_below_zero(collector: Collector) -> None:
    metrics = configure_metrics("anima-test", collector.environ)
    for _ in range(3):
        metrics.attempt_decided(False, Reason.JOB_LOST)
    metrics.attempt_decided(True, None)
    metrics.job_started(timedelta(seconds=-1))
    metrics.shutdown()
    assert sorted(collector.points("anima.attempts"), key=str) == [
        ({"outcome": "failed", "reason": "JobLost"}, 3),
        ({"outcome": "succeeded"}, 1),
    ]
    assert collector.points("anima.job.start.latency") == [({}, 1)]


async def test_temporals_own_metrics_go_to_the_same_collector(temporal_address: str, collector: Collector) -> None:
    environ = collector.environ | {"OTEL_METRIC_EXPORT_INTERVAL": "20"}
    # In a process of its own, as a runtime sends until its process ends.
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONNECT, temporal_address, env=environ, stdin=asyncio.subprocess.PIPE
    )
    assert await asyncio.to_thread(collector.metric, "temporal_request") == "anima-orchestrator"
    await process.communicate(b"")
    assert process.returncode == 0


def test_a_process_whose_collector_is_away_says_so_in_json_and_ends() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_METRIC_EXPORT_INTERVAL": "20"}
    done = subprocess.run([sys.executable, "-c", AWAY], env=environ, capture_output=True, check=True, text=True)
    core = json.loads(done.stdout.splitlines()[0])
    assert (core["level"], core["fields"]["message"]) == ("WARN", "OTLP metric export failed; metrics may be dropped")
    assert any(json.loads(line)["logger"].startswith("opentelemetry.exporter") for line in done.stderr.splitlines())


@pytest.mark.parametrize("interval", ["soon", "0", "-1"])
def test_an_export_interval_that_is_no_time_is_refused(interval: str) -> None:
    with pytest.raises(Refusal, match="OTEL_METRIC_EXPORT_INTERVAL"):
        configure_metrics(
            "anima-test",
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_METRIC_EXPORT_INTERVAL": interval},
        )
