"""Conversations: messages in order, each answered once, under one revision for ever.

Source of the rules: agent-soul, "Revisions, retries, and Sessions".
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

from anima.model.agent import Agent
from anima.model.attempts import AttemptKey
from anima.model.conversation import PostedMessage
from anima.model.digests import digest_bytes
from anima.model.errors import NotFound
from anima.model.jobs import JobSpec
from anima.model.names import job_name
from anima.model.persona import SensitiveText
from anima.model.provider import Provider
from anima.model.reasons import Reason
from anima.model.resources import ConfigMap
from anima.model.session import Identity, Message, Role, SessionRecord
from anima.model.task import Phase, TaskStatus
from anima.model.wire import TASK_QUEUE
from anima.stores.sessions import SessionKey
from tests.doubles.interruptions import Interruption
from tests.doubles.jobs import ScriptedJob
from tests.workflows.test_drift import FROM_MAP, delete_map, publish
from tests.workflows.world import World, ended, manifest, replay, until

TALK = SessionKey("default", "talk", conversation=True)
DRIVER = "conversation/default/talk"
SESSION = {"sessionRef": {"name": "talk"}}


async def post(world: World, content: str, agent: str | None = "reviewer") -> PostedMessage:
    """Queue a message as the gateway does, but wake nobody."""
    return await world.conversations.post("default", "talk", f"key of {content}", content, agent)


async def wake(world: World) -> None:
    await world.parts.drivers.wake(TALK)


async def say(world: World, content: str, agent: str | None = "reviewer") -> PostedMessage:
    posted = await post(world, content, agent)
    await wake(world)
    return posted


async def answer_to(world: World, posted: PostedMessage) -> SessionRecord:
    """Let time pass until a message is answered, or its failure is stored."""
    for _ in range(900):
        message = await world.conversations.message("default", "talk", posted.number)
        if message.answer is not None:
            assert message.content == ""
            (record,) = await world.sessions.records("default", "talk", after=message.answer - 1, limit=1)
            assert record.role is Role.ASSISTANT
            return record
        await world.environment.sleep(1)
    raise AssertionError(f"message {posted.number} was never answered")


async def ask(world: World, content: str, agent: str | None = "reviewer") -> SessionRecord:
    return await answer_to(world, await say(world, content, agent))


async def task_of(world: World, posted: PostedMessage, phase: Phase = Phase.RUNNING) -> WorkflowHandle[Any, Any]:
    """Let time pass until a message's Task shows a phase."""
    for _ in range(100):
        try:
            record = await world.ledger.task_named("default", posted.task)
        except NotFound:
            await world.environment.sleep(1)
        else:
            handle = world.client.get_workflow_handle(record.workflow_id, result_type=TaskStatus)
            await until(world, handle, phase)
            return handle
    raise AssertionError(f"message {posted.number} never became a Task")


async def records(world: World) -> list[SessionRecord]:
    return list(await world.sessions.records("default", "talk"))


async def identity(world: World) -> Identity | None:
    return (await world.sessions.session("default", "talk")).identity


async def driver_ended(world: World) -> None:
    await world.client.get_workflow_handle(DRIVER).result()


@pytest.fixture
def cache() -> int:
    return 1000


@pytest.fixture(autouse=True)
async def answering(world: World) -> AsyncIterator[None]:
    """Let every Job answer; in the end nothing waits, and what was run is replayed."""
    world.jobs.behave = lambda job: job.answer(f"Answer by {job.spec.task}.")
    yield
    await driver_ended(world)
    await replay(world, DRIVER, *(task.workflow_id for task in await world.ledger.tasks()))


async def test_queued_messages_are_answered_in_order_each_once(world: World) -> None:
    await world.agent()
    posted = [await post(world, f"Question {number}.") for number in range(10)]

    await wake(world)
    await answer_to(world, posted[-1])

    found = await records(world)
    assert [record.content for record in found[::2]] == [f"Question {number}." for number in range(10)]
    assert [record.content for record in found[1::2]] == [f"Answer by {one.task}." for one in posted]
    pinned = await identity(world)
    assert pinned is not None
    assert pinned.task == posted[0].task
    assert {record.revision for record in found} == {pinned.digest}
    assert len(world.jobs.names) == 10


async def test_queued_messages_establish_nothing_and_only_the_answer_pins(world: World) -> None:
    await world.agent()
    world.jobs.behave = None
    first, _ = await say(world, "One."), await say(world, "Two.")
    await task_of(world, first)

    assert await identity(world) is None
    assert await records(world) == []

    world.jobs.behave = lambda job: job.answer("Fine, too.")
    await next(iter(world.jobs.jobs.values())).answer("Fine.")
    await answer_to(world, first)
    assert await identity(world) is not None


@pytest.mark.parametrize("interruption", Interruption)
@pytest.mark.parametrize("step", ["pending", "message", "project_failure"])
async def test_a_store_that_fails_loses_no_message_and_answers_none_twice(
    world: World, step: str, interruption: Interruption
) -> None:
    await world.agent()
    world.interrupted_conversations.next[step] = [interruption] * 4

    failed = await ask(world, "One.", "nobody")
    answered = await ask(world, "Two.")

    assert (failed.reason, answered.content.startswith("Answer")) == (Reason.AGENT_MISSING, True)
    assert len(await records(world)) == 4


