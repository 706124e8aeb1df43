"""A workflow with one step, to see what telemetry makes of it."""

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy


@workflow.defn(name="Traced")
class Traced:
    """Runs the activity that it is told, in the sandbox that the Task workflow runs in."""

    @workflow.run
    async def run(self, step: str, request: dict[str, Any]) -> None:
        await workflow.execute_activity(
            step,
            request,
            start_to_close_timeout=timedelta(minutes=1),
            retry_policy=RetryPolicy(maximum_attempts=2),
        )
