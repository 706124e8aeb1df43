"""The Conversation workflow: makes a Task of each message, one after the other, in order.

The messages are in the database; this workflow only sees to it that each is answered, or
that its failure is stored.  A run that is killed, terminated or reset has nothing to lose.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from anima.model.names import names_in
    from anima.model.reasons import Reason
    from anima.model.steps import DriveConversation, MessageState, Projected, ProjectMessage
    from anima.model.wire import CONVERSATION_WORKFLOW, Query, Signal, Step
    from workflows.session import show_session
    from workflows.steps import Steps, Trouble

_FIRST_LOOK = timedelta(seconds=30)
_LONGEST_REST = timedelta(minutes=5)


@workflow.defn(name=CONVERSATION_WORKFLOW)
class ConversationWorkflow:
    """One conversation, while messages wait in it.

    It starts by signal-with-start `wake`, as ``conversation/<namespace>/<name>``.
    """

    def __init__(self) -> None:
        self._names = names_in(workflow.info().workflow_id, "conversation")
        self._steps = Steps(workflow.sleep, self._retrying)
        self._state = MessageState()
        self._woken = False

    @workflow.run
    async def run(self, payload: RawValue = None) -> MessageState:  # type: ignore[assignment]  # noqa: ARG002
        """Have the messages answered until none is left."""
        if self._names is None:
            message = "the workflow id must be conversation/<namespace>/<name>, in DNS labels"
            raise ApplicationError(message, type=Reason.REQUEST_REFUSED, non_retryable=True)
        namespace, name = self._names
        show_session(namespace, name)
        rest = _FIRST_LOOK
        while True:
            # Whatever is read below is read after this, so no wake is missed.
            self._woken = False
            before = self._state.number
            self._state = await self._next(DriveConversation(namespace=namespace, conversation=name))
            number = self._state.number
            if number is None and not self._woken:
                return self._state
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new()
            if number is not None:
                request = ProjectMessage(namespace=namespace, conversation=name, number=number)
                if not await self._done(request):
                    rest = await self._rest(rest if number == before else _FIRST_LOOK)

    @workflow.signal(name=Signal.WAKE)
    def wake(self, hint: RawValue = None) -> None:  # type: ignore[assignment]  # noqa: ARG002 (all take a hint)
        """Look at the messages again: one was posted, or a Task has ended."""
        self._woken = True

    @workflow.query(name=Query.STATUS)
    def status(self) -> MessageState:
        """Return what is asked, and how many messages wait, as last seen."""
        return self._state

    async def _next(self, request: DriveConversation) -> MessageState:
        state = await self._steps.local(Step.NEXT_MESSAGE, request, MessageState)
        workflow.set_current_details(_details(state))
        return state

    async def _done(self, request: ProjectMessage) -> bool:
        """Store what became of a message, or see to it that its Task is on its way."""
        for step in (Step.PROJECT, Step.START_MESSAGE):
            if (await self._steps.local(step, request, Projected)).done:
                return True
        return False

    async def _rest(self, rest: timedelta) -> timedelta:
        """Wait for a signal, or for the time to look after the Task; return how long to rest after this."""
        try:
            await workflow.wait_condition(lambda: self._woken, timeout=rest, timeout_summary="next look at the Task")
        except TimeoutError:
            return min(rest * 2, _LONGEST_REST)
        return _FIRST_LOOK

    def _retrying(self, trouble: Trouble | None) -> None:
        text = f"\n- trying again: {trouble}" if trouble else ""
        workflow.set_current_details(_details(self._state) + text)


def _details(state: MessageState) -> str:
    if state.number is None:
        return "**nothing waits**"
    return f"**{state.pending} waiting**\n- asked: message {state.number}, by Task `{state.task}`"
