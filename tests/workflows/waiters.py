"""Many Tasks that wait for one Session, and what their waiting costs the server and the worker.

How it is measured: the client of test and worker has a runtime whose metrics are kept in a
buffer.  `temporal_request` counts its gRPC calls; a long poll that a worker has open anyway
is a `temporal_long_request` and is left out.  While the Tasks wait, nobody but the worker has
reason to call, so calls in that span are what waiting costs.  Memory is the resident set of
this process, in which the worker runs, after a collection of garbage.
"""

import asyncio
import gc
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from temporalio.client import WorkflowHandle
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig

from anima.model.session import Role
from anima.model.task import Phase, TaskStatus
from tests.doubles.jobs import ScriptedJob
from tests.temporal import dev_server
from tests.workflows.world import World, open_world, shown
from workers.orchestrator.bell import nudge

_BUFFER = 500_000
_AT_ONCE = 50
# Until the last of those that came has come to rest.
_SETTLING = 2.0


class Requests:
    """Counts the requests of every client of its runtime."""

    def __init__(self) -> None:
        self._buffer = MetricBuffer(_BUFFER)
        self.runtime = Runtime(telemetry=TelemetryConfig(metrics=self._buffer))
        self.cached = 0
        """The most workflows that the worker ever kept."""

    def taken(self) -> int:
        """Return how many there were since the last time."""
        count = 0
        for update in self._buffer.retrieve_updates():
            if update.metric.name == "temporal_request":
                count += int(update.value)
            if update.metric.name == "temporal_sticky_cache_size":
                self.cached = max(self.cached, int(update.value))
        return count


@dataclass(frozen=True)
class Cost:
    """What waiting has cost, and being served.

    Args:
        idle: requests in a span in which all wait.
        served: requests for each Task, from the first that is served to the last.
        resident: bytes of memory while all wait.
    """

    idle: int
    served: float
    resident: int


@dataclass
class Waiters:
    """A world with a Session that is held, and what is asked of its server."""

    world: World
    requests: Requests

    async def cost(self, session: str, number: int, span: timedelta) -> Cost:
        """Have so many Tasks wait for a Session and be served; check that it is in order."""
        holder = await self._held(session)
        waiting = await self._come(session, number)
        order = [waiter.task for waiter in (await self.world.sessions.queue("default", session, number)).next]
        await asyncio.sleep(_SETTLING)
        self.requests.taken()
        await asyncio.sleep(span.total_seconds())
        idle, resident = self.requests.taken(), _resident()
        await self._serve(session, [holder, *waiting])
        served = self.requests.taken() / number
        records = await self.world.sessions.records("default", session, limit=2 * number + 2)
        answers = [record.content for record in records if record.role is Role.ASSISTANT]
        assert answers == [f"Answer to {task}." for task in (f"{session}-holder", *order)]
        return Cost(idle, served, resident)

    async def _held(self, session: str) -> WorkflowHandle[None, TaskStatus]:
        self.world.jobs.behave = None
        holder = await self._start(session, "holder")
        while (await shown(holder)).phase is not Phase.RUNNING:  # noqa: ASYNC110 (a query answers when asked)
            await asyncio.sleep(0.05)
        return holder

    async def _come(self, session: str, number: int) -> list[WorkflowHandle[None, TaskStatus]]:
        limit = asyncio.Semaphore(_AT_ONCE)

        async def come(word: int) -> WorkflowHandle[None, TaskStatus]:
            async with limit:
                return await self._start(session, str(word))

        handles = await asyncio.gather(*(come(word) for word in range(number)))
        while (await self.world.sessions.queue("default", session)).waiting < number:  # noqa: ASYNC110 (the same)
            await asyncio.sleep(0.1)
        return handles

    async def _serve(self, session: str, handles: list[WorkflowHandle[None, TaskStatus]]) -> None:
        self.world.jobs.behave = self._answer
        held = next(job for job in self.world.jobs.jobs.values() if job.spec.task == f"{session}-holder")
        await self._answer(held)
        for handle in handles:
            assert (await handle.result()).phase is Phase.SUCCEEDED

    async def _answer(self, job: ScriptedJob) -> None:
        await job.answer(f"Answer to {job.spec.task}.")
        # As the gateway does that takes a report.
        await nudge(self.world.client, job.spec.namespace, job.spec.task, job.spec.key.path)

    async def _start(self, session: str, word: str) -> WorkflowHandle[None, TaskStatus]:
        return await self.world.start(f"{session}-{word}", sessionRef={"name": session})


@asynccontextmanager
async def open_waiters(directory: Path, cache: int) -> AsyncIterator[Waiters]:
    """Open a world on a development server of its own, with a worker that keeps so many workflows."""
    requests = Requests()
    async with dev_server(runtime=requests.runtime) as environment, open_world(environment, directory, cache) as world:
        await world.agent()
        yield Waiters(world, requests)


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