async def test_after_unbound_failures_are_corrected_the_first_revision_binds(world: World) -> None:
    await world.agent(soul=FROM_MAP)
    without_soul = await ask(world, "One.")
    await publish(world)
    await world.catalog.delete(Provider, "default", "rehearsal")
    without_provider = await ask(world, "Two.")

    assert (without_soul.reason, without_soul.unbound) == (Reason.SOUL_SOURCE_MISSING, True)
    assert (without_provider.reason, without_provider.unbound) == (Reason.PROVIDER_MISSING, True)
    assert await identity(world) is None
    assert [record.content for record in (await records(world))[::2]] == ["One.", "Two."]

    await world.apply(manifest("Provider", "rehearsal", {"type": "rehearsal"}))
    answered = await ask(world, "Three.")

    pinned = await identity(world)
    assert pinned is not None
    assert answered.revision == pinned.digest
    assert answered.content.startswith("Answer")


async def text_reverted(world: World) -> None:
    await world.agent(soul={"inline": "Another.\n"})
    await world.agent()


async def agent_recreated(world: World) -> None:
    await world.catalog.delete(Agent, "default", "reviewer")
    await world.agent()


async def soul_removed(world: World) -> None:
    await world.agent(soul=None)


@pytest.mark.parametrize("drift", [text_reverted, agent_recreated, soul_removed])
async def test_an_established_revision_never_changes(world: World, drift: Callable[[World], Awaitable[None]]) -> None:
    await world.agent()
    await ask(world, "One.")
    before = await identity(world)
    await drift(world)

    refused = await ask(world, "Two.")

    assert (refused.reason, refused.unbound) == (Reason.SESSION_SOUL_MISMATCH, drift is soul_removed)
    assert "PERSONA-MARKER" not in refused.content
    assert await identity(world) == before
    assert len(world.jobs.names) == 1


async def test_a_conversation_goes_on_when_the_right_agent_is_asked(world: World) -> None:
    await world.agent()
    await world.agent("other")
    await ask(world, "One.")

    refused = await ask(world, "Two.", "other")
    answered = await ask(world, "Three.", "reviewer")
    again = await ask(world, "Four.", None)

    assert refused.reason is Reason.SESSION_SOUL_MISMATCH
    assert answered.revision == again.revision == (await identity(world)).digest  # type: ignore[union-attr]
    assert answered.revision is not None


async def test_a_conversation_without_a_soul_remains_absence_only(world: World) -> None:
    await world.agent(soul=None)
    await ask(world, "One.")
    await world.agent(soul=None, systemPrompt={"inline": "Another role."})
    await world.agent("plain", soul=None)

    assert (await ask(world, "Two.")).reason is None
    assert (await ask(world, "Three.", "plain")).reason is None
    await world.agent()
    refused = await ask(world, "Four.")

    pinned = await identity(world)
    assert refused.reason is Reason.SESSION_SOUL_MISMATCH
    assert pinned is not None
    assert pinned.digest is None


@pytest.mark.parametrize("soul", [{}, {"soul": None}], ids=["soul", "no-soul"])
async def test_a_failure_of_a_job_establishes_as_an_answer_would(world: World, soul: dict[str, Any]) -> None:
    await world.agent(**soul)
    world.jobs.behave = lambda job: job.fail(Reason.ANSWER_REFUSED)

    failed = await ask(world, "One.")

    pinned = await identity(world)
    assert (failed.reason, failed.unbound) == (Reason.ANSWER_REFUSED, False)
    assert pinned is not None
    assert failed.revision == pinned.digest
    assert (pinned.digest is None) is bool(soul)


async def test_a_job_that_the_task_owns_establishes_whatever_the_ledger_says(world: World) -> None:
    """The Job started, and every record of that got lost."""
    await world.agent(soul=None, providerRef={"name": "none"})
    world.jobs.out_of_reach = True
    posted = await say(world, "One.")
    record = await failed_task(world, posted)
    key = AttemptKey(task_uid=record.uid, attempt=1)
    name = job_name(posted.task, record.uid, 0, 1)
    spec = JobSpec(name=name, namespace="default", task=posted.task, key=key, prompt_digest=digest_bytes(b""))
    world.jobs.jobs[name] = ScriptedJob(spec, {"X": SensitiveText("")}, world.ledger)
    world.jobs.out_of_reach = False

    failed = await answer_to(world, posted)

    pinned = await identity(world)
    assert (failed.reason, failed.unbound) == (Reason.PROVIDER_MISSING, False)
    assert pinned is not None
    assert pinned.digest is None


async def failed_task(world: World, posted: PostedMessage) -> Any:
    for _ in range(100):
        try:
            record = await world.ledger.task_named("default", posted.task)
        except NotFound:
            record = None
        if record is not None and record.closed:
            return record
        await world.environment.sleep(1)
    raise AssertionError("the Task never failed")


