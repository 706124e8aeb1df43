"""The orchestrator, with triggers before and after each of its activities."""

import os
import sys
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from tests.e2e.trigger import reached
from workers.orchestrator import process
from workflows import driver

INTERVAL = "ANIMA_TEST_INTERVAL"
"""Seconds until somebody looks after what says nothing, in place of half a minute."""

# Its own copy in the sandbox would keep the half minute.
_IMPATIENT = SandboxRestrictions.default.with_passthrough_modules(driver.__name__)


class Triggers(Interceptor):
    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Triggers(next)


class _Triggers(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        step = activity.info().activity_type
        reached(step, "before")
        answer = await super().execute_activity(input)
        reached(step, "after")
        return answer


def _worker(*args: Any, interceptors: list[Interceptor], **options: Any) -> Worker:
    # The first is the outermost: it acts after everything else in the activity.
    runner = SandboxedWorkflowRunner(restrictions=_IMPATIENT)
    return Worker(*args, interceptors=[Triggers(), *interceptors], workflow_runner=runner, **options)


def _look_every(interval: timedelta) -> None:
    process.Reaper = partial(process.Reaper, interval=interval)
    process._CHECK_INTERVAL = interval
    driver._FIRST_REST = interval


if __name__ == "__main__":
    process.Worker = _worker
    if INTERVAL in os.environ:
        _look_every(timedelta(seconds=float(os.environ[INTERVAL])))
    sys.exit(process.main())
