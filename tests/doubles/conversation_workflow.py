"""A small workflow in place of the Conversation workflow: it answers as each message says."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from temporalio import activity, workflow

from anima.home import Home
from anima.model.attempts import AttemptInput, AttemptKey, ProgressEvent, ProviderSettings, Report
from anima.model.binding import Revision
from anima.model.conversation import Attestation, PostedMessage, message_task_of
from anima.model.digests import digest_bytes
from anima.model.names import job_name, workflow_id
from anima.model.reasons import Reason
from anima.model.session import Claimant, Turn
from anima.model.wire import CONVERSATION_WORKFLOW, Signal
from anima.stores.sql import SqlConversations, SqlLedger, SqlSessions, open_engine, sqlite_url

REVISION = Revision(
    agent_uid="agent", agent_generation=1, soul_digest=digest_bytes(b"soul"), prompt_digest=digest_bytes(b"prompt"),
    envelope_version=1,
)  # fmt: skip
WAIT = "wait"
"""A message that is answered only once another has come."""


@workflow.defn(name=CONVERSATION_WORKFLOW, sandboxed=False)
class ConversationStandIn:
    """Has the pending messages answered whenever it is woken."""

    def __init__(self) -> None:
        self._woken = False

    @workflow.run
    async def run(self) -> None:
        while True:
            self._woken = False
            await workflow.execute_activity(
                "answer-pending", workflow.info().workflow_id, start_to_close_timeout=timedelta(seconds=20)
            )
            if not self._woken:
                return

    @workflow.signal(name=Signal.WAKE)
    def wake(self, hint: Any = None) -> None:
        self._woken = True


class Answerer:
    """Stores answers in a home's database, as the Tasks of the messages would."""

    def __init__(self, home: Home) -> None:
        self._home = home

    @activity.defn(name="answer-pending")
    async def answer_pending(self, driver: str) -> None:
        """Answer the messages of one conversation, in order."""
        _, namespace, name = driver.split("/")
        engine = open_engine(sqlite_url(self._home.database))
        try:
            one = _Conversation(engine, namespace, name)
            pending = await one.pending()
            while pending and not (len(pending) == 1 and pending[0].content == WAIT):
                await one.answer(pending[0])
                pending = await one.pending()
        finally:
            await engine.dispose()


class _Conversation:
    def __init__(self, engine: Any, namespace: str, name: str) -> None:
        clock, new_uid = partial(datetime.now, UTC), lambda: uuid4().hex
        self._ledger = SqlLedger(engine, clock)
        self._sessions = SqlSessions(engine, clock, new_uid)
        self._conversations = SqlConversations(engine, clock, new_uid)
        self._namespace = namespace
        self._name = name

    async def pending(self) -> list[PostedMessage]:
        return list(await self._conversations.pending(self._namespace, self._name))

    async def answer(self, message: PostedMessage) -> None:
        """Answer with the message itself; fail, or answer at the second try, if it says so."""
        if message.content == "fail":
            attestation = Attestation(
                task_uid=None, task=message.task, reason=Reason.PROVIDER_MISSING, message="there is none", unbound=True
            )
            await self._conversations.project_failure(self._namespace, self._name, message.number, attestation, None)
            return
        if message.content == "retry":
            first = await self._attempt(message, 1, "A false start")
            await self._ledger.report(first, Report(reason=Reason.PROVIDER_FAILED, message="cut off"))
        text = f"You said: {message.content}"
        key = await self._attempt(message, 2 if message.content == "retry" else 1, text)
        await self._ledger.report(key, Report(answer=text))
        place = await self._sessions.acquire(
            self._namespace,
            self._name,
            Claimant(task_uid=key.task_uid, task=message.task, workflow_id=workflow_id(self._namespace, message.task)),
        )
        assert place.lock
        await self._sessions.append(
            place.lock,
            Turn(task_uid=key.task_uid, task=message.task, prompt=message.content, answer=text, revision=REVISION),
        )
        await self._sessions.leave(self._namespace, self._name, key.task_uid)

    async def _attempt(self, message: PostedMessage, number: int, text: str) -> AttemptKey:
        task = message_task_of(self._namespace, self._name, message)
        where = workflow_id(self._namespace, task.name)
        record = await self._ledger.admit(
            self._namespace, task.name, f"uid-of-{task.name}", where, task.spec, datetime.now(UTC)
        )
        key = AttemptKey(task_uid=record.uid, attempt=number)
        given = AttemptInput(
            namespace=self._namespace,
            task=task.name,
            key=key,
            user_prompt=message.content,
            user_prompt_digest=digest_bytes(message.content.encode()),
            system_prompt_digest=digest_bytes(b""),
            envelope_version=1,
            provider=ProviderSettings(type="rehearsal", model="rehearsal"),
        )
        await self._ledger.intend(key, job_name(task.name, record.uid, 0, number), given)
        await self._ledger.started(key)
        for sequence, piece in enumerate((text[:5], text[5:])):
            event = ProgressEvent(sequence=sequence, kind="text", data={"delta": piece})
            await self._ledger.append_event(key, event)
        return key
