"""Temporal's spans, with what Anima knows of its activities.

Apart from `spans`, as a Job has spans but no Temporal.
"""

from typing import Any

from opentelemetry import trace
from opentelemetry.util.types import AttributeValue
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from anima.model.attempts import AttemptKey
from anima.telemetry.marks import PREFIX, mark_failed

_FROM_REQUESTS = ("job_name", "prompt_digest", "task_uid")


class TemporalTracing(TracingInterceptor):
    """Temporal's spans, and on an activity's which attempt it is about and why it failed."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return super().intercept_activity(_Activity(next))


class _Activity(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        span = trace.get_current_span()
        for request in input.args:
            span.set_attributes(_identity(request))
        try:
            return await super().execute_activity(input)
        except Exception as error:
            mark_failed(span, error, error.type if isinstance(error, ApplicationError) else None)
            raise


def _identity(request: object) -> dict[str, AttributeValue]:
    found = {name: getattr(request, name, None) for name in _FROM_REQUESTS}
    key = getattr(request, "key", None)
    if isinstance(key, AttemptKey):
        found |= {"attempt": key.path}
    return {PREFIX + name: value for name, value in found.items() if isinstance(value, str)}
