"""Running a step: an activity that is retried for ever, and never silently."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, FailureError
from temporalio.exceptions import TimeoutError as ActivityTimeout

with workflow.unsafe.imports_passed_through():
    from anima.model.base import Model
    from anima.model.errors import Refusal
    from anima.model.reasons import Reason
    from anima.model.wire import Step

Result = TypeVar("Result")

# After so many quick tries the Task says that it is retrying, and why.
_QUICK_TRIES = 3
_QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=200), backoff_coefficient=3, maximum_attempts=_QUICK_TRIES)
# A local activity fails with its own error, any other with an ActivityError.
_FAILURES = (ActivityError, ApplicationError, ActivityTimeout)
_STEP_TIMEOUT = timedelta(seconds=30)
_DELETE_TIMEOUT = timedelta(minutes=2)
# A worker that was killed in such a step is missed after this time.
_HEARTBEAT_TIMEOUT = timedelta(seconds=10)
_FIRST_PAUSE = timedelta(seconds=2)
_LONGEST_PAUSE = timedelta(minutes=1)


@dataclass(frozen=True)
class Trouble:
    """Why a step is being tried again."""

    step: Step
    cause: str
    tries: int

    def __str__(self) -> str:
        return f"{self.step}: {self.cause} ({self.tries} tries)"


class Steps:
    """Runs the activities of one workflow, one at a time.

    Args:
        pause: waits between slow tries; it may raise to give the step up.
        trouble: told the cause after each failed round, and none once it is over.
    """

    def __init__(
        self, pause: Callable[[timedelta], Awaitable[None]], trouble: Callable[[Trouble | None], None]
    ) -> None:
        self._pause = pause
        self._trouble = trouble
        # Local activities that overlap have been seen to break replay.
        self._one_at_a_time = asyncio.Lock()

    async def local(self, step: Step, request: Model, result: type[Result]) -> Result:
        """Run a quick, idempotent step in this worker.

        Raises:
            Refusal: what the activity refused, by its reason.
        """
        return await self._persist(
            step,
            lambda: workflow.execute_local_activity(
                step, request, result_type=result, start_to_close_timeout=_STEP_TIMEOUT, retry_policy=_QUICK
            ),
        )

    async def remote(self, step: Step, request: Model, result: type[Result], queue: str | None = None) -> Result:
        """Run a step that may take long, or that another worker has the rights for."""
        return await self._persist(
            step,
            lambda: workflow.execute_activity(
                step,
                request,
                task_queue=queue,
                result_type=result,
                start_to_close_timeout=_DELETE_TIMEOUT,
                heartbeat_timeout=_HEARTBEAT_TIMEOUT,
                retry_policy=_QUICK,
            ),
        )

    async def _persist(self, step: Step, run: Callable[[], Awaitable[Result]]) -> Result:
        pause, tries = _FIRST_PAUSE, 0
        while True:
            try:
                async with self._one_at_a_time:
                    result = await run()
            except _FAILURES as error:
                tries += _QUICK_TRIES
                self._trouble(Trouble(step, _cause(error), tries))
            else:
                if tries:
                    self._trouble(None)
                return result
            await self._pause(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)


def _cause(error: FailureError) -> str:
    cause = error.cause if isinstance(error, ActivityError) else error
    if isinstance(cause, ApplicationError):
        if cause.non_retryable:
            raise Refusal(Reason(cause.type or ""), cause.message) from None
        return cause.message
    return type(cause).__name__
