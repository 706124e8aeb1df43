"""A Task's persona and inputs never change silently: the whole drift matrix.

Source of the rules: agent-soul, "Revisions, retries, and Sessions".
"""

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import text
from temporalio.client import WorkflowHandle

from anima.model.agent import Agent
from anima.model.provider import Provider
from anima.model.reasons import Reason
from anima.model.resources import ConfigMap
from anima.model.task import Phase, TaskStatus
from tests.doubles.jobs import ScriptedJob
from tests.workflows.test_task import RETRIES
from tests.workflows.world import PERSONA, World, ended, shown, until

DIGEST = "sha256:" + hashlib.sha256(PERSONA.encode()).hexdigest()
FROM_MAP = {"configMapRef": {"name": "soul-v1", "key": "SOUL.md"}, "digest": DIGEST}


async def publish(world: World, text_: str = PERSONA, key: str = "SOUL.md") -> None:
    await world.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "soul-v1"}, "data": {key: text_}})


async def edit_soul(world: World) -> None:
    await world.agent(soul={"inline": PERSONA + "And brief.\n"})


async def edit_role(world: World) -> None:
    await world.agent(systemPrompt={"inline": "Another role."})


async def edit_something_else(world: World) -> None:
    await world.agent(model={"temperature": 0.5})


async def edit_and_revert(world: World) -> None:
    await edit_soul(world)
    await world.agent()


async def recreate(world: World) -> None:
    await world.catalog.delete(Agent, "default", "reviewer")
    await world.agent()


async def remove_soul(world: World) -> None:
    await world.agent(soul=None)


async def delete_agent(world: World) -> None:
    await world.catalog.delete(Agent, "default", "reviewer")


async def delete_provider(world: World) -> None:
    await world.catalog.delete(Provider, "default", "rehearsal")


async def change_spec_behind_admission(world: World) -> None:
    async with world.engine.begin() as connection:
        (spec,) = (await connection.execute(text("SELECT spec FROM tasks"))).one()
        changed = json.loads(spec) | {"prompt": "Something else entirely."}
        await connection.execute(text("UPDATE tasks SET spec = :spec"), {"spec": json.dumps(changed)})


async def suspend_behind_admission(world: World) -> None:
    async with world.engine.begin() as connection:
        (spec,) = (await connection.execute(text("SELECT spec FROM tasks"))).one()
        changed = json.loads(spec) | {"suspend": True}
        await connection.execute(text("UPDATE tasks SET spec = :spec"), {"spec": json.dumps(changed)})


async def delete_map(world: World) -> None:
    await world.catalog.delete(ConfigMap, "default", "soul-v1")


async def replace_map(world: World) -> None:
    await delete_map(world)
    await publish(world, PERSONA.replace("kind", "rude"))


async def rename_key(world: World) -> None:
    await delete_map(world)
    await publish(world, key="PERSONA.md")


async def republish_same(world: World) -> None:
    await delete_map(world)
    await publish(world)


Change = Callable[[World], Awaitable[None]]


async def first_attempt_fails(world: World, change: Change, **agent: Any) -> WorkflowHandle[Any, TaskStatus]:
    """Let attempt 1 fail under the first revision, then change the world."""
    await world.agent(**agent)
    handle = await world.start(retryPolicy=RETRIES)
    await until(world, handle, Phase.RUNNING)
    await handle.signal("suspend")
    next(iter(world.jobs.jobs.values())).exit(1)
    await until(world, handle, Phase.SUSPENDED)
    await change(world)
    world.jobs.behave = lambda job: job.answer("Second.")
    await handle.signal("resume")
    return handle


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (edit_soul, Reason.SOUL_DRIFT),
        (edit_role, Reason.SOUL_DRIFT),
        (edit_something_else, Reason.SOUL_DRIFT),
        (edit_and_revert, Reason.SOUL_DRIFT),
        (recreate, Reason.SOUL_DRIFT),
        (remove_soul, Reason.SOUL_REMOVED),
        (delete_agent, Reason.AGENT_MISSING),
        (delete_provider, Reason.PROVIDER_MISSING),
        (change_spec_behind_admission, Reason.FROZEN_INPUT_DRIFT),
    ],
)
async def test_a_retry_is_refused_when_its_world_has_changed(world: World, change: Change, reason: Reason) -> None:
    handle = await first_attempt_fails(world, change)

    await refused(world, handle, reason)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (delete_map, Reason.SOUL_SOURCE_MISSING),
        (rename_key, Reason.SOUL_SOURCE_MISSING),
        (replace_map, Reason.SOUL_DIGEST_MISMATCH),
    ],
)
async def test_a_retry_is_refused_when_its_configmap_has_changed(world: World, change: Change, reason: Reason) -> None:
    await publish(world)

    handle = await first_attempt_fails(world, change, soul=FROM_MAP)

    await refused(world, handle, reason)


