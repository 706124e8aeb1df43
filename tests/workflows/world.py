"""All that a Task of a test lives in: a server, a worker, real stores, scripted Jobs."""

import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer, Worker

from activities.assembly import Parts, build_activities
from activities.boundary import FailureBoundary
from activities.drivers import Drivers
from anima.model.manifest import parse_resource
from anima.model.names import workflow_id
from anima.model.task import Phase, TaskStatus
from anima.model.wire import INT_ATTRIBUTES, TASK_QUEUE, TASK_WORKFLOW, SearchAttribute
from anima.stores.migrations import migrate
from anima.stores.sessions import Conversations, Sessions
from anima.stores.sql import SqlCatalog, SqlConversations, SqlLedger, SqlSessions, open_engine, sqlite_url
from tests.doubles.interruptions import Interrupted
from tests.doubles.jobs import ScriptedJob, ScriptedJobs
from workers.orchestrator.process import WORKFLOWS
from workflows.inputs import OneInput

PERSONA = "# Reviewer\nYou are PERSONA-MARKER, direct and kind.\n"
CHECK_INTERVAL = timedelta(seconds=5)


@dataclass
class World:
    """What a test changes and looks at."""

    client: Client
    environment: WorkflowEnvironment
    engine: AsyncEngine
    catalog: SqlCatalog
    ledger: SqlLedger
    sessions: SqlSessions
    interrupted: Interrupted
    """The Sessions as the activities have them: what they do can be made to fail."""
    conversations: SqlConversations
    interrupted_conversations: Interrupted
    jobs: ScriptedJobs
    parts: Parts
    started: list[str] = field(default_factory=list)
    """The ids of all Tasks."""

    async def apply(self, manifest: dict[str, Any]) -> None:
        await self.catalog.apply(parse_resource(manifest))

    async def agent(self, name: str = "reviewer", **spec: Any) -> None:
        """Apply an Agent that rehearses, with the persona unless told otherwise."""
        spec = {"providerRef": {"name": "rehearsal"}, "soul": {"inline": PERSONA}} | spec
        spec = {key: value for key, value in spec.items() if value is not None}
        await self.apply(manifest("Agent", name, spec))

    async def start(self, name: str = "task-1", **spec: Any) -> WorkflowHandle[Any, TaskStatus]:
        """Start a Task as any SDK would: with JSON."""
        self.started.append(workflow_id("default", name))
        return await self.client.start_workflow(
            TASK_WORKFLOW,
            {"spec": task_spec(**spec)},
            id=workflow_id("default", name),
            task_queue=TASK_QUEUE,
            result_type=TaskStatus,
        )

    async def run(self, name: str = "task-1", **spec: Any) -> TaskStatus:
        """Run a Task to its end, whatever that is."""
        return await ended(await self.start(name, **spec))


async def replay(world: World, *more: str) -> None:
    """Replay the latest run of every Task, and of other workflows by their ids.

    It holds them to what they did, as a worker without a cache does; but one that is
    evicted in the middle of a local activity would wait for its workflow task's timeout.
    """
    replayer = Replayer(workflows=WORKFLOWS, interceptors=[OneInput()], data_converter=pydantic_data_converter)
    for identifier in [*dict.fromkeys(world.started), *more]:
        await replayer.replay_workflow(await world.client.get_workflow_handle(identifier).fetch_history())


def manifest(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "anima.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def task_spec(**spec: Any) -> dict[str, Any]:
    return {"type": "ai", "agentRef": {"name": "reviewer"}, "prompt": "Say hello."} | spec


async def ended(handle: WorkflowHandle[Any, TaskStatus]) -> TaskStatus:
    """Return the final status, also of a Task that failed."""
    try:
        return await handle.result()
    except WorkflowFailureError as failure:
        cause = failure.cause
    assert isinstance(cause, ApplicationError)
    status = TaskStatus.model_validate(cause.details[0])
    assert cause.type == status.reason
    return status


async def shown(handle: WorkflowHandle[Any, TaskStatus]) -> TaskStatus:
    return await handle.query("status", result_type=TaskStatus)


async def until(world: World, handle: WorkflowHandle[Any, TaskStatus], phase: Phase) -> TaskStatus:
    """Let time pass, a second at a time, until the Task shows a phase."""
    for _ in range(600):
        status = await shown(handle)
        if status.phase is phase:
            return status
        await world.environment.sleep(1)
    raise AssertionError(f"the Task never was {phase}: {status}")


def failing_first(times: int) -> Any:
    """Return a behaviour that exits without a word so many times, and then answers."""

    async def behave(job: ScriptedJob) -> None:
        if job.spec.key.attempt <= times:
            job.exit(3)
        else:
            await job.answer("At last.")

    return behave


@asynccontextmanager
async def skipping_server() -> AsyncIterator[WorkflowEnvironment]:
    """Start a server that skips time, with our search attributes."""
    program = Path(sys.executable).with_name("temporal-test-server")
    environment = await WorkflowEnvironment.start_time_skipping(
        data_converter=pydantic_data_converter, test_server_existing_path=str(program)
    )
    async with environment:
        attributes = {
            str(name): IndexedValueType.INDEXED_VALUE_TYPE_INT
            if name in INT_ATTRIBUTES
            else IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
            for name in SearchAttribute
        }
        await environment.client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=environment.client.namespace, search_attributes=attributes)
        )
        yield environment


@asynccontextmanager
async def open_world(
    environment: WorkflowEnvironment, directory: Path, cache: int = 1000, jobs_queue: str | None = None
) -> AsyncIterator[World]:
    """Open the stores in a directory and run a worker over them.

    Args:
        environment: the Temporal server.
        directory: of the database.
        cache: workflows that the worker keeps; with 0 each step replays the history.
        jobs_queue: where Job activities run; none for local ones.
    """
    engine = open_engine(sqlite_url(directory / "anima.db"))
    await migrate(engine)
    uids = itertools.count(1)
    ledger = SqlLedger(engine, _now)
    sessions = SqlSessions(engine, _now, lambda: f"uid-{next(uids)}")
    conversations = SqlConversations(engine, _now, lambda: f"uid-{next(uids)}")
    interrupted_conversations = Interrupted(conversations)
    interrupted, jobs = Interrupted(sessions), ScriptedJobs(ledger)
    catalog = SqlCatalog(engine, _now, lambda: f"uid-{next(uids)}")
    parts = Parts(
        catalog=catalog,
        ledger=ledger,
        sessions=cast(Sessions, interrupted),
        conversations=cast(Conversations, interrupted_conversations),
        jobs=jobs,
        drivers=Drivers(environment.client, TASK_QUEUE),
        clock=_now,
        token=lambda key: "token-of-a-test",
        gateway="http://127.0.0.1:9",
        local_model=None,
        jobs_queue=jobs_queue,
        check_interval=CHECK_INTERVAL,
    )
    world = World(
        environment.client,
        environment,
        engine,
        catalog,
        ledger,
        sessions,
        interrupted,
        conversations,
        interrupted_conversations,
        jobs,
        parts,
    )
    await world.apply(manifest("Provider", "rehearsal", {"type": "rehearsal"}))
    async with _worker(world, cache):
        yield world
    await engine.dispose()


def _worker(world: World, cache: int) -> Worker:
    return Worker(
        world.client,
        task_queue=TASK_QUEUE,
        workflows=WORKFLOWS,
        activities=build_activities(world.parts),
        interceptors=[FailureBoundary(), OneInput()],
        max_cached_workflows=cache,
    )


def _now() -> datetime:
    return datetime.now(UTC)
