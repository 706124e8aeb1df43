"""The Session workflow: hands a Session from Task to Task while any of them waits.

Queue and lock are in the database; this workflow only sees to it that the queue moves.
So its memory and its history do not grow with the queue, and a run that is killed,
terminated or reset has nothing to lose.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from anima.model.names import names_in
    from anima.model.reasons import Reason
    from anima.model.session import Queue
    from anima.model.steps import DriveSession
    from anima.model.wire import SESSION_WORKFLOW, Query, SearchAttribute, Signal, Step
    from workflows.steps import Steps, Trouble

_FIRST_LOOK = timedelta(seconds=30)
_LONGEST_REST = timedelta(minutes=5)


@workflow.defn(name=SESSION_WORKFLOW)
class SessionWorkflow:
    """One Session's queue, from its first waiter to its last.

    It starts by signal-with-start `wake`, as ``session/<namespace>/<name>``.
    """

    def __init__(self) -> None:
        self._names = names_in(workflow.info().workflow_id, "session")
        self._steps = Steps(workflow.sleep, self._retrying)
        self._queue = Queue()
        self._woken = False

    @workflow.run
    async def run(self, payload: RawValue = None) -> Queue:  # type: ignore[assignment]  # noqa: ARG002
        """Hand the Session on until nobody waits."""
        if self._names is None:
            message = "the workflow id must be session/<namespace>/<name>, in DNS labels"
            raise ApplicationError(message, type=Reason.REQUEST_REFUSED, non_retryable=True)
        namespace, session = self._names
        show_session(namespace, session)
        request = DriveSession(namespace=namespace, session=session)
        step, rest = Step.GRANT, _FIRST_LOOK
        while True:
            self._woken = False
            self._queue = await self._steps.local(step, request, Queue)
            self._show()
            if not self._queue.waiting and not self._woken:
                return self._queue
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new()
            step, rest = await self._rest(rest)

    @workflow.signal(name=Signal.WAKE)
    def wake(self, hint: RawValue = None) -> None:  # type: ignore[assignment]  # noqa: ARG002 (all take a hint)
        """Look at the queue again."""
        self._woken = True

    @workflow.query(name=Query.STATUS)
    def status(self) -> Queue:
        """Return holder and waiters as they were last seen."""
        return self._queue

    async def _rest(self, rest: timedelta) -> tuple[Step, timedelta]:
        """Wait for a signal, or for the time to look after the holder: rarer and rarer."""
        try:
            await workflow.wait_condition(lambda: self._woken, timeout=rest, timeout_summary="next look at the holder")
        except TimeoutError:
            return Step.LOOK, min(rest * 2, _LONGEST_REST)
        return Step.GRANT, _FIRST_LOOK

    def _show(self) -> None:
        workflow.set_current_details(_details(self._queue))

    def _retrying(self, trouble: Trouble | None) -> None:
        text = f"\n- trying again: {trouble}" if trouble else ""
        workflow.set_current_details(_details(self._queue) + text)


def show_session(namespace: str, session: str) -> None:
    """Let the workflow be found by its Session."""
    values = {SearchAttribute.NAMESPACE: namespace, SearchAttribute.SESSION: session}
    workflow.upsert_search_attributes(
        [SearchAttributeKey.for_keyword(name).value_set(value) for name, value in values.items()]
    )


def _details(queue: Queue) -> str:
    holder = queue.holder
    lines = [f"**{queue.waiting} waiting**"]
    lines += [f"- held by Task `{holder.task}` since {holder.since:%Y-%m-%d %H:%M:%S} UTC"] if holder else []
    lines += [f"{place}. Task `{waiter.task}`" for place, waiter in enumerate(queue.next, 1)]
    return "\n".join(lines)