async def refused(world: World, handle: WorkflowHandle[Any, TaskStatus], reason: Reason) -> None:
    status = await ended(handle)
    assert (status.phase, status.reason) == (Phase.FAILED, reason)
    assert (status.attempt, status.total_attempts) == (1, 1)
    assert len(world.jobs.names) == 1
    assert status.soul_binding
    assert status.soul_binding.soul_digest == DIGEST
    assert "PERSONA-MARKER" not in status.message


@pytest.mark.parametrize("change", [republish_same, suspend_behind_admission])
async def test_what_changes_nothing_refuses_nothing(world: World, change: Change) -> None:
    await publish(world)

    handle = await first_attempt_fails(world, change, soul=FROM_MAP)

    assert (await ended(handle)).phase is Phase.SUCCEEDED


async def test_without_a_soul_an_edited_role_counts_from_the_next_attempt(world: World) -> None:
    async def change(world: World) -> None:
        await world.agent(soul=None, systemPrompt={"inline": "A new role."})

    handle = await first_attempt_fails(world, change, soul=None)

    assert (await ended(handle)).phase is Phase.SUCCEEDED
    first, second = world.jobs.jobs.values()
    assert first.environment["ANIMA_SYSTEM_PROMPT"].reveal() == ""
    assert second.environment["ANIMA_SYSTEM_PROMPT"].reveal() == "A new role."


async def test_a_started_task_cannot_gain_a_soul(world: World) -> None:
    async def change(world: World) -> None:
        await world.agent()

    handle = await first_attempt_fails(world, change, soul=None)

    status = await ended(handle)
    assert (status.phase, status.reason) == (Phase.FAILED, Reason.SOUL_INTRODUCED_LATE)
    assert status.soul_binding is None
    assert len(world.jobs.names) == 1


async def test_a_job_that_started_unconfirmed_without_a_soul_keeps_running_without_one(world: World) -> None:
    """The Job started, the answer was lost, and then the Agent got a soul."""
    await world.agent(soul=None)

    async def lose_the_answer(job: ScriptedJob) -> None:
        await world.agent()
        raise ConnectionResetError

    world.jobs.behave = lose_the_answer
    handle = await world.start(retryPolicy=RETRIES)
    await until(world, handle, Phase.RUNNING)
    (job,) = world.jobs.jobs.values()
    job.exit(1)

    status = await ended(handle)
    assert status.reason is Reason.SOUL_INTRODUCED_LATE
    assert status.total_attempts == 1
    assert job.environment["ANIMA_SYSTEM_PROMPT"].reveal() == ""
    assert len(world.jobs.names) == 1


async def test_an_orphan_job_is_fenced_before_the_task_fails(world: World) -> None:
    """The Job started, the answer was lost, and then the Agent was edited."""
    await world.agent()

    async def lose_the_answer(job: ScriptedJob) -> None:
        await edit_soul(world)
        world.jobs.behave = None
        raise ConnectionResetError

    world.jobs.behave = lose_the_answer
    handle = await world.start(retryPolicy=RETRIES)

    status = await ended(handle)
    assert (status.phase, status.reason) == (Phase.FAILED, Reason.SOUL_DRIFT)
    (orphan,) = world.jobs.jobs.values()
    assert orphan.deleted
    assert world.jobs.fenced == {orphan.spec.name}
    (attempt,) = await world.ledger.attempts(status.uid)
    assert attempt.outcome
    assert attempt.outcome.reason is Reason.SOUL_DRIFT


