"""The orchestrator, with triggers before and after each of its activities."""

import sys
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from tests.e2e.trigger import reached
from workers.orchestrator import process


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
    return Worker(*args, interceptors=[Triggers(), *interceptors], **options)


if __name__ == "__main__":
    process.Worker = _worker
    sys.exit(process.main())
