"""Runs whose histories are kept, so that later code is held to them."""

from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.client import WorkflowHandle

from anima.model.reasons import Reason
from anima.model.task import Phase, TaskStatus
from anima.stores.sessions import SessionKey
from tests.workflows.world import World, failing_first, task_spec, until

SESSION = {"sessionRef": {"name": "talk"}}
RETRIES = {"maxRetries": 2, "initialDelay": "10s"}
Handle = WorkflowHandle[Any, TaskStatus]
Scenario = Callable[[World], Awaitable[Handle]]


async def succeeds(world: World) -> Handle:
    world.jobs.behave = lambda job: job.answer("Hello.")
    return await world.start()


async def succeeds_without_a_soul(world: World) -> Handle:
    await world.agent(soul=None)
    return await succeeds(world)


async def retries_and_succeeds(world: World) -> Handle:
    world.jobs.behave = failing_first(2)
    return await world.start(retryPolicy=RETRIES)


async def uses_up_its_retries(world: World) -> Handle:
    world.jobs.behave = lambda job: job.fail(Reason.ANSWER_BLANK)
    return await world.start(retryPolicy=RETRIES)


async def times_out(world: World) -> Handle:
    return await world.start(timeout="20s")


async def exceeds_its_deadline(world: World) -> Handle:
    world.jobs.behave = failing_first(99)
    return await world.start(deadline="15s", retryPolicy=RETRIES)


async def is_suspended_edited_and_resumed(world: World) -> Handle:
    world.jobs.behave = lambda job: job.answer("Free.")
    handle = await world.start(suspend=True)
    await handle.signal("suspend", {"by": "ops", "reason": "freeze"})
    await until(world, handle, Phase.SUSPENDED)
    await handle.execute_update("edit", task_spec())
    await handle.signal("resume")
    return handle


async def is_cancelled_while_running(world: World) -> Handle:
    handle = await world.start()
    await until(world, handle, Phase.RUNNING)
    await handle.signal("cancel")
    return handle


async def is_cancelled_by_temporal(world: World) -> Handle:
    handle = await world.start()
    await until(world, handle, Phase.RUNNING)
    await handle.cancel()
    return handle


async def is_refused_after_drift(world: World) -> Handle:
    handle = await world.start(retryPolicy=RETRIES)
    await until(world, handle, Phase.RUNNING)
    await world.agent(soul={"inline": "Another.\n"})
    next(iter(world.jobs.jobs.values())).exit(1)
    return handle


async def meets_an_outage(world: World) -> Handle:
    world.jobs.behave = lambda job: job.answer("After the storm.")
    world.jobs.out_of_reach = True
    handle = await world.start()
    while not any(c.type == "Retrying" for c in (await handle.query("status", result_type=TaskStatus)).conditions):
        pass
    world.jobs.out_of_reach = False
    return handle


async def is_answered_from_its_record(world: World) -> Handle:
    await (await succeeds(world)).result()
    return await world.start()


async def is_invalid(world: World) -> Handle:
    return await world.start(prompt=None)


async def continues_its_session(world: World) -> Handle:
    world.jobs.behave = lambda job: job.answer("Hello.")
    await (await world.start("task-0", **SESSION)).result()
    return await world.start(**SESSION)


async def waits_for_its_session(world: World) -> Handle:
    holder = await world.start("task-0", **SESSION)
    await until(world, holder, Phase.RUNNING)
    handle = await world.start(**SESSION)
    await until(world, handle, Phase.QUEUED)
    world.jobs.behave = lambda job: job.answer("At last.")
    await next(iter(world.jobs.jobs.values())).answer("First.")
    await holder.result()
    return handle


async def is_refused_by_its_session(world: World) -> Handle:
    world.jobs.behave = lambda job: job.answer("Hello.")
    await (await world.start("task-0", **SESSION)).result()
    await world.agent(soul={"inline": "Another.\n"})
    return await world.start(**SESSION)


async def session_is_handed_on(world: World) -> Handle:
    await (await waits_for_its_session(world)).result()
    return world.client.get_workflow_handle("session/default/talk")


async def session_misses_its_holder(world: World) -> Handle:
    holder = await world.start("task-0", **SESSION)
    await until(world, holder, Phase.RUNNING)
    handle = await world.start(**SESSION)
    await until(world, handle, Phase.QUEUED)
    await holder.terminate()
    world.jobs.behave = lambda job: job.answer("At last.")
    await handle.result()
    return world.client.get_workflow_handle("session/default/talk")


async def conversation_answers_two_messages(world: World) -> Handle:
    world.jobs.behave = lambda job: job.answer("Hello.")
    for number in range(2):
        await world.conversations.post("default", "talk", f"key-{number}", "Hello?", "reviewer")
    await world.parts.drivers.wake(SessionKey("default", "talk", conversation=True))
    return world.client.get_workflow_handle("conversation/default/talk")


SCENARIOS: tuple[Scenario, ...] = (
    succeeds,
    succeeds_without_a_soul,
    retries_and_succeeds,
    uses_up_its_retries,
    times_out,
    exceeds_its_deadline,
    is_suspended_edited_and_resumed,
    is_cancelled_while_running,
    is_cancelled_by_temporal,
    is_refused_after_drift,
    meets_an_outage,
    is_answered_from_its_record,
    is_invalid,
    continues_its_session,
    waits_for_its_session,
    is_refused_by_its_session,
    session_is_handed_on,
    session_misses_its_holder,
    conversation_answers_two_messages,
)


def workflow_of(scenario: str) -> str:
    """Return the id of the workflow whose history a scenario keeps."""
    kind = scenario.partition("_")[0]
    return f"{kind}/default/talk" if kind in ("session", "conversation") else "task/default/task-1"
