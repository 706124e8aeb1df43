"""The attempts of one iteration: bind, pin, create a Job, wait, settle, try again."""

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from anima.model.attempts import AttemptKey, Outcome
    from anima.model.names import job_name
    from anima.model.reasons import Reason
    from anima.model.steps import Admitted, AttemptPlan, Bind, CreateJob, DeleteJob, JobCreated, Settle, Settled
    from anima.model.task import Phase, RetryPolicy
    from anima.model.wire import Step
    from workflows.session_use import SessionUse
    from workflows.status import StatusBoard
    from workflows.steps import Steps
    from workflows.watch import Watch

_RAREST_LOOK = 10
"""How much longer than the first the rest between two looks at a silent Job becomes."""


class Attempts:
    """Runs attempts until one succeeds or none may follow.

    Args:
        steps: runs activities.
        board: shows what happens.
        watch: waits, and stops the Task when it must end.
        session: has the Task's Session, if it has one.
        admitted: where Jobs are created, and how often to look at one.
    """

    def __init__(self, steps: Steps, board: StatusBoard, watch: Watch, session: SessionUse, admitted: Admitted) -> None:
        self._steps = steps
        self._board = board
        self._watch = watch
        self._session = session
        self._admitted = admitted
        self._current: AttemptKey | None = None
        self._nudged = False

    def nudge(self) -> None:
        """Look at the current attempt again, soon."""
        self._nudged = True

    async def run(self, iteration: int) -> Outcome:
        """Return the outcome of the iteration: its last attempt's.

        Raises:
            Refusal: the Task may not go on; no attempt was used up.
            Stopped: cancel or deadline.
        """
        number = 1
        while True:
            key = AttemptKey(task_uid=self._board.status.uid, iteration=iteration, attempt=number)
            outcome, policy = await self._attempt(key)
            if outcome.succeeded:
                return outcome
            await self._remove_job(key)
            if number > policy.max_retries or not outcome.retryable(timeouts=policy.retry_timeouts):
                return outcome
            await self._back_off(policy.delay_after(number), outcome)
            number += 1

    async def abandon(self, reason: Reason, message: str) -> Outcome | None:
        """Close the current attempt and prove its Job gone.

        Returns:
            The attempt's success, if a result was accepted first: it counts.
        """
        key = self._current
        if key is None:
            return None
        verdict = Settle(key=key, job_name=self._job_name(key), verdict=reason, message=message)
        settled = await self._steps.local(Step.SETTLE, verdict, Settled)
        if settled.outcome is None:
            # Nothing was ever to be created for this attempt.
            return None
        if settled.outcome.succeeded:
            return settled.outcome
        await self._remove_job(key)
        return None

    async def _attempt(self, key: AttemptKey) -> tuple[Outcome, RetryPolicy]:
        self._current = key
        while True:
            await self._watch.pass_holds()
            await self._session.acquire()
            plan = await self._steps.local(Step.BIND, Bind(key=key), AttemptPlan)
            self._planned(plan)
            if plan.decided:
                self._counted(key, plan)
                return plan.decided, plan.retry_policy
            await self._session.pin()
            if not self._watch.holds and await self._create(key, plan):
                self._counted(key, plan)
                return await self._outcome(key, plan), plan.retry_policy

    async def _create(self, key: AttemptKey, plan: AttemptPlan) -> bool:
        request = CreateJob(key=key, job_name=plan.job_name, prompt_digest=plan.prompt_digest, lock=self._session.lock)
        queue = self._admitted.jobs_queue
        if queue is None:
            created = await self._steps.local(Step.CREATE, request, JobCreated)
        else:
            created = await self._steps.remote(Step.CREATE, request, JobCreated, queue)
        return not created.stale

    async def _outcome(self, key: AttemptKey, plan: AttemptPlan) -> Outcome:
        ends_at = workflow.now() + plan.timeout if plan.timeout else None
        # Rarer and rarer, so that a Job of days leaves a history of bounded length.
        rest, longest = self._admitted.check_interval, self._admitted.check_interval * _RAREST_LOOK
        while True:
            wait = min(rest, max(ends_at - workflow.now(), timedelta(0))) if ends_at else rest
            await self._watch.wait(lambda: self._nudged, wait, "next look at the Job")
            rest = min(rest * 2, longest)
            self._nudged = False
            timed_out = ends_at is not None and workflow.now() >= ends_at
            settled = await self._steps.local(Step.SETTLE, _settle(key, plan, timed_out), Settled)
            if settled.outcome is not None:
                return settled.outcome

    async def _back_off(self, delay: timedelta, outcome: Outcome) -> None:
        cause = f"{outcome.reason}: {outcome.message}"
        self._board.change(phase=Phase.WAITING, message=cause, waits_for=f"the next attempt, after {delay}")
        await self._watch.wait(lambda: False, delay, "backoff")

    async def _remove_job(self, key: AttemptKey) -> None:
        request = DeleteJob(key=key, job_name=self._job_name(key))
        await self._steps.remote(Step.DELETE, request, type(None), self._admitted.jobs_queue)

    def _job_name(self, key: AttemptKey) -> str:
        return job_name(self._board.status.name, key.task_uid, key.iteration, key.attempt)

    def _planned(self, plan: AttemptPlan) -> None:
        self._watch.deadline = plan.deadline
        self._board.bound(plan.binding)

    def _counted(self, key: AttemptKey, plan: AttemptPlan) -> None:
        self._board.change(
            phase=Phase.RUNNING,
            message="",
            attempt=key.attempt,
            iteration=key.iteration,
            total_attempts=plan.total_attempts + 1,
            job_name=plan.job_name,
            start_time=self._board.status.start_time or workflow.now(),
            waits_for="the Job's report",
        )


def _settle(key: AttemptKey, plan: AttemptPlan, timed_out: bool) -> Settle:
    if not timed_out:
        return Settle(key=key, job_name=plan.job_name)
    message = f"attempt {key.attempt} took longer than {plan.timeout} (spec.timeout)"
    return Settle(key=key, job_name=plan.job_name, verdict=Reason.JOB_TIMEOUT, message=message)
