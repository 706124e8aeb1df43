"""A conversation goes on, whatever ends without running code of ours.

A workflow that is terminated while a task of it is out keeps the time of its server from
being skipped ever after, so each test has a server of its own.
"""

from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

from anima.model.reasons import Reason
from tests.doubles.interruptions import Interruption
from tests.workflows.test_conversations import DRIVER, answer_to, driver_ended, identity, records, say, task_of
from tests.workflows.world import World, skipping_server


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    async with skipping_server() as environment:
        yield environment


@pytest.fixture
def cache() -> int:
    return 1000


async def test_a_terminated_conversation_workflow_goes_on_when_it_is_woken(world: World) -> None:
    await world.agent()
    world.jobs.behave = None
    first, second = await say(world, "One."), await say(world, "Two.")
    await task_of(world, first)
    await world.client.get_workflow_handle(DRIVER).terminate()

    world.jobs.behave = lambda job: job.answer("Second.")
    # The Task's own end is what wakes it.
    await next(iter(world.jobs.jobs.values())).answer("First.")

    assert (await answer_to(world, second)).content == "Second."
    assert [record.content for record in await records(world)] == ["One.", "First.", "Two.", "Second."]
    await driver_ended(world)


async def test_a_terminated_task_is_said_to_be_and_the_next_message_is_asked(world: World) -> None:
    await world.agent()
    world.jobs.behave = None
    first, second = await say(world, "One."), await say(world, "Two.")
    handle = await task_of(world, first)
    world.jobs.behave = lambda job: job.answer("Second.")

    await handle.terminate()

    failed = await answer_to(world, first)
    assert (failed.reason, failed.unbound) == (Reason.TERMINATED, False)
    assert (await answer_to(world, second)).content == "Second."
    assert all(job.deleted for job in world.jobs.jobs.values() if job.spec.task == first.task)
    assert await identity(world) is not None


async def test_a_terminated_task_whose_answer_was_accepted_has_answered(world: World) -> None:
    await world.agent()
    world.jobs.behave = None
    posted = await say(world, "One.")
    handle = await task_of(world, posted)
    world.interrupted.next["append"] = [Interruption.BEFORE] * 4
    await next(iter(world.jobs.jobs.values())).answer("First.")
    while "append" not in world.interrupted.calls:
        await world.environment.sleep(1)

    await handle.terminate()

    assert (await answer_to(world, posted)).content == "First."
    assert len(await records(world)) == 2
