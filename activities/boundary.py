"""What may leave an activity as a failure: reasons and our own words only.

A library's exception may quote what it was given, and an activity is given
souls.  So only the type of a foreign exception goes into a history.
"""

from typing import Any, NoReturn

from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from anima.model.errors import Conflict, NotFound, Refusal, Unavailable

OPERATIONAL = "Operational"


class FailureBoundary(Interceptor):
    """Turn what activities raise into failures that a history may hold."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Boundary(next)


class _Boundary(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        try:
            return await super().execute_activity(input)
        except Exception as error:
            # Out of the handler, so that the foreign exception is no context of ours.
            failure = error
        _raise_clean(failure)


def _raise_clean(error: Exception) -> NoReturn:
    match error:
        case FailureError():
            raise error
        case Refusal():
            raise ApplicationError(error.message, type=error.reason, non_retryable=True)
        case Unavailable() | Conflict() | NotFound():
            raise ApplicationError(str(error), type=OPERATIONAL)
        case _:
            raise ApplicationError(f"unexpected {type(error).__name__}", type=OPERATIONAL)
