"""Admission, edits and the end of a Task, against the Ledger."""

from datetime import timedelta

from temporalio import activity

from activities.orphans import Orphans
from anima.model.errors import Refusal
from anima.model.inputs import frozen_changes
from anima.model.reasons import Reason
from anima.model.steps import Admit, Admitted, Close, Edit
from anima.model.task import TaskStatus
from anima.model.wire import Step
from anima.stores.ports import Ledger, TaskRecord


class TaskActivities:
    """`task.admit`, `task.edit` and `task.close`.

    Args:
        ledger: where Tasks are kept.
        orphans: ends a Task whose workflow is gone.
        jobs_queue: the task queue of Job activities; none if Jobs are local.
        check_interval: how often a workflow looks at a Job that says nothing.
    """

    def __init__(self, ledger: Ledger, orphans: Orphans, jobs_queue: str | None, check_interval: timedelta) -> None:
        self._ledger = ledger
        self._orphans = orphans
        self._jobs_queue = jobs_queue
        self._check_interval = check_interval

    @activity.defn(name=Step.ADMIT)
    async def admit(self, request: Admit) -> Admitted:
        """Claim the Task's name, or say how the Task that has it ended.

        Raises:
            Refusal: `TaskConflict` if the name is taken by other content.
        """
        record = await self._ledger.admit(
            request.namespace, request.name, request.task_uid, request.workflow_id, request.spec, request.now
        )
        if record.uid != request.task_uid and not record.closed:
            record = await self._superseded(record)
        return Admitted(
            closed=record.status if record.closed else None,
            progress=_progress(record),
            jobs_queue=self._jobs_queue,
            submitted_at=record.status.submission_time or request.now,
            check_interval=self._check_interval,
        )

    async def _superseded(self, record: TaskRecord) -> TaskRecord:
        # One workflow id has one open run, so the run that owns this record was terminated.
        await self._orphans.end(record)
        return await self._ledger.task(record.uid)

    @activity.defn(name=Step.EDIT)
    async def edit(self, request: Edit) -> None:
        """Replace the spec, unless a frozen field would change.

        Raises:
            Refusal: `FrozenInputDrift`, naming the fields.
        """
        record = await self._ledger.task(request.task_uid)
        check_edit(record, request)
        await self._ledger.edit(record.uid, request.spec)

    @activity.defn(name=Step.CLOSE)
    async def close(self, request: Close) -> TaskStatus:
        """Store the final status; return the one that counts."""
        return await self._ledger.close(request.status)


def check_edit(record: TaskRecord, request: Edit) -> None:
    """Refuse an edit of what a binding froze, or of the Session that the Task has its place in."""
    fields = frozen_changes(record.spec, request.spec, bound=record.binding is not None)
    if fields:
        raise Refusal(
            Reason.FROZEN_INPUT_DRIFT,
            f"the edit of Task {record.namespace}/{record.name} changes {', '.join(fields)}, "
            "which it keeps from here on",
        )


def _progress(record: TaskRecord) -> TaskStatus | None:
    # A Reset may go back to before the binding, or to before the Job was created.
    if record.closed or (record.binding is None and record.status.attempt == 0):
        return None
    return record.status.model_copy(update={"soul_binding": record.binding})
