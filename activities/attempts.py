"""Deciding how an attempt ended, once."""

from collections.abc import Callable
from datetime import datetime

from temporalio import activity

from anima.model.attempts import Outcome
from anima.model.errors import NotFound
from anima.model.jobs import JobObservation, JobPhase
from anima.model.reasons import Reason
from anima.model.steps import Settle, Settled
from anima.model.wire import Step
from anima.stores.ports import Jobs, Ledger


class AttemptActivities:
    """`attempt.settle`: what the worker reported, else how its Job ended."""

    def __init__(self, ledger: Ledger, jobs: Jobs, clock: Callable[[], datetime]) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._clock = clock

    @activity.defn(name=Step.SETTLE)
    async def settle(self, request: Settle) -> Settled:
        """Return the attempt's outcome; decide it if it can be decided now.

        A report that was accepted before wins over the verdict and the exit code.
        """
        try:
            attempt = await self._ledger.attempt(request.key)
        except NotFound:
            # Nothing was ever to be created for it.
            return Settled()
        record = await self._ledger.task(request.key.task_uid)
        outcome = attempt.outcome
        if outcome is None:
            outcome = await self._decide(request, record.namespace)
        if outcome is not None:
            await self._jobs.retire(record.namespace, request.job_name)
        return Settled(outcome=outcome)

    async def _decide(self, request: Settle, namespace: str) -> Outcome | None:
        outcome = self._verdict(request)
        if outcome is None or outcome.reason is Reason.JOB_TIMEOUT:
            # A Job that had ended by itself when its time was up did not run into its timeout.
            outcome = self._observed(await self._jobs.observe(namespace, request.job_name)) or outcome
        return await self._ledger.decide(request.key, outcome) if outcome else None

    def _verdict(self, request: Settle) -> Outcome | None:
        if request.verdict is None:
            return None
        return self._failure(request.verdict, request.message)

    def _observed(self, job: JobObservation) -> Outcome | None:
        match job.phase:
            case JobPhase.ENDED if job.timed_out:
                return self._failure(Reason.JOB_TIMEOUT, job.message or "the Job ran into its timeout", job.exit_code)
            case JobPhase.ENDED:
                message = job.message or f"the Job ended with exit code {job.exit_code} and without a report"
                return self._failure(Reason.JOB_FAILED, message, job.exit_code)
            case JobPhase.LOST:
                return self._failure(Reason.JOB_LOST, job.message or "the Job's process is gone without an exit status")
            case JobPhase.ABSENT:
                return self._failure(Reason.JOB_LOST, "the Job is gone")
            case _:
                return None

    def _failure(self, reason: Reason, message: str, exit_code: int | None = None) -> Outcome:
        return Outcome(succeeded=False, reason=reason, message=message, exit_code=exit_code, decided_at=self._clock())
