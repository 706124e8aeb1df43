"""The Task workflow: admission, attempts, what people say, and the one end.

Its state is a working copy of the Ledger: a run that starts over after a Reset
finds binding, outcomes and result there, and goes on from them.
"""

import asyncio
from typing import Any, NoReturn

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError

with workflow.unsafe.imports_passed_through():
    from anima.model.attempts import AttemptKey, Outcome
    from anima.model.binding import SoulBinding
    from anima.model.errors import Refusal
    from anima.model.inputs import frozen_changes
    from anima.model.manifest import parse_task
    from anima.model.names import names_in, workflow_id
    from anima.model.plain import parse_json
    from anima.model.reasons import Reason
    from anima.model.steps import Admit, Admitted, Close, Edit
    from anima.model.task import Phase, ResultReference, TaskSpec, TaskStatus
    from anima.model.wire import TASK_WORKFLOW, Query, Signal, Step, Update
    from workflows.attempts import Attempts
    from workflows.holds import Holder, hint_text
    from workflows.session_use import SessionUse
    from workflows.status import ConditionType, StatusBoard
    from workflows.steps import Steps, Trouble
    from workflows.watch import Stopped, Watch


@workflow.defn(name=TASK_WORKFLOW)
class TaskWorkflow:
    """One Task, from admission to its stored end.

    Start it as ``task/<namespace>/<name>`` with the Task's manifest as JSON.
    """

    def __init__(self) -> None:
        info = workflow.info()
        namespace, name = names_in(info.workflow_id, "task") or ("invalid", "invalid")
        self._board = StatusBoard(TaskStatus(namespace=namespace, name=name, uid=info.first_execution_run_id))
        self._watch = Watch(self._board)
        self._steps = Steps(self._watch.pause, self._retrying)
        self._spec: TaskSpec | None = None
        self._session = SessionUse(None, self._steps, self._board, self._watch)
        self._attempts: Attempts | None = None

    @workflow.run
    async def run(self, payload: RawValue = None) -> TaskStatus:  # type: ignore[assignment]
        """Run the Task; return its status if it succeeded, fail with it otherwise."""
        body = asyncio.create_task(self._live(payload))
        cancelled_from_outside = False
        while not body.done():
            try:
                # Temporal's own Cancel is the signal `cancel`: the body ends in order.
                await asyncio.shield(body)
            except asyncio.CancelledError:
                cancelled_from_outside = True
                self._watch.cancel("cancelled through Temporal")
        await body
        await workflow.wait_condition(workflow.all_handlers_finished)
        if self._status.phase is Phase.SUCCEEDED:
            return self._status
        _fail(self._status, cancelled_from_outside)

    @workflow.signal(name=Signal.SUSPEND)
    def suspend(self, hint: RawValue = None) -> None:  # type: ignore[assignment]
        """Hold the Task before its next Job."""
        self._watch.holds.place(Holder.OPERATOR, workflow.now(), hint)
        self._board.held(self._watch.holds.names())

    @workflow.signal(name=Signal.RESUME)
    def resume(self, hint: RawValue = None) -> None:  # type: ignore[assignment]  # noqa: ARG002 (all take a hint)
        """Clear the operator's hold; the spec's own stays."""
        self._watch.holds.release(Holder.OPERATOR)
        self._board.held(self._watch.holds.names())

    @workflow.signal(name=Signal.CANCEL)
    def cancel(self, hint: RawValue = None) -> None:  # type: ignore[assignment]
        """End the Task and its Job."""
        who = hint_text(hint)
        self._watch.cancel(f"cancelled on request{f' ({who})' if who else ''}")

    @workflow.signal(name=Signal.NUDGE)
    def nudge(self, hint: RawValue = None) -> None:  # type: ignore[assignment]  # noqa: ARG002 (all take a hint)
        """Look at the current attempt again."""
        if self._attempts is not None:
            self._attempts.nudge()

    @workflow.signal(name=Signal.GRANTED)
    def granted(self, hint: RawValue = None) -> None:  # type: ignore[assignment]  # noqa: ARG002 (all take a hint)
        """Ask for the Session again: it may be this Task's now."""
        self._session.granted()

    @workflow.query(name=Query.STATUS)
    def status(self) -> TaskStatus:
        """Return the Task's status."""
        return self._status

    @workflow.query(name=Query.BINDING)
    def binding(self) -> SoulBinding | None:
        """Return the Task's soul binding: digests only."""
        return self._status.soul_binding

    @workflow.update(name=Update.EDIT)
    async def edit(self, spec: RawValue) -> TaskStatus:
        """Replace the Task's spec, from the next attempt on."""
        edited = self._parse({"spec": _decode(spec)})
        try:
            await self._steps.local(Step.EDIT, Edit(task_uid=self._status.uid, spec=edited), type(None))
        except (Refusal, Stopped) as stop:
            raise ApplicationError(stop.message, type=stop.reason, non_retryable=True) from None
        self._take(edited)
        return self._status

    @edit.validator
    def _check_edit(self, spec: RawValue) -> None:
        try:
            edited = self._parse({"spec": _decode(spec)})
        except Refusal as refusal:
            raise ApplicationError(refusal.message, type=refusal.reason, non_retryable=True) from None
        if self._spec is None or self._watch.ending:
            raise ApplicationError("the Task is not open for edits", type=Reason.TASK_CONFLICT, non_retryable=True)
        frozen = frozen_changes(self._spec, edited, bound=self._status.soul_binding is not None)
        if frozen:
            message = f"the edit changes {', '.join(frozen)}, which the Task keeps from here on"
            raise ApplicationError(message, type=Reason.FROZEN_INPUT_DRIFT, non_retryable=True)

    @property
    def _status(self) -> TaskStatus:
        return self._board.status

    async def _live(self, payload: RawValue | None) -> None:
        try:
            attempts = await self._admit(self._read(payload))
            if attempts is not None:
                await self._end(await attempts.run(iteration=0))
        except (Refusal, Stopped) as stop:
            await self._abandon(stop.reason, stop.message)

    def _read(self, payload: RawValue | None) -> TaskSpec:
        if workflow.info().workflow_id != workflow_id(self._status.namespace, self._status.name):
            raise Refusal(Reason.TASK_INVALID, "the workflow id must be task/<namespace>/<name>, in DNS labels")
        if payload is None:
            raise Refusal(Reason.TASK_INVALID, "the workflow has no input; it takes the Task's manifest as JSON")
        return self._parse(_decode(payload))

    def _parse(self, manifest: Any) -> TaskSpec:
        return parse_task(manifest, self._status.namespace, self._status.name).spec

    async def _admit(self, spec: TaskSpec) -> Attempts | None:
        session = spec.session_ref.name if spec.session_ref else None
        self._board.change(agent=spec.agent_ref.name, session=session, waits_for="admission")
        request = Admit(
            namespace=self._status.namespace,
            name=self._status.name,
            task_uid=self._status.uid,
            workflow_id=workflow.info().workflow_id,
            spec=spec,
            now=workflow.now(),
        )
        admitted = await self._steps.local(Step.ADMIT, request, Admitted)
        if admitted.closed is not None:
            # The same Task ran before: its stored end is the answer.
            self._board.adopt(admitted.closed)
            return None
        self._watch.start(admitted.submitted_at)
        self._board.note(submission_time=admitted.submitted_at)
        if admitted.progress is not None:
            self._board.resume(admitted.progress)
        self._take(spec)
        self._session = SessionUse(spec.session_ref, self._steps, self._board, self._watch)
        self._attempts = Attempts(self._steps, self._board, self._watch, self._session, admitted)
        return self._attempts

    def _take(self, spec: TaskSpec) -> None:
        self._spec = spec
        self._watch.deadline = spec.deadline
        if spec.suspend:
            self._watch.holds.place(Holder.SPEC, workflow.now())
        else:
            self._watch.holds.release(Holder.SPEC)
        self._board.held(self._watch.holds.names())

    async def _end(self, outcome: Outcome) -> None:
        self._watch.end()
        if outcome.succeeded and outcome.result is not None:
            await self._session.append(self._answered(outcome.result))
            await self._close(phase=Phase.SUCCEEDED, reason=None, message="", result_ref=outcome.result)
        else:
            await self._close(phase=Phase.FAILED, reason=outcome.reason, message=outcome.message)

    def _answered(self, result: ResultReference) -> AttemptKey:
        return AttemptKey(task_uid=self._status.uid, iteration=result.iteration, attempt=result.attempt)

    async def _abandon(self, reason: Reason, message: str) -> None:
        self._watch.end()
        success = await self._attempts.abandon(reason, message) if self._attempts else None
        if success is not None:
            return await self._end(success)
        phase = Phase.CANCELLED if reason is Reason.CANCELLED else Phase.FAILED
        await self._close(phase=phase, reason=reason, message=message)

    async def _close(self, **update: Any) -> None:
        kind: ConditionType = "Complete" if update["phase"] is Phase.SUCCEEDED else "Failed"
        conditions = self._board.condition(kind, True, str(update["reason"] or ""), update["message"])
        final = self._status.model_copy(
            update={**update, "conditions": conditions, "completion_time": workflow.now(), "holds": []}
        )
        if self._attempts is not None:
            # Only an admitted Task is in the Ledger; another's record is not ours to close.
            final = await self._steps.local(Step.CLOSE, Close(status=final), TaskStatus)
            await self._session.leave()
        self._board.adopt(final)

    def _retrying(self, trouble: Trouble | None) -> None:
        conditions = self._board.condition("Retrying", trouble is not None, message=str(trouble or ""))
        self._board.change(conditions=conditions, waits_for=f"another try of {trouble}" if trouble else "")


def _decode(payload: RawValue) -> Any:
    try:
        return parse_json(payload.payload.data)
    except ValueError as error:
        raise Refusal(Reason.TASK_INVALID, f"the input {error}") from None


def _fail(status: TaskStatus, cancelled_from_outside: bool) -> NoReturn:
    reason = status.reason or Reason.JOB_FAILED
    message = f"{status.message}. {reason.remedy}" if status.message else reason.remedy
    if cancelled_from_outside and status.phase is Phase.CANCELLED:
        raise CancelledError(message, status.to_json())
    raise ApplicationError(message, status.to_json(), type=reason, non_retryable=True)
