"""The Conversation workflow: makes a Task of each message, one after the other, in order."""

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from anima.model.steps import DriveConversation, MessageState, Projected, ProjectMessage
    from anima.model.wire import CONVERSATION_WORKFLOW, Query, Signal, Step
    from workflows.driver import Driver


@workflow.defn(name=CONVERSATION_WORKFLOW)
class ConversationWorkflow:
    """One conversation, while messages wait in it.

    It starts by signal-with-start `wake`, as ``conversation/<namespace>/<name>``.
    """

    def __init__(self) -> None:
        self._driver = Driver("conversation")
        self._state = MessageState()

    @workflow.run
    async def run(self, payload: RawValue = None) -> MessageState:  # type: ignore[assignment]  # noqa: ARG002
        """Have the messages answered until none is left."""
        namespace, conversation = self._driver.begin()
        request = DriveConversation(namespace=namespace, conversation=conversation)
        while True:
            self._driver.woken = False
            self._state = await self._driver.steps.local(Step.NEXT_MESSAGE, request, MessageState)
            self._driver.show(_details(self._state))
            if self._state.number is None:
                if self._driver.woken:
                    continue
                return self._state
            await self._go_on(ProjectMessage(namespace=namespace, conversation=conversation, number=self._state.number))

    @workflow.signal(name=Signal.WAKE)
    def wake(self, hint: RawValue = None) -> None:  # type: ignore[assignment]  # noqa: ARG002 (all take a hint)
        """Look at the messages again: one was posted, or a Task has ended."""
        self._driver.woken = True

    @workflow.query(name=Query.STATUS)
    def status(self) -> MessageState:
        """Return what is asked, and how many messages wait, as last seen."""
        return self._state

    async def _go_on(self, request: ProjectMessage) -> None:
        """Store what became of a message, or see to it that its Task is on its way, and rest."""
        for step in (Step.PROJECT, Step.START_MESSAGE):
            if (await self._driver.steps.local(step, request, Projected)).done:
                return self._driver.look_sooner()
        await self._driver.rest("next look at the Task")


def _details(state: MessageState) -> str:
    if state.number is None:
        return "**nothing waits**"
    return f"**{state.pending} waiting**\n- asked: message {state.number}, by Task `{state.task}`"
