"""The orchestrator's process: stores, Jobs, and a Temporal worker around them.

It keeps no state that it could lose: it may be killed at any moment and started
again, and any number of them may run on one task queue.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Interceptor, Worker

from activities.assembly import Parts, build_activities
from activities.boundary import FailureBoundary
from anima.exits import Exit, exit_of
from anima.home import Home
from anima.keys import Keys
from anima.model.errors import AnimaError
from anima.model.tokens import attempt_token
from anima.stores.migrations import migrate
from anima.stores.processes.jobs import LocalJobs
from anima.stores.sql import SqlCatalog, SqlLedger, open_engine
from anima.telemetry.logs import configure_logs
from anima.telemetry.metrics import configure_metrics, temporal_runtime
from anima.telemetry.steps import StepMetrics
from anima.telemetry.traces import Traces, configure_traces
from workers.orchestrator.attributes import check_attributes
from workers.orchestrator.bell import Bell
from workers.orchestrator.reaper import Reaper
from workers.settings import Settings
from workflows.inputs import OneInput
from workflows.task import TaskWorkflow

SERVICE = "anima-orchestrator"

_CONNECT_PAUSE = timedelta(milliseconds=250)
_CHECK_INTERVAL = timedelta(seconds=30)
# After a crash, a workflow's next step waits this long for the dead process.
_STICKY_TIMEOUT = timedelta(seconds=2)
_GRACE = timedelta(seconds=20)

log = logging.getLogger(__name__)


def main() -> int:
    """Serve until SIGTERM or SIGINT; return the exit status."""
    configure_logs(SERVICE)
    try:
        asyncio.run(_serve(Settings.from_environment()))
    except AnimaError as error:
        sys.stderr.write(f"orchestrator: {error}\n")
        return exit_of(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return Exit.OK


async def _serve(settings: Settings) -> None:
    ending = _ending_signal()
    clock = partial(datetime.now, UTC)
    async with AsyncExitStack() as closing:
        traces = configure_traces(SERVICE, os.environ)
        metrics = configure_metrics(SERVICE, os.environ)
        for provider in (traces, metrics):
            closing.push_async_callback(asyncio.to_thread, provider.shutdown)
        keys = Keys.load_or_create(settings.home)
        engine = open_engine(settings.database)
        closing.push_async_callback(engine.dispose)
        await migrate(engine)
        ledger = SqlLedger(engine, clock)
        jobs = await closing.enter_async_context(LocalJobs(settings.home, clock))
        client = await _connect(settings, traces)
        await check_attributes(client)
        parts = Parts(
            catalog=SqlCatalog(engine, clock, lambda: str(uuid4())),
            ledger=ledger,
            jobs=jobs,
            clock=clock,
            token=partial(attempt_token, keys.attempt_secret),
            gateway=settings.gateway_url,
            local_model=settings.model_url,
            jobs_queue=None,
            check_interval=_CHECK_INTERVAL,
            trace=traces.job_environment,
        )
        worker = build_worker(client, parts, settings.task_queue, [StepMetrics(metrics, clock)])
        await closing.enter_async_context(worker)
        closing.enter_context(_beacon(settings.home))
        background = await closing.enter_async_context(asyncio.TaskGroup())
        duties = [
            background.create_task(Bell(client, jobs, ledger).run()),
            background.create_task(Reaper(client, ledger, jobs, clock, metrics.task_closed).run()),
            background.create_task(_tell_when_warm(jobs)),
        ]
        log.info("polling task queue %s", settings.task_queue)
        await ending.wait()
        for duty in duties:
            duty.cancel()


def build_worker(client: Client, parts: Parts, task_queue: str, interceptors: Sequence[Interceptor] = ()) -> Worker:
    """Return a worker that hosts the workflows and activities of Tasks.

    Args:
        client: connected to Temporal.
        parts: what the activities act on.
        task_queue: what to poll.
        interceptors: more of them, around those that every worker has.
    """
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[TaskWorkflow],
        activities=build_activities(parts),
        interceptors=[*interceptors, FailureBoundary(), OneInput()],
        sticky_queue_schedule_to_start_timeout=_STICKY_TIMEOUT,
        graceful_shutdown_timeout=_GRACE,
    )


async def _connect(settings: Settings, traces: Traces) -> Client:
    runtime = temporal_runtime(SERVICE, os.environ)
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
