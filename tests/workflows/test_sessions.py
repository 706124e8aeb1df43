"""A Session never changes persona, loses no turn and doubles none, whatever befalls its Tasks.

Source of the rules: agent-soul, "Revisions, retries, and Sessions".
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from anima.model.agent import Agent
from anima.model.errors import NotFound
from anima.model.provider import Provider
from anima.model.reasons import Reason
from anima.model.session import Message, Role, SessionRecord, SessionStatus
from anima.model.task import Phase, TaskStatus
from tests.doubles.interruptions import Interruption
from tests.doubles.jobs import ScriptedJob
from tests.workflows.test_task import RETRIES
from tests.workflows.world import PERSONA, World, ended, manifest, replay, shown, task_spec, until

SESSION = {"sessionRef": {"name": "talk"}}
SILENT = {"sessionRef": {"name": "talk", "append": False}}
LEGACY = [Message(role=Role.USER, content="Hello?"), Message(role=Role.ASSISTANT, content="Hello!")]


@pytest.fixture
def cache() -> int:
    return 1000


@pytest.fixture(autouse=True)
async def replayed(world: World) -> AsyncIterator[None]:
    """Replay what a test has run."""
    yield
    await replay(world)


async def answers(world: World, name: str = "task-1", **spec: Any) -> TaskStatus:
    world.jobs.behave = lambda job: job.answer(f"Answer to {job.spec.task}.")
    return await world.run(name, **(SESSION | spec))


async def status_of(world: World) -> SessionStatus:
    return await world.sessions.session("default", "talk")


async def records_of(world: World) -> list[SessionRecord]:
    return list(await world.sessions.records("default", "talk"))


async def refused(world: World, reason: Reason, **spec: Any) -> TaskStatus:
    """Run one more Task, and see that it is refused with no Job and no trace in the Session."""
    jobs, before = world.jobs.names, await records_of(world)
    status = await answers(world, "refused", **spec)
    assert (status.phase, status.reason) == (Phase.FAILED, reason)
    assert (status.attempt, status.total_attempts, status.start_time) == (0, 0, None)
    assert world.jobs.names == jobs
    assert await records_of(world) == before
    return status


async def test_a_session_is_pinned_before_the_first_job(world: World) -> None:
    await world.agent()
    pinned: list[str | None] = []

    async def look(job: ScriptedJob) -> None:
        identity = (await status_of(world)).identity
        pinned.append(identity.digest if identity else "nothing")
        await job.answer("Hello.")

    world.jobs.behave = look
    status = await world.run(**SESSION)

    assert status.soul_binding is not None
    assert pinned == [status.soul_binding.revision.session_digest]


async def test_a_turn_carries_the_revision_and_is_in_the_session_when_its_task_has_succeeded(world: World) -> None:
    await world.agent()

    status = await answers(world)

    assert (status.phase, status.session) == (Phase.SUCCEEDED, "talk")
    assert status.soul_binding is not None
    user, assistant = await records_of(world)
    assert (user.role, user.content) == (Role.USER, "Say hello.")
    assert (assistant.role, assistant.content) == (Role.ASSISTANT, "Answer to task-1.")
    revision = status.soul_binding.revision.session_digest
    assert [record.revision for record in (user, assistant)] == [revision, revision]
    assert {record.task_uid for record in (user, assistant)} == {status.uid}


async def test_the_same_revision_continues_and_is_given_what_was_said(world: World) -> None:
    await world.agent()
    first = await answers(world)

    second = await answers(world, "task-2", prompt="And again.")

    assert second.phase is Phase.SUCCEEDED
    (attempt,) = await world.ledger.attempts(second.uid)
    reference = (await world.ledger.input(attempt.key)).transcript_ref
    assert reference is not None
    assert reference.through == 2
    identity = (await status_of(world)).identity
    assert identity is not None
    assert (identity.task, identity.task_uid) == ("task-1", first.uid)
    assert [record.content for record in await records_of(world)][2:] == ["And again.", "Answer to task-2."]


async def test_another_soul_is_refused(world: World) -> None:
    await world.agent()
    await answers(world)
    await world.agent(soul={"inline": "Another.\n"})

    status = await refused(world, Reason.SESSION_SOUL_MISMATCH)

    assert "the soul's digest was" in status.message


async def test_text_that_was_changed_and_reverted_is_another_revision(world: World) -> None:
    await world.agent()
    await answers(world)
    await world.agent(soul={"inline": "Another.\n"})
    await world.agent(soul={"inline": PERSONA})

    status = await refused(world, Reason.SESSION_SOUL_MISMATCH)

    assert "the Agent's generation was 1 and is 3" in status.message


async def test_an_agent_that_was_recreated_is_another_revision(world: World) -> None:
    await world.agent()
    await answers(world)
    await world.catalog.delete(Agent, "default", "reviewer")
    await world.agent()

    status = await refused(world, Reason.SESSION_SOUL_MISMATCH)

    assert "the Agent's uid was" in status.message


async def test_a_changed_role_is_another_revision(world: World) -> None:
    await world.agent()
    await answers(world)

    await refused(world, Reason.SESSION_SOUL_MISMATCH, ai={"systemPrompt": "Another role."})


async def test_a_removed_soul_is_refused(world: World) -> None:
    await world.agent()
    await answers(world)
    await world.agent(soul=None)

    await refused(world, Reason.SESSION_SOUL_MISMATCH)


async def test_a_soul_that_is_introduced_late_is_refused(world: World) -> None:
    await world.agent(soul=None)
    await answers(world)
    await world.agent()

    await refused(world, Reason.SESSION_SOUL_MISMATCH)


async def test_absence_pins_absence_only(world: World) -> None:
    await world.agent(soul=None)
    await answers(world)
    await world.agent("other", soul=None, systemPrompt={"inline": "Another role."})

    status = await answers(world, "task-2", agentRef={"name": "other"}, ai={"systemPrompt": "And another."})

    assert status.phase is Phase.SUCCEEDED


async def test_a_turn_without_append_pins_absence_and_adds_nothing(world: World) -> None:
    await world.agent(soul=None)
    assert (await answers(world, **SILENT)).phase is Phase.SUCCEEDED
    assert (await status_of(world)).identity is not None
    assert not await records_of(world)
    await world.agent()

    await refused(world, Reason.SESSION_SOUL_MISMATCH)


async def test_a_new_soul_session_must_append_its_first_turn(world: World) -> None:
    await world.agent()

    status = await answers(world, **SILENT)

    assert (status.reason, status.total_attempts) == (Reason.SESSION_MUST_APPEND, 0)
    assert not world.jobs.names
    assert (await status_of(world)).identity is None
    assert (await answers(world, "task-2")).phase is Phase.SUCCEEDED


async def test_an_established_session_is_used_without_appending(world: World) -> None:
    await world.agent()
    await answers(world)

    status = await answers(world, "task-2", **SILENT)

    assert status.phase is Phase.SUCCEEDED
    assert len(await records_of(world)) == 2


async def test_history_without_an_identity_gains_no_soul(world: World) -> None:
    await world.agent()
    await world.sessions.import_messages("default", "talk", LEGACY)

    await refused(world, Reason.SESSION_UNPINNED_HISTORY)

    assert (await status_of(world)).identity is None


async def test_history_without_an_identity_goes_on_without_a_soul(world: World) -> None:
    await world.agent(soul=None)
    await world.sessions.import_messages("default", "talk", LEGACY)

    assert (await answers(world)).phase is Phase.SUCCEEDED

    identity = (await status_of(world)).identity
    assert identity is not None
    assert identity.digest is None


async def test_the_pin_survives_the_cleanup_of_its_task(world: World) -> None:
    await world.agent()
    await answers(world)
    await world.ledger.delete_task("default", "task-1")
    await world.agent(soul={"inline": "Another.\n"})

    await refused(world, Reason.SESSION_SOUL_MISMATCH)


async def test_the_pin_survives_a_job_that_failed(world: World) -> None:
    await world.agent()
    world.jobs.behave = lambda job: job.fail(Reason.ANSWER_REFUSED)
    assert (await world.run(**SESSION)).reason is Reason.ANSWER_REFUSED
    assert not await records_of(world)
    await world.agent(soul={"inline": "Another.\n"})

    await refused(world, Reason.SESSION_SOUL_MISMATCH)


async def test_the_pin_survives_a_result_that_could_not_be_written(world: World) -> None:
    await world.agent()

    async def undelivered(job: ScriptedJob) -> None:
        job.exit(75)

    world.jobs.behave = undelivered
    assert (await world.run(**SESSION)).reason is Reason.JOB_FAILED
    assert not await records_of(world)
    await world.agent(soul={"inline": "Another.\n"})

    await refused(world, Reason.SESSION_SOUL_MISMATCH)


async def test_the_pin_survives_an_empty_first_turn(world: World) -> None:
    await world.agent()
    handle = await world.start(**SESSION)
    await until(world, handle, Phase.RUNNING)
    await handle.signal("cancel")
    assert (await ended(handle)).phase is Phase.CANCELLED
    assert not await records_of(world)

    # Established is established: the same revision need not append now, another is refused.
    assert (await answers(world, "task-2", **SILENT)).phase is Phase.SUCCEEDED
    await world.agent(soul={"inline": "Another.\n"})
    await refused(world, Reason.SESSION_SOUL_MISMATCH)


async def test_the_pin_survives_a_job_that_could_not_be_created(world: World) -> None:
    await world.agent()
    world.jobs.out_of_reach = True
    handle = await world.start(**SESSION)
    while (await status_or_none(world)) is None or (await status_of(world)).identity is None:
        await world.environment.sleep(1)
    await handle.signal("cancel")
    world.jobs.out_of_reach = False
    assert (await ended(handle)).phase is Phase.CANCELLED
    await world.agent(soul={"inline": "Another.\n"})

    await refused(world, Reason.SESSION_SOUL_MISMATCH)


async def status_or_none(world: World) -> SessionStatus | None:
    try:
        return await status_of(world)
    except NotFound:
        return None


async def test_once_a_provider_is_corrected_the_first_revision_binds(world: World) -> None:
    await world.agent()
    await world.catalog.delete(Provider, "default", "rehearsal")
    failed = await answers(world)
    assert (failed.reason, (await status_of(world)).identity) == (Reason.PROVIDER_MISSING, None)
    await world.apply(manifest("Provider", "rehearsal", {"type": "rehearsal"}))

    status = await answers(world, "task-2")

    assert (status.phase, (await status_of(world)).identity is not None) == (Phase.SUCCEEDED, True)


@pytest.mark.parametrize("interruption", Interruption)
@pytest.mark.parametrize("step", ["acquire", "pin", "append", "leave"])
@pytest.mark.parametrize("soul", [{}, {"soul": None}], ids=["soul", "no-soul"])
async def test_a_store_that_fails_costs_no_attempt_and_doubles_nothing(
    world: World, step: str, interruption: Interruption, soul: dict[str, Any]
) -> None:
    await world.agent(**soul)
    world.interrupted.next[step] = [interruption]

    status = await answers(world)

    assert (status.phase, status.total_attempts) == (Phase.SUCCEEDED, 1)
    assert len(await records_of(world)) == 2
    assert (await status_of(world)).queue.holder is None
    assert world.interrupted.calls.count(step) == 2


async def test_a_task_has_not_succeeded_before_its_turn_is_stored(world: World) -> None:
    await world.agent()
    world.interrupted.next["append"] = [Interruption.BEFORE] * 7
    world.jobs.behave = lambda job: job.answer("Hello.")
    handle = await world.start(**SESSION)
    await retrying(world, handle)

    assert not (await shown(handle)).phase.final
    assert not (await world.ledger.task_named("default", "task-1")).closed
    # Nor does a cancel lose the turn of an answer that was accepted.
    await handle.signal("cancel")

    assert (await ended(handle)).phase is Phase.SUCCEEDED
    assert len(await records_of(world)) == 2


async def retrying(world: World, handle: Any) -> None:
    while not any(c.type == "Retrying" and c.status == "True" for c in (await shown(handle)).conditions):
        await world.environment.sleep(1)


async def holding(world: World, name: str = "holder", **spec: Any) -> Any:
    """Start a Task that has the Session until its Job is told to end."""
    world.jobs.behave = None
    handle = await world.start(name, **(SESSION | spec))
    await until(world, handle, Phase.RUNNING)
    return handle


async def finish(world: World, task: str) -> None:
    job = next(job for job in world.jobs.jobs.values() if job.spec.task == task)
    await job.answer(f"Answer to {task}.")


async def test_tasks_have_a_session_one_after_the_other_in_the_order_of_their_coming(world: World) -> None:
    await world.agent()
    first = await holding(world, "task-0")
    world.jobs.behave = lambda job: job.answer(f"Answer to {job.spec.task}.")
    rest = []
    for number in range(1, 8):
        rest.append(await world.start(f"task-{number}", prompt=f"Question {number}.", **SESSION))
        queued = await until(world, rest[-1], Phase.QUEUED)
        assert (queued.total_attempts, queued.soul_binding) == (0, None)

    await finish(world, "task-0")

    assert {(await ended(handle)).phase for handle in [first, *rest]} == {Phase.SUCCEEDED}
    answers_ = [record.content for record in await records_of(world) if record.role is Role.ASSISTANT]
    assert answers_ == [f"Answer to task-{number}." for number in range(8)]


async def test_a_waiter_is_shown_with_its_place_and_who_has_the_session(world: World) -> None:
    await world.agent()
    await holding(world)
    waiters = [await world.start(f"task-{number}", **SESSION) for number in range(2)]
    places = [(await until(world, handle, Phase.QUEUED)).message for handle in waiters]

    assert places == [
        "Session talk: held by Task holder, this one is next",
        "Session talk: held by Task holder, 2 before this one",
    ]
    queue = await world.client.get_workflow_handle("session/default/talk").query("status")

    assert queue["holder"]["task"] == "holder"
    assert [waiter["task"] for waiter in queue["next"]] == ["task-0", "task-1"]
    for handle in [world.client.get_workflow_handle("task/default/holder"), *waiters]:
        await handle.signal("cancel")
    for handle in waiters:
        assert (await ended(handle)).phase is Phase.CANCELLED
    await replay(world, "session/default/talk")


async def test_a_cancelled_waiter_leaves_the_queue(world: World) -> None:
    await world.agent()
    holder = await holding(world)
    gone, next_ = await world.start("gone", **SESSION), await world.start("next", **SESSION)
    await until(world, gone, Phase.QUEUED)
    await until(world, next_, Phase.QUEUED)

    await gone.signal("cancel")

    assert (await ended(gone)).total_attempts == 0
    assert [waiter.task for waiter in (await world.sessions.queue("default", "talk")).next] == ["next"]
    await finish(world, "holder")
    await ended(holder)
    await until(world, next_, Phase.RUNNING)
    await finish(world, "next")
    assert (await ended(next_)).phase is Phase.SUCCEEDED


async def test_the_deadline_counts_the_wait_for_a_session(world: World) -> None:
    await world.agent()
    holder = await holding(world)

    late = await world.run("late", deadline="20s", **SESSION)

    assert (late.reason, late.total_attempts) == (Reason.DEADLINE_EXCEEDED, 0)
    await holder.signal("cancel")
    await ended(holder)


async def test_the_holder_keeps_the_session_through_retries_and_suspension(world: World) -> None:
    await world.agent()
    holder = await holding(world, retryPolicy=RETRIES)
    waiter = await world.start("waiter", **SESSION)
    await until(world, waiter, Phase.QUEUED)
    await holder.signal("suspend")
    next(iter(world.jobs.jobs.values())).exit(1)
    await until(world, holder, Phase.SUSPENDED)
    await world.environment.sleep(3600)
    assert (await shown(waiter)).phase is Phase.QUEUED

    world.jobs.behave = lambda job: job.answer(f"Answer to {job.spec.task}.")
    await holder.signal("resume")

    assert {(await ended(handle)).phase for handle in (holder, waiter)} == {Phase.SUCCEEDED}
    assert [record.content for record in await records_of(world)][1::2] == ["Answer to holder.", "Answer to waiter."]


async def test_a_lock_that_was_lost_is_asked_for_again_and_the_turn_is_kept(world: World) -> None:
    await world.agent()
    holder = await holding(world)
    uid = (await shown(holder)).uid
    await world.sessions.leave("default", "talk", uid)

    await finish(world, "holder")

    assert (await ended(holder)).phase is Phase.SUCCEEDED
    assert len(await records_of(world)) == 2


async def test_an_edit_of_the_session_is_refused_even_before_binding(world: World) -> None:
    await world.agent(soul=None)
    handle = await world.start(suspend=True, **SESSION)
    await until(world, handle, Phase.SUSPENDED)

    with pytest.raises(WorkflowUpdateFailedError) as refusal:
        await handle.execute_update("edit", task_spec(sessionRef={"name": "other"}))

    assert isinstance(refusal.value.cause, ApplicationError)
    assert refusal.value.cause.type == Reason.FROZEN_INPUT_DRIFT
    assert "sessionRef" in str(refusal.value.cause)
    await handle.signal("cancel")
    await ended(handle)


async def test_a_session_that_was_changed_behind_admission_is_drift(world: World) -> None:
    await world.agent(soul=None)
    handle = await world.start(retryPolicy=RETRIES, **SESSION)
    await until(world, handle, Phase.RUNNING)
    async with world.engine.begin() as connection:
        moved = "UPDATE tasks SET spec = replace(spec, '\"talk\"', '\"elsewhere\"')"
        await connection.execute(text(moved))
    next(iter(world.jobs.jobs.values())).exit(1)

    status = await ended(handle)

    assert status.reason is Reason.FROZEN_INPUT_DRIFT
    assert (await status_of(world)).queue.holder is None or (await world.ledger.task(status.uid)).closed
