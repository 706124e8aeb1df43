"""Clearing up after what Temporal ends without running code of ours.

Every other end of a Task is its workflow's own work, and a Session's workflow goes on by
itself.  Terminate (and a run timeout that a raw start may set) runs no code of ours, and
a workflow can be deleted, so this does it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from activities.drivers import Drivers
from activities.orphans import Orphans
from anima.model.errors import AnimaError, NotFound
from anima.model.reasons import Reason
from anima.model.task import Phase
from anima.model.wire import TASK_WORKFLOW
from anima.stores.ports import Ledger
from anima.stores.sessions import Sessions

# Visibility lags behind; looking back a little further costs next to nothing.
_OVERLAP = timedelta(minutes=5)

log = logging.getLogger(__name__)


class Reaper:
    """Ends Tasks whose workflow was terminated, and wakes Sessions in which somebody waits.

    Args:
        client: of the Temporal server.
        ledger: where the Tasks are.
        sessions: where Tasks and messages wait.
        orphans: ends a Task.
        drivers: wakes a Session or a conversation.
        clock: the time.
        closed: told phase and reason of each Task that was closed.
        interval: between two looks.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        sessions: Sessions,
        orphans: Orphans,
        drivers: Drivers,
        clock: Callable[[], datetime],
        closed: Callable[[Phase, Reason | None], None],
        interval: timedelta = timedelta(seconds=20),
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._sessions = sessions
        self._orphans = orphans
        self._drivers = drivers
        self._clock = clock
        self._closed = closed
        self._interval = interval
        self._looked_at: datetime | None = None

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            for look in (self.look, self.wake):
                try:
                    await look()
                except (AnimaError, RPCError) as error:
                    log.warning("reaper: %s; trying again", type(error).__name__)
            await asyncio.sleep(self._interval.total_seconds())

    async def look(self) -> None:
        """End every Task whose workflow was terminated since the last look."""
        now = self._clock()
        async for uid in self._terminated():
            try:
                await self._reap(uid)
            except NotFound:
                continue
        self._looked_at = now

    async def wake(self) -> None:
        """Start the workflow of every Session in which somebody waits and nobody drives."""
        for key in await self._sessions.contended():
            if not await self._drivers.is_driving(key):
                await self._drivers.wake(key)
                log.info("reaper: woke %s/%s", key.namespace, key.name)

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

    async def _reap(self, uid: str) -> None:
        record = await self._ledger.task(uid)
        status = await self._orphans.end(record)
        if status is not None:
            self._closed(status.phase, status.reason)
            log.info("reaper: closed %s/%s", record.namespace, record.name)
