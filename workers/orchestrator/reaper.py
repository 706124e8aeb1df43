"""Clearing up after a workflow that was terminated under its Job.

Every other end of a Task is its workflow's own work.  Terminate (and a run
timeout that a raw start may set) runs no code of ours, so this does it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from anima.model.attempts import AttemptRecord, Outcome
from anima.model.errors import AnimaError, NotFound
from anima.model.reasons import Reason
from anima.model.task import Phase
from anima.model.wire import TASK_WORKFLOW
from anima.stores.ports import Jobs, Ledger, TaskRecord

# Visibility lags behind; looking back a little further costs next to nothing.
_OVERLAP = timedelta(minutes=5)
_MESSAGE = "the workflow of this Task was terminated before it ended"

log = logging.getLogger(__name__)


class Reaper:
    """Closes Tasks whose workflow was terminated, and fences their Jobs.

    Args:
        client: of the Temporal server.
        ledger: where the Tasks are.
        jobs: where their Jobs are.
        clock: the time.
        closed: told phase and reason of each Task that was closed.
        interval: between two looks.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        jobs: Jobs,
        clock: Callable[[], datetime],
        closed: Callable[[Phase, Reason | None], None],
        interval: timedelta = timedelta(seconds=20),
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._jobs = jobs
        self._clock = clock
        self._closed = closed
        self._interval = interval
        self._looked_at: datetime | None = None

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            try:
                await self.look()
            except (AnimaError, RPCError) as error:
                log.warning("reaper: %s; trying again", type(error).__name__)
            await asyncio.sleep(self._interval.total_seconds())

    async def look(self) -> None:
        """Reap every Task whose workflow was terminated since the last look."""
        now = self._clock()
        async for uid in self._terminated():
            try:
                await self._reap(await self._ledger.task(uid))
            except NotFound:
                continue
        self._looked_at = now

    async def _terminated(self) -> AsyncIterator[str]:
        query = f"WorkflowType = '{TASK_WORKFLOW}' AND ExecutionStatus IN ('Terminated', 'TimedOut')"
        if self._looked_at is not None:
            query += f" AND CloseTime > '{(self._looked_at - _OVERLAP).isoformat()}'"
        async for execution in self._client.list_workflows(query):
            uid, _ = await self._describe(execution.id, execution.run_id)
            # A Reset terminates the old run too; the new one has the same uid and goes on.
            latest, open_ = await self._describe(execution.id, None)
            if not (open_ and latest == uid):
                yield uid

    async def _describe(self, workflow_id: str, run_id: str | None) -> tuple[str, bool]:
        description = await self._client.get_workflow_handle(workflow_id, run_id=run_id).describe()
        info = description.raw_description.workflow_execution_info
        return info.first_run_id, description.close_time is None

    async def _reap(self, record: TaskRecord) -> None:
        for attempt in await self._ledger.attempts(record.uid):
            if attempt.outcome is None:
                await self._fence(record, attempt)
        if not record.closed:
            await self._close(record)

    async def _close(self, record: TaskRecord) -> None:
        success = await self._success(record)
        update = {
            "phase": Phase.SUCCEEDED if success else Phase.FAILED,
            "reason": None if success else Reason.TERMINATED,
            "message": "" if success else _MESSAGE,
            "result_ref": success.result if success else None,
            "completion_time": self._clock(),
        }
        status = await self._ledger.close(record.status.model_copy(update=update))
        self._closed(status.phase, status.reason)
        log.info("reaper: closed %s/%s", record.namespace, record.name)

    async def _fence(self, record: TaskRecord, attempt: AttemptRecord) -> None:
        outcome = Outcome(succeeded=False, reason=Reason.TERMINATED, message=_MESSAGE, decided_at=self._clock())
        await self._ledger.decide(attempt.key, outcome)
        await self._jobs.delete(attempt.key, record.namespace, attempt.job_name)

    async def _success(self, record: TaskRecord) -> Outcome | None:
        # A result that was accepted before the button was pressed is not lost.
        outcomes = [attempt.outcome for attempt in await self._ledger.attempts(record.uid)]
        return next((outcome for outcome in outcomes if outcome and outcome.succeeded), None)
