"""Metrics that every activity gives without knowing it."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from anima.model.reasons import Reason
from anima.model.steps import JobCreated, Settled
from anima.model.task import TaskStatus
from anima.model.wire import Step
from anima.telemetry.metrics import DRIFT, Metrics

_STEPS = frozenset(Step)


class StepMetrics(Interceptor):
    """Measures the steps of the Task workflow by what they return and how they fail.

    An activity may run again after its worker dies, so a Task or an attempt may
    rarely be counted twice.

    Args:
        metrics: of this process.
        clock: the time, as Temporal's server has it.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], datetime]) -> None:
        self._metrics = metrics
        self._clock = clock

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Measured(next, self._metrics, self._clock)


class _Measured(ActivityInboundInterceptor):
    def __init__(
        self,
        next: ActivityInboundInterceptor,  # noqa: A002
        metrics: Metrics,
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__(next)
        self._metrics = metrics
        self._clock = clock

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        try:
            result = await super().execute_activity(input)
        except ApplicationError as error:
            self._failed(error)
            raise
        self._succeeded(result)
        return result

    def _failed(self, error: ApplicationError) -> None:
        step = activity.info().activity_type
        if error.type in DRIFT:
            self._metrics.drift_rejected(Reason(error.type))
        elif step in _STEPS and not error.non_retryable:
            self._metrics.step_retried(Step(step))

    def _succeeded(self, result: object) -> None:
        match activity.info().activity_type, result:
            case Step.CLOSE, TaskStatus(phase=phase, reason=reason):
                self._metrics.task_closed(phase, reason)
            case Step.SETTLE, Settled(outcome=outcome) if outcome is not None:
                self._metrics.attempt_decided(outcome.succeeded, outcome.reason)
            case Step.CREATE, JobCreated(stale=False):
                self._metrics.job_started(self._clock() - activity.info().scheduled_time)
