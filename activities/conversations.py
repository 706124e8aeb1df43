"""A conversation's messages: each becomes a Task, and what became of that is stored once.

Source of the rules: agent-soul, "Revisions, retries, and Sessions".
"""

from temporalio import activity

from activities.drivers import Drivers
from activities.orphans import Orphans
from activities.turns import claimant, revision_of
from anima.model.conversation import (
    Attestation,
    Evidence,
    PostedMessage,
    answers_for,
    attest,
    attest_never_begun,
    message_task_of,
)
from anima.model.errors import NotFound, Refusal, Unavailable
from anima.model.reasons import Reason
from anima.model.steps import DriveConversation, MessageState, Projected, ProjectMessage
from anima.model.task import Phase
from anima.model.wire import Step
from anima.stores.ports import Jobs, Ledger, TaskRecord
from anima.stores.sessions import Conversations


class ConversationActivities:
    """`conversation.next`, `conversation.start` and `conversation.project`.

    Args:
        ledger: where the messages' Tasks are.
        jobs: where those may have left evidence of execution.
        conversations: where the messages wait.
        orphans: ends a Task whose workflow is gone.
        drivers: starts Tasks, and tells whether one is open.
    """

    def __init__(
        self, ledger: Ledger, jobs: Jobs, conversations: Conversations, orphans: Orphans, drivers: Drivers
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._conversations = conversations
        self._orphans = orphans
        self._drivers = drivers

    @activity.defn(name=Step.NEXT_MESSAGE)
    async def next(self, request: DriveConversation) -> MessageState:
        """Return the message whose turn it is, and how many wait."""
        try:
            pending = await self._conversations.pending(request.namespace, request.conversation)
        except NotFound:
            return MessageState()
        if not pending:
            return MessageState()
        return MessageState(number=pending[0].number, task=pending[0].task, pending=len(pending))

    @activity.defn(name=Step.START_MESSAGE)
    async def start(self, request: ProjectMessage) -> Projected:
        """Start the message's Task, or find it on its way; again is the same.

        A name that is another Task's, and a spec that is refused, are stored as a failure
        that establishes nothing, for nothing of the message ever ran.
        """
        message = await self._pending(request)
        if message is None:
            return Projected(done=True)
        try:
            if await self._recorded(request, message) is None:
                await self._drivers.start_task(message_task_of(request.namespace, request.conversation, message))
        except Refusal as refusal:
            return await self._store(request, attest_never_begun(message, refusal))
        return Projected(done=False)

    @activity.defn(name=Step.PROJECT)
    async def project(self, request: ProjectMessage) -> Projected:
        """Store what became of the message, once its Task has ended.

        Raises:
            Unavailable: the evidence cannot be read now, or the answer is not stored yet.
        """
        message = await self._pending(request)
        if message is None:
            return Projected(done=True)
        try:
            record = await self._recorded(request, message)
        except Refusal as refusal:
            return await self._store(request, attest_never_begun(message, refusal))
        if record is not None and not record.closed:
            record = await self._ended(record)
        if record is None:
            return Projected(done=False)
        if record.status.phase is Phase.SUCCEEDED:
            return await self._answered(request, record)
        return await self._store(request, attest(await self._evidence(record)), record)

    async def _pending(self, request: ProjectMessage) -> PostedMessage | None:
        try:
            message = await self._conversations.message(request.namespace, request.conversation, request.number)
        except NotFound:
            return None
        return message if message.answer is None else None

    async def _recorded(self, request: ProjectMessage, message: PostedMessage) -> TaskRecord | None:
        """Return the message's Task; none before its admission.

        Raises:
            Refusal: `TaskConflict` if the name is another Task's.
        """
        try:
            record = await self._ledger.task_named(request.namespace, message.task)
        except NotFound:
            return None
        if answers_for(request.conversation, record.spec):
            return record
        raise Refusal(
            Reason.TASK_CONFLICT,
            f"message {message.number} cannot become Task {request.namespace}/{message.task}: another has that name",
        )

    async def _ended(self, record: TaskRecord) -> TaskRecord | None:
        """Return the record as its Task left it, or as it is left for it; none while the Task goes on."""
        if await self._drivers.is_open(claimant(record)):
            return None
        try:
            await self._orphans.end(record)
        except Refusal as refusal:
            # Of its Job or its place, not of the message: that waits until somebody has seen to it.
            where = f"Task {record.namespace}/{record.name}"
            raise Unavailable(f"{where}, whose workflow is gone, cannot be ended: {refusal.message}") from None
        return await self._ledger.task(record.uid)

    async def _answered(self, request: ProjectMessage, record: TaskRecord) -> Projected:
        if await self._pending(request) is not None:
            raise Unavailable(f"Task {record.namespace}/{record.name} succeeded, and its turn is not stored yet")
        return Projected(done=True)

    async def _evidence(self, record: TaskRecord) -> Evidence:
        # The Jobs last: what was created meanwhile is seen.
        attempts = await self._ledger.attempts(record.uid)
        jobs = [job for job in await self._jobs.records() if job.spec.key.task_uid == record.uid]
        return Evidence(
            type=record.spec.type,
            status=record.status,
            bound=record.binding is not None,
            attempts=len(attempts),
            jobs=len(jobs),
        )

    async def _store(
        self, request: ProjectMessage, attestation: Attestation, record: TaskRecord | None = None
    ) -> Projected:
        await self._conversations.project_failure(
            request.namespace,
            request.conversation,
            request.number,
            attestation,
            revision_of(record) if record else None,
        )
        return Projected(done=True)
