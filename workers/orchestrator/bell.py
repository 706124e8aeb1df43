"""Waking a Task's workflow when its Job has ended.

A ring that is lost costs time, not correctness: the workflow looks at its Job
on a slow timer, too.
"""

import asyncio
import logging

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from anima.model.errors import NotFound, Unavailable
from anima.model.jobs import JobSpec
from anima.model.names import workflow_id
from anima.model.wire import Signal
from anima.stores.ports import Jobs, Ledger

_AT_ONCE = 32

log = logging.getLogger(__name__)


class Bell:
    """Rings for each Job that ends before its attempt is decided."""

    def __init__(self, client: Client, jobs: Jobs, ledger: Ledger) -> None:
        self._client = client
        self._jobs = jobs
        self._ledger = ledger
        self._limit = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        """Ring until cancelled."""
        async with asyncio.TaskGroup() as rings:
            async for job in self._jobs.ended():
                await self._limit.acquire()
                rings.create_task(self._ring(job)).add_done_callback(lambda _: self._limit.release())

    async def _ring(self, job: JobSpec) -> None:
        try:
            attempt = await self._ledger.attempt(job.key)
            if attempt.outcome is None:
                await nudge(self._client, job.namespace, job.task, job.key.path)
        except NotFound:
            # Its Task was deleted; the Job's log is all that is left of it.
            return
        except Unavailable as error:
            log.warning("bell: attempt %s not looked up: %s", job.key.path, type(error).__name__)


async def nudge(client: Client, namespace: str, task: str, attempt: str) -> None:
    """Tell a Task's workflow to look at its attempt; a failure is only logged."""
    handle = client.get_workflow_handle(workflow_id(namespace, task))
    try:
        await handle.signal(Signal.NUDGE, {"attempt": attempt})
    except RPCError as error:
        # A closed workflow needs no waking.
        if error.status is not RPCStatusCode.NOT_FOUND:
            log.warning("nudge of %s/%s failed: %s", namespace, task, error.status.name)