async def test_without_a_list_of_jobs_nothing_is_attested(world: World) -> None:
    await world.agent(providerRef={"name": "none"})
    world.jobs.out_of_reach = True
    posted = await say(world, "One.")
    await failed_task(world, posted)
    await world.environment.sleep(120)
    assert (await world.conversations.message("default", "talk", posted.number)).answer is None

    world.jobs.out_of_reach = False

    failed = await answer_to(world, posted)
    assert (failed.reason, failed.unbound) == (Reason.PROVIDER_MISSING, True)
    assert await identity(world) is None


async def test_history_that_began_without_an_identity_gains_no_soul(world: World) -> None:
    await world.agent()
    await world.sessions.import_messages("default", "talk", [Message(role=Role.USER, content="Before.", tool_calls=[])])

    refused = [await ask(world, "One."), await ask(world, "Two.")]

    assert refused[0].reason is Reason.SESSION_UNPINNED_HISTORY
    assert refused[1].reason in (Reason.SESSION_UNPINNED_HISTORY, Reason.SESSION_SOUL_MISMATCH)
    pinned = await identity(world)
    assert pinned is None or pinned.digest is None
    await world.agent("plain", soul=None)
    assert (await ask(world, "Three.", "plain")).reason is None


async def test_a_name_that_is_another_tasks_is_told_and_establishes_nothing(world: World) -> None:
    await world.agent()
    posted = await post(world, "One.")
    world.jobs.behave = lambda job: job.answer("Not yours.")
    assert (await world.run(posted.task)).phase is Phase.SUCCEEDED

    await wake(world)

    failed = await answer_to(world, posted)
    assert (failed.reason, failed.unbound, failed.task_uid) == (Reason.TASK_CONFLICT, True, None)
    assert await identity(world) is None
    assert (await ask(world, "Two.")).content == "Not yours."


async def test_an_ordinary_task_cannot_take_a_conversations_session(world: World) -> None:
    await world.agent()
    await ask(world, "One.")
    idle = await world.run("intruder", **SESSION)
    world.jobs.behave = None
    posted = await say(world, "Two.")
    handle = await task_of(world, posted)
    busy = await world.run("intruder-2", **SESSION)

    assert {(idle.reason, idle.total_attempts), (busy.reason, busy.total_attempts)} == {(Reason.SESSION_OWNED, 0)}
    await next(job for job in world.jobs.jobs.values() if job.spec.task == posted.task).answer("Fine.")
    assert (await ended(handle)).phase is Phase.SUCCEEDED
    assert len(await records(world)) == 4


async def test_a_forgotten_task_is_asked_again(world: World) -> None:
    """Its failure was deleted before anybody could tell of it."""
    await world.agent(providerRef={"name": "none"})
    world.jobs.out_of_reach = True
    posted = await say(world, "One.")
    await failed_task(world, posted)
    await world.ledger.delete_task("default", posted.task)
    await world.agent()

    world.jobs.out_of_reach = False

    assert (await answer_to(world, posted)).reason is None


async def test_what_is_asked_is_shown(world: World) -> None:
    await world.agent()
    world.jobs.behave = None
    first, second = await say(world, "One."), await say(world, "Two.")
    await task_of(world, first)

    driver = world.client.get_workflow_handle(DRIVER)
    shown = await driver.query("status")

    assert shown == {"number": 1, "task": first.task, "pending": 2}
    for posted in (first, second):
        await (await task_of(world, posted)).signal("cancel")
    assert (await answer_to(world, second)).reason is Reason.CANCELLED
    assert await driver.result() is not None


async def test_the_persona_is_nowhere_in_the_history_of_a_conversation(world: World) -> None:
    await publish(world)
    await world.agent(soul=FROM_MAP)
    await ask(world, "One.")
    await delete_map(world)
    await ask(world, "Two.")
    await driver_ended(world)

    history = await world.client.get_workflow_handle(DRIVER).fetch_history()

    assert "PERSONA-MARKER" not in history.to_json()
    with pytest.raises(NotFound):
        await world.catalog.get(ConfigMap, "default", "soul-v1")


@pytest.mark.parametrize("identifier", ["conversation/default", "conversation/Default/talk", "talk/default/talk"])
async def test_a_workflow_id_that_names_no_conversation_is_refused(world: World, identifier: str) -> None:
    await wake(world)
    handle = await world.client.start_workflow("Conversation", id=identifier, task_queue=TASK_QUEUE)

    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()

    assert isinstance(failure.value.cause, ApplicationError)
    assert failure.value.cause.type == Reason.REQUEST_REFUSED


async def test_inputs_and_hints_are_ignored(world: World) -> None:
    await world.agent()
    posted = await post(world, "One.")
    handle = await world.client.start_workflow("Conversation", {"what": 7}, id=DRIVER, task_queue=TASK_QUEUE)
    await handle.signal("wake", args=["by", "hand"])

    assert (await answer_to(world, posted)).reason is None
