"""Whatever ends without running code of ours: the Session goes on to the next Task.

A workflow that is terminated while a task of it is out keeps the time of its server from
being skipped ever after, so each test has a server of its own.
"""

from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

from anima.model.reasons import Reason
from anima.model.task import Phase
from tests.doubles.interruptions import Interruption
from tests.workflows.test_sessions import SESSION, finish, holding, records_of, retrying
from tests.workflows.world import World, ended, skipping_server, until


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    async with skipping_server() as environment:
        yield environment


@pytest.fixture
def cache() -> int:
    return 1000


async def test_a_terminated_holder_is_ended_and_the_next_is_served(world: World) -> None:
    await world.agent()
    holder = await holding(world)
    waiter = await world.start("waiter", **SESSION)
    await until(world, waiter, Phase.QUEUED)

    await holder.terminate()
    await world.environment.sleep(60)

    await until(world, waiter, Phase.RUNNING)
    record = await world.ledger.task_named("default", "holder")
    assert (record.status.reason, record.closed) == (Reason.TERMINATED, True)
    assert all(job.deleted for job in world.jobs.jobs.values() if job.spec.task == "holder")
    await finish(world, "waiter")
    await ended(waiter)


async def test_a_terminated_holder_whose_answer_was_accepted_leaves_its_turn(world: World) -> None:
    await world.agent()
    holder = await holding(world)
    waiter = await world.start("waiter", **SESSION)
    await until(world, waiter, Phase.QUEUED)
    world.interrupted.next["append"] = [Interruption.BEFORE] * 30
    await finish(world, "holder")
    await retrying(world, holder)

    await holder.terminate()
    world.interrupted.next["append"].clear()
    await world.environment.sleep(60)

    await until(world, waiter, Phase.RUNNING)
    assert (await world.ledger.task_named("default", "holder")).status.phase is Phase.SUCCEEDED
    assert [record.content for record in await records_of(world)] == ["Say hello.", "Answer to holder."]
    await finish(world, "waiter")
    await ended(waiter)


async def test_a_terminated_session_workflow_is_missed_and_nobody_waits_for_ever(world: World) -> None:
    await world.agent()
    holder = await holding(world)
    waiter = await world.start("waiter", **SESSION)
    await until(world, waiter, Phase.QUEUED)
    await world.client.get_workflow_handle("session/default/talk").terminate()
    await finish(world, "holder")

    assert (await ended(holder)).phase is Phase.SUCCEEDED
    await until(world, waiter, Phase.RUNNING)
    await finish(world, "waiter")
    assert (await ended(waiter)).phase is Phase.SUCCEEDED


async def test_a_task_of_a_terminated_holders_name_gets_its_accepted_answer_and_the_next_is_served(
    world: World,
) -> None:
    await world.agent()
    holder = await holding(world)
    waiter = await world.start("waiter", **SESSION)
    await until(world, waiter, Phase.QUEUED)
    world.interrupted.next["append"] = [Interruption.BEFORE] * 30
    await finish(world, "holder")
    await retrying(world, holder)
    await holder.terminate()
    world.interrupted.next["append"].clear()

    again = await world.start("holder", **SESSION)

    assert (await ended(again)).phase is Phase.SUCCEEDED
    holder_now = (await world.sessions.queue("default", "talk")).holder
    assert holder_now is None or holder_now.task == "waiter"
    assert [record.content for record in await records_of(world)] == ["Say hello.", "Answer to holder."]
    await until(world, waiter, Phase.RUNNING)
    await finish(world, "waiter")
    await ended(waiter)
