"""The Session workflow: hands a Session from Task to Task while any of them waits."""

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from anima.model.session import Queue
    from anima.model.steps import DriveSession
    from anima.model.wire import SESSION_WORKFLOW, Query, Signal, Step
    from workflows.driver import Driver


@workflow.defn(name=SESSION_WORKFLOW)
class SessionWorkflow:
    """One Session's queue, from its first waiter to its last.

    It starts by signal-with-start `wake`, as ``session/<namespace>/<name>``.
    """

    def __init__(self) -> None:
        self._driver = Driver("session")
        self._queue = Queue()

    @workflow.run
    async def run(self, payload: RawValue = None) -> Queue:  # type: ignore[assignment]  # noqa: ARG002
        """Hand the Session on until nobody waits."""
        namespace, session = self._driver.begin()
        request = DriveSession(namespace=namespace, session=session)
        step = Step.GRANT
        while True:
            self._driver.woken = False
            self._queue = await self._driver.steps.local(step, request, Queue)
            self._driver.show(_details(self._queue))
            if not self._queue.waiting and not self._driver.woken:
                return self._queue
            step = Step.GRANT if await self._driver.rest("next look at the holder") else Step.LOOK

    @workflow.signal(name=Signal.WAKE)
    def wake(self, hint: RawValue = None) -> None:  # type: ignore[assignment]  # noqa: ARG002 (all take a hint)
        """Look at the queue again."""
        self._driver.woken = True

    @workflow.query(name=Query.STATUS)
    def status(self) -> Queue:
        """Return holder and waiters as they were last seen."""
        return self._queue


def _details(queue: Queue) -> str:
    holder = queue.holder
    lines = [f"**{queue.waiting} waiting**"]
    lines += [f"- held by Task `{holder.task}` since {holder.since:%Y-%m-%d %H:%M:%S} UTC"] if holder else []
    lines += [f"{place}. Task `{waiter.task}`" for place, waiter in enumerate(queue.next, 1)]
    return "\n".join(lines)
