"""What workflows do, step by step and without Temporal, so that a test can come between any two.

A life is a generator: it yields the step that it takes next and is sent the answer, or thrown
the refusal.  It follows `workflows.attempts`, `workflows.session_use` and `workflows.task`.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from anima.model.attempts import AttemptKey, Outcome
from anima.model.base import Model
from anima.model.errors import Refusal
from anima.model.names import job_name, workflow_id
from anima.model.reasons import Reason
from anima.model.steps import (
    AcquireSession,
    Admit,
    AppendTurn,
    Bind,
    Close,
    CreateJob,
    DeleteJob,
    DriveConversation,
    LeaveSession,
    PinSession,
    ProjectMessage,
    Settle,
)
from anima.model.task import Phase, TaskSpec, TaskStatus
from anima.model.wire import Step

WAIT = "wait"
"""Yielded with nothing to do: the life goes on once it is told."""
Steps = Generator[tuple[Step | str, Model | None], Any, None]
_RETRIES = 1


class Cancelled(Exception):
    """Thrown into a Task's life: its end begins."""


@dataclass(eq=False)
class Life:
    """A Task, a conversation's driver, or the rest of one that was terminated.

    Args:
        steps: the generator.
        task: what it is about; a Task's uid, or a conversation's name.
    """

    steps: Steps
    task: str
    waits: bool = False
    cancelled: bool = False
    next: tuple[Step | str, Model | None] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.next = next(self.steps)

    def send(self, answer: Any) -> None:
        """Take the answer of the step, and go on to the next."""
        self._go(lambda: self.steps.send(answer))

    def throw(self, error: Exception) -> None:
        """Take its refusal, or a cancel."""
        self._go(lambda: self.steps.throw(error))

    def _go(self, step: Any) -> None:
        try:
            self.next = step()
        except StopIteration:
            self.next = None
        self.waits = self.next is not None and self.next[0] == WAIT


class TaskLife:
    """The steps of one Task."""

    def __init__(self, name: str, uid: str, spec: TaskSpec) -> None:
        self._name = name
        self._uid = uid
        self._spec = spec
        self._lock: Any = None
        self._key: AttemptKey | None = None

    def steps(self) -> Steps:
        identifier, now = workflow_id("default", self._name), datetime(2030, 1, 1, tzinfo=UTC)
        admit = Admit(
            namespace="default", name=self._name, task_uid=self._uid, workflow_id=identifier, spec=self._spec, now=now
        )
        try:
            admitted = yield Step.ADMIT, admit
        except Refusal:
            return
        if admitted.closed is not None:
            return
        try:
            outcome = yield from self._attempts()
        except Refusal as refusal:
            yield from self._abandon(refusal.reason)
        except Cancelled:
            yield from self._abandon(Reason.CANCELLED)
        else:
            yield from self._end(outcome)

    def _attempts(self) -> Generator[Any, Any, Outcome]:
        for number in range(1, _RETRIES + 2):
            self._key = AttemptKey(task_uid=self._uid, attempt=number)
            outcome = yield from self._attempt(self._key)
            if outcome.succeeded or not outcome.retryable(timeouts=False):
                return outcome
            yield Step.DELETE, DeleteJob(key=self._key, job_name=self._job)
        return outcome

    def _attempt(self, key: AttemptKey) -> Generator[Any, Any, Outcome]:
        while True:
            yield from self._acquire()
            plan = yield Step.BIND, Bind(key=key)
            if plan.decided is not None:
                return plan.decided
            yield from self._hold(Step.PIN, lambda lock: PinSession(task_uid=self._uid, lock=lock))
            request = CreateJob(key=key, job_name=self._job, prompt_digest=plan.prompt_digest, lock=self._lock)
            created = yield Step.CREATE, request
            if not created.stale:
                break
        while True:
            settled = yield Step.SETTLE, Settle(key=key, job_name=self._job)
            if settled.outcome is not None:
                return settled.outcome
            yield WAIT, None

    def _acquire(self) -> Steps:
        while self._lock is None:
            place = yield Step.ACQUIRE, AcquireSession(task_uid=self._uid)
            self._lock = place.lock
            if place.lock is None:
                yield WAIT, None

    def _hold(self, step: Step, request: Any) -> Steps:
        while True:
            yield from self._acquire()
            if not (yield step, request(self._lock)).lost:
                return
            self._lock = None

    def _end(self, outcome: Outcome) -> Steps:
        if outcome.result is not None:
            key = AttemptKey(task_uid=self._uid, attempt=outcome.result.attempt)
            yield from self._hold(Step.APPEND, lambda lock: AppendTurn(key=key, lock=lock))
            yield from self._close(Phase.SUCCEEDED, None, outcome)
        else:
            yield from self._close(Phase.FAILED, outcome.reason, outcome)

    def _abandon(self, reason: Reason) -> Steps:
        if self._key is not None:
            verdict = Settle(key=self._key, job_name=self._job, verdict=reason, message="no more")
            settled = yield Step.SETTLE, verdict
            if settled.outcome is not None and settled.outcome.succeeded:
                yield from self._end(settled.outcome)
                return
            yield Step.DELETE, DeleteJob(key=self._key, job_name=self._job)
        yield from self._close(Phase.CANCELLED if reason is Reason.CANCELLED else Phase.FAILED, reason, None)

    def _close(self, phase: Phase, reason: Reason | None, outcome: Outcome | None) -> Steps:
        status = TaskStatus(
            namespace="default",
            name=self._name,
            uid=self._uid,
            phase=phase,
            reason=reason,
            result_ref=outcome.result if outcome else None,
        )
        yield Step.CLOSE, Close(status=status)
        yield Step.LEAVE, LeaveSession(task_uid=self._uid)

    @property
    def _job(self) -> str:
        assert self._key is not None
        return job_name(self._name, self._uid, self._key.iteration, self._key.attempt)


def conversation_life(name: str) -> Steps:
    """Yield the steps of `workflows.conversation`, until nothing is pending."""
    request = DriveConversation(namespace="default", conversation=name)
    while True:
        state = yield Step.NEXT_MESSAGE, request
        if state.number is None:
            return
        message = ProjectMessage(namespace="default", conversation=name, number=state.number)
        if (yield Step.PROJECT, message).done or (yield Step.START_MESSAGE, message).done:
            continue
        yield WAIT, None