async def test_a_soul_that_appears_before_the_first_job_is_bound(world: World) -> None:
    await world.agent(soul=None)
    world.jobs.behave = lambda job: job.answer("With a soul.")
    handle = await world.start(suspend=True)
    await until(world, handle, Phase.SUSPENDED)
    await world.agent()

    await handle.execute_update("edit", {"type": "ai", "agentRef": {"name": "reviewer"}, "prompt": "Say hello."})

    status = await ended(handle)
    assert status.soul_binding
    assert status.soul_binding.soul_digest == DIGEST


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        ({"soul": FROM_MAP}, Reason.SOUL_SOURCE_MISSING),
        ({"providerRef": {"name": "none"}}, Reason.PROVIDER_MISSING),
        ({"providerRef": None}, Reason.PROVIDER_MISSING),
        ({"runtime": {"type": "codex"}}, Reason.RUNTIME_UNSUPPORTED),
        ({"soul": None, "runtimeRef": {"name": "external"}}, Reason.RUNTIME_UNSUPPORTED),
        ({"systemPrompt": {"configMapRef": {"name": "none", "key": "role"}}}, Reason.ROLE_SOURCE_INVALID),
    ],
)
async def test_what_fails_before_binding_binds_nothing(world: World, agent: dict[str, Any], reason: Reason) -> None:
    await world.agent(**agent)

    status = await world.run()

    assert (status.phase, status.reason) == (Phase.FAILED, reason)
    assert status.soul_binding is None
    assert (await world.ledger.task(status.uid)).binding is None
    assert not world.jobs.names
    assert not await world.ledger.attempts(status.uid)


async def test_an_unknown_agent_fails_the_task(world: World) -> None:
    status = await world.run()

    assert status.reason is Reason.AGENT_MISSING
    assert "default/reviewer" in status.message


async def test_a_tasks_own_role_wins_and_keeps_the_soul(world: World) -> None:
    await world.agent(systemPrompt={"inline": "The Agent's role."})
    world.jobs.behave = lambda job: job.answer("Fine.")

    await world.run(ai={"systemPrompt": "The Task's role: $(HOME) $$ {{x}} @file\r\n"})

    (job,) = world.jobs.jobs.values()
    prompt = job.environment["ANIMA_SYSTEM_PROMPT"].reveal()
    assert prompt.startswith("The Task's role: $(HOME) $$ {{x}} @file\r\n\n\n")
    assert prompt.count(PERSONA) == 1
    assert "The Agent's role." not in prompt
    assert job.spec.prompt_digest == "sha256:" + hashlib.sha256(prompt.encode()).hexdigest()


async def test_the_persona_is_nowhere_in_the_history(world: World) -> None:
    handle = await first_attempt_fails(world, edit_soul)
    await ended(handle)

    history = await handle.fetch_history()
    status = await shown(handle)

    assert "PERSONA-MARKER" not in history.to_json()
    assert "PERSONA-MARKER" not in status.model_dump_json()
    assert DIGEST in history.to_json()


async def test_the_binding_can_be_asked_for(world: World) -> None:
    await world.agent()
    handle = await world.start()
    await until(world, handle, Phase.RUNNING)

    binding = await handle.query("binding")

    assert binding["soulDigest"] == DIGEST
    assert set(binding) == {
        "agentUID", "agentGeneration", "taskUID", "soulDigest", "promptDigest", "inputsDigest", "inputsVersion",
        "envelopeVersion", "boundAt",
    }  # fmt: skip
    await handle.signal("cancel")
    await ended(handle)
