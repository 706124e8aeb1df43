"""The orchestrator's process: stores, Jobs, and a Temporal worker around them.

It keeps no state that it could lose: it may be killed at any moment and started
again, and any number of them may run on one task queue.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Interceptor, Worker

from activities.assembly import Parts, build_activities, build_orphans
from activities.boundary import FailureBoundary
from activities.drivers import Drivers
from anima.home import Home
from anima.model.tokens import attempt_token
from anima.stores.processes.jobs import LocalJobs
from anima.stores.sql import SqlCatalog, SqlConversations, SqlLedger, SqlSessions
from anima.telemetry.metrics import temporal_runtime
from anima.telemetry.steps import StepMetrics
from anima.telemetry.traces import Traces
from workers.orchestrator.attributes import check_attributes
from workers.orchestrator.bell import Bell
from workers.orchestrator.reaper import Reaper
from workers.orchestrator.retention import RetentionDuty
from workers.program import Ground, ground, run, service
from workers.settings import Settings
from workflows.conversation import ConversationWorkflow
from workflows.inputs import OneInput
from workflows.session import SessionWorkflow
from workflows.task import TaskWorkflow

NAME = "orchestrator"
WORKFLOWS = [TaskWorkflow, SessionWorkflow, ConversationWorkflow]

_CONNECT_PAUSE = timedelta(milliseconds=250)
_CHECK_INTERVAL = timedelta(seconds=30)
# After a crash, a workflow's next step waits this long for the dead process.
_STICKY_TIMEOUT = timedelta(seconds=2)
_GRACE = timedelta(seconds=20)

log = logging.getLogger(__name__)


def main() -> int:
    """Serve until SIGTERM or SIGINT; return the exit status."""
    return run(NAME, _serve)


async def _serve(settings: Settings) -> None:
    ending = _ending_signal()
    clock = partial(datetime.now, UTC)
    async with ground(NAME, settings) as own, LocalJobs(settings.home, clock) as jobs:
        client = await _connect(settings, own.traces)
        await check_attributes(client)
        parts = _parts(settings, own, jobs, Drivers(client, settings.task_queue), clock)
        worker = build_worker(client, parts, settings.task_queue, [StepMetrics(own.metrics, clock)])
        async with worker, asyncio.TaskGroup() as background:
            duties = [
                background.create_task(Bell(client, jobs, parts.ledger).run()),
                background.create_task(_reaper(client, parts, own).run()),
                background.create_task(RetentionDuty(parts.sessions, settings.retention, clock).run()),
                background.create_task(_tell_when_warm(jobs)),
            ]
            with _beacon(settings.home):
                log.info("polling task queue %s", settings.task_queue)
                await ending.wait()
            for duty in duties:
                duty.cancel()


def _reaper(client: Client, parts: Parts, own: Ground) -> Reaper:
    orphans = build_orphans(parts)
    return Reaper(client, parts.ledger, parts.sessions, orphans, parts.drivers, parts.clock, own.metrics.task_closed)


def _parts(settings: Settings, own: Ground, jobs: LocalJobs, drivers: Drivers, clock: Callable[[], datetime]) -> Parts:
    return Parts(
        catalog=SqlCatalog(own.engine, clock, _random_id),
        ledger=SqlLedger(own.engine, clock),
        sessions=SqlSessions(own.engine, clock, _random_id),
        conversations=SqlConversations(own.engine, clock, _random_id),
        jobs=jobs,
        drivers=drivers,
        clock=clock,
        token=partial(attempt_token, own.keys.attempt_secret),
        gateway=settings.gateway_url,
        local_model=settings.model_url,
        jobs_queue=None,
        check_interval=_CHECK_INTERVAL,
        trace=own.traces.job_environment,
    )


def build_worker(client: Client, parts: Parts, task_queue: str, interceptors: Sequence[Interceptor] = ()) -> Worker:
    """Return a worker that hosts all workflows and their activities.

    Args:
        client: connected to Temporal.
        parts: what the activities act on.
        task_queue: what to poll.
        interceptors: more of them, around those that every worker has.
    """
    return Worker(
        client,
        task_queue=task_queue,
        workflows=WORKFLOWS,
        activities=build_activities(parts),
        interceptors=[*interceptors, FailureBoundary(), OneInput()],
        sticky_queue_schedule_to_start_timeout=_STICKY_TIMEOUT,
        graceful_shutdown_timeout=_GRACE,
    )


def _random_id() -> str:
    return str(uuid4())


async def _connect(settings: Settings, traces: Traces) -> Client:
    runtime = temporal_runtime(service(NAME), os.environ)
    while True:
        try:
            return await Client.connect(
                **settings.temporal,
                data_converter=pydantic_data_converter,
                interceptors=traces.interceptors,
                runtime=runtime,
            )
        except RuntimeError:
            log.info("waiting for Temporal at %s", settings.temporal.get("target_host"))
            await asyncio.sleep(_CONNECT_PAUSE.total_seconds())


async def _tell_when_warm(jobs: LocalJobs) -> None:
    if await jobs.preloaded():
        log.info("the worker is preloaded: Jobs are forked from now on")


def _ending_signal() -> asyncio.Event:
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    return ending


@contextmanager
def _beacon(home: Home) -> Iterator[None]:
    """Say in the home that this process polls."""
    path = home.run / "orchestrator.ready"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{os.getpid()}\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
