"""Ending a Task whose workflow is gone: terminated, timed out or deleted."""

from collections.abc import Callable
from datetime import datetime

from activities.turns import Turns, claimant, session_of
from anima.model.attempts import AttemptKey, AttemptRecord, Outcome
from anima.model.errors import Unavailable
from anima.model.reasons import Reason
from anima.model.task import Phase, TaskStatus
from anima.stores.ports import Jobs, Ledger, TaskRecord
from anima.stores.sessions import Sessions

_MESSAGE = "the workflow of this Task was terminated before it ended"


class Orphans:
    """Does what a Task's own workflow would have done at its end.

    Args:
        ledger: where the Tasks are.
        jobs: where their Jobs are.
        sessions: where the turn of an accepted answer goes.
        turns: writes it, and hands the Session on.
        clock: the time.
    """

    def __init__(
        self, ledger: Ledger, jobs: Jobs, sessions: Sessions, turns: Turns, clock: Callable[[], datetime]
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._sessions = sessions
        self._turns = turns
        self._clock = clock

    async def end(self, record: TaskRecord) -> TaskStatus | None:
        """Fence what is undecided, store the turn, close the record, hand the Session on.

        Returns:
            The final status; none if the Task had ended before.
        """
        attempts = await self._ledger.attempts(record.uid)
        for attempt in attempts:
            if attempt.outcome is None:
                await self._fence(record, attempt)
        if record.closed:
            return None
        status = await self._close(record)
        await self._turns.leave(record)
        return status

    async def _close(self, record: TaskRecord) -> TaskStatus:
        answered = await self._answered(record)
        if answered is not None:
            await self._keep_turn(record, answered.key)
        success = answered.outcome if answered else None
        update = {
            "phase": Phase.SUCCEEDED if success else Phase.FAILED,
            "reason": None if success else Reason.TERMINATED,
            "message": "" if success else _MESSAGE,
            "result_ref": success.result if success else None,
            "completion_time": self._clock(),
        }
        return await self._ledger.close(record.status.model_copy(update=update))

    async def _fence(self, record: TaskRecord, attempt: AttemptRecord) -> None:
        # An attempt that is decided is not looked at again, so its Job has to be gone by then.
        await self._jobs.delete(attempt.key, record.namespace, attempt.job_name)
        outcome = Outcome(succeeded=False, reason=Reason.TERMINATED, message=_MESSAGE, decided_at=self._clock())
        await self._ledger.decide(attempt.key, outcome)

    async def _answered(self, record: TaskRecord) -> AttemptRecord | None:
        # A result that was accepted before the button was pressed is not lost.
        attempts = await self._ledger.attempts(record.uid)
        return next((attempt for attempt in attempts if attempt.outcome and attempt.outcome.succeeded), None)

    async def _keep_turn(self, record: TaskRecord, key: AttemptKey) -> None:
        if record.spec.session_ref is None:
            return
        place = await self._sessions.acquire(record.namespace, session_of(record).name, claimant(record))
        if place.lock is None:
            raise Unavailable(f"the turn of Task {record.namespace}/{record.name} waits for its Session")
        await self._turns.append(record, key, place.lock)
