"""One Task from submission to its end: attempts, time, and what people say."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.testing import WorkflowEnvironment

from anima.model.jobs import JobObservation, JobPhase
from anima.model.reasons import Reason
from anima.model.task import Condition, Phase, TaskStatus
from anima.model.wire import TASK_QUEUE
from tests.doubles.jobs import ScriptedJob
from tests.workflows.world import World, ended, failing_first, open_world, shown, task_spec, until

RETRIES = {"maxRetries": 2, "initialDelay": "10s", "backoffMultiplier": 3}


def raw_json(value: Any) -> RawValue:
    """Encode as Python's own encoder does, lone surrogates included."""
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode()))


async def test_it_ends_with_the_answer_that_its_job_reported(world: World) -> None:
    await world.agent()
    world.jobs.behave = lambda job: job.answer("Hello.")

    status = await world.run()

    assert status.phase is Phase.SUCCEEDED
    assert status.attempt == status.total_attempts == 1
    record = await world.ledger.task_named("default", "task-1")
    assert record.closed
    assert record.status == status


async def test_jobs_may_be_created_by_workers_of_another_queue(
    skipping: WorkflowEnvironment, tmp_path: Path, cache: int
) -> None:
    async with open_world(skipping, tmp_path, cache, jobs_queue=TASK_QUEUE) as world:
        await world.agent()
        world.jobs.behave = failing_first(1)

        handle = await world.start(retryPolicy=RETRIES)

        assert (await ended(handle)).total_attempts == 2
        scheduled = [
            event.activity_task_scheduled_event_attributes.activity_type.name
            for event in (await handle.fetch_history()).events
            if event.HasField("activity_task_scheduled_event_attributes")
        ]
        assert scheduled == ["job.create", "job.delete", "job.create"]


async def test_retries_wait_longer_each_time(world: World) -> None:
    await world.agent()
    world.jobs.behave = failing_first(2)

    status = await world.run(retryPolicy=RETRIES)

    assert status.phase is Phase.SUCCEEDED
    assert (status.attempt, status.total_attempts) == (3, 3)
    assert status.completion_time
    assert status.start_time
    waited = status.completion_time - status.start_time
    assert timedelta(seconds=40) <= waited < timedelta(seconds=60)


async def test_it_fails_with_the_last_outcome_when_retries_are_used_up(world: World) -> None:
    await world.agent()
    world.jobs.behave = failing_first(99)

    status = await world.run(retryPolicy=RETRIES)

    assert (status.phase, status.reason) == (Phase.FAILED, Reason.JOB_FAILED)
    assert status.total_attempts == 3
    assert "exit code 3" in status.message
    assert all(job.deleted for job in world.jobs.jobs.values())


async def test_a_failure_that_cannot_pass_is_not_retried(world: World) -> None:
    await world.agent()
    world.jobs.behave = lambda job: job.fail(Reason.ANSWER_REFUSED)

    status = await world.run(retryPolicy=RETRIES)

    assert status.reason is Reason.ANSWER_REFUSED
    assert status.total_attempts == 1


@pytest.mark.parametrize(("retried", "attempts"), [(False, 1), (True, 3)])
async def test_an_attempt_that_takes_too_long_is_ended(world: World, retried: bool, attempts: int) -> None:
    await world.agent()

    status = await world.run(timeout="90s", retryPolicy=RETRIES | {"retryTimeouts": retried})

    assert status.reason is Reason.JOB_TIMEOUT
    assert status.total_attempts == attempts
    assert all(job.deleted for job in world.jobs.jobs.values())


async def test_a_job_that_was_lost_before_its_timeout_is_no_timeout(world: World) -> None:
    async def lost(job: ScriptedJob) -> None:
        job.observation = JobObservation(phase=JobPhase.LOST, message="its supervisor died")

    await world.agent()
    world.jobs.behave = lost

    status = await world.run(timeout="1s")

    assert (status.reason, status.message) == (Reason.JOB_LOST, "its supervisor died")


async def test_the_deadline_ends_the_whole_task(world: World) -> None:
    await world.agent()
    world.jobs.behave = failing_first(99)

    status = await world.run(deadline="35s", retryPolicy=RETRIES | {"maxRetries": 1000, "maxDelay": "10s"})

    assert (status.phase, status.reason) == (Phase.FAILED, Reason.DEADLINE_EXCEEDED)
    assert status.total_attempts == 3


async def test_the_deadline_stands_still_while_suspended(world: World) -> None:
    await world.agent()
    world.jobs.behave = lambda job: job.answer("In time.")
    handle = await world.start(deadline="1m", suspend=True)
    await until(world, handle, Phase.SUSPENDED)

    await world.environment.sleep(timedelta(hours=5))
    await handle.execute_update("edit", task_spec(deadline="1m"))

    assert (await ended(handle)).phase is Phase.SUCCEEDED


async def test_an_operators_resume_leaves_the_hold_of_the_spec(world: World) -> None:
    await world.agent()
    world.jobs.behave = lambda job: job.answer("Free.")
    handle = await world.start(suspend=True)
    await handle.signal("suspend", {"by": "ops", "reason": "freeze"})
    status = await until(world, handle, Phase.SUSPENDED)
    assert status.holds == ["operator", "spec"]

    await handle.signal("resume")
    assert (await until(world, handle, Phase.SUSPENDED)).holds == ["spec"]
    assert not world.jobs.names
    shown = await handle.query("__temporal_workflow_metadata")
    assert "- soul: `not bound yet`\n- held by: spec\n- waits for: an edit that" in shown.current_details

    await handle.execute_update("edit", task_spec())
    assert (await ended(handle)).phase is Phase.SUCCEEDED


async def test_suspend_lets_the_running_job_end_and_holds_the_next(world: World) -> None:
    await world.agent()
    handle = await world.start(retryPolicy=RETRIES)
    await until(world, handle, Phase.RUNNING)
    await handle.signal("suspend")
    shown = await handle.query("__temporal_workflow_metadata")
    assert "- held by: operator\n- waits for: the Job's report" in shown.current_details
    (first,) = world.jobs.jobs.values()
    assert not first.deleted

    first.exit(1)
    await until(world, handle, Phase.SUSPENDED)
    await world.environment.sleep(timedelta(days=3))
    assert len(world.jobs.names) == 1

    world.jobs.behave = lambda job: job.answer("Second.")
    await handle.signal("resume")
    assert (await ended(handle)).total_attempts == 2


async def test_cancel_ends_the_job_and_the_task(world: World) -> None:
    await world.agent()
    handle = await world.start()
    await until(world, handle, Phase.RUNNING)

    await handle.signal("cancel", {"by": "ops"})

    status = await ended(handle)
    assert (status.phase, status.reason) == (Phase.CANCELLED, Reason.CANCELLED)
    assert "ops" in status.message
    assert [job.deleted for job in world.jobs.jobs.values()] == [True]


@pytest.mark.parametrize("phase", [Phase.SUSPENDED, Phase.WAITING])
async def test_cancel_ends_a_task_that_waits(world: World, phase: Phase) -> None:
    await world.agent()
    world.jobs.behave = failing_first(99)
    handle = await world.start(suspend=phase is Phase.SUSPENDED, retryPolicy=RETRIES)
    await until(world, handle, phase)

    await handle.signal("cancel")

    assert (await ended(handle)).phase is Phase.CANCELLED


@pytest.mark.parametrize(
    "hints",
    [
        [{"by": "ada", "reason": "enough"}],
        [{"by": 1}],
        ["text", None, 3],
        [RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"{"))],
        [RawValue(Payload(metadata={"encoding": b"binary/of-another-sdk"}, data=b"\xff"))],
    ],
)
async def test_whatever_comes_with_a_signal_the_task_hears_it(world: World, hints: list[Any]) -> None:
    await world.agent()
    handle = await world.start()
    await until(world, handle, Phase.RUNNING)

    for name in ("suspend", "nudge", "resume", "cancel"):
        await handle.signal(name, args=hints)

    final = await ended(handle)
    assert final.phase is Phase.CANCELLED
    assert ("ada: enough" in final.message) == (hints == [{"by": "ada", "reason": "enough"}])


async def test_a_query_with_too_much_and_an_update_with_too_little_harm_nothing(world: World) -> None:
    await world.agent()
    handle = await world.start()

    unreadable = RawValue(Payload(metadata={"encoding": b"binary/of-another-sdk"}, data=b"\xff"))
    await handle.query("status", args=["too", "much"])
    for arguments in ([], [task_spec(), "too much"], [unreadable]):
        with pytest.raises(WorkflowUpdateFailedError) as failure:
            await handle.execute_update("edit", args=arguments)
        assert isinstance(failure.value.cause, ApplicationError)
        assert failure.value.cause.type == Reason.TASK_INVALID

    await handle.signal("cancel")
    assert (await ended(handle)).phase is Phase.CANCELLED


async def test_temporals_own_cancel_ends_in_order(world: World) -> None:
    await world.agent()
    handle = await world.start()
    await until(world, handle, Phase.RUNNING)

    await handle.cancel()

    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    assert isinstance(failure.value.cause, CancelledError)
    assert (await world.ledger.task_named("default", "task-1")).status.phase is Phase.CANCELLED
    assert [job.deleted for job in world.jobs.jobs.values()] == [True]


async def test_a_result_that_was_accepted_counts_against_cancel_and_timeout(world: World) -> None:
    await world.agent()
    handle = await world.start(timeout="30s")
    await until(world, handle, Phase.RUNNING)
    (job,) = world.jobs.jobs.values()

    await job.answer("Just in time.")
    await handle.signal("cancel")

    assert (await ended(handle)).phase is Phase.SUCCEEDED


async def test_a_result_whose_signal_was_lost_is_found(world: World) -> None:
    await world.agent()
    handle = await world.start()
    await until(world, handle, Phase.RUNNING)
    (job,) = world.jobs.jobs.values()

    await job.answer("Quietly.")

    assert (await ended(handle)).phase is Phase.SUCCEEDED


async def retrying(handle: WorkflowHandle[Any, TaskStatus]) -> Condition:
    """Wait until the Task says that it is retrying a step."""
    for _ in range(400):
        shows = [c for c in (await shown(handle)).conditions if c.type == "Retrying" and c.status == "True"]
        if shows:
            return shows[0]
        await asyncio.sleep(0.05)
    raise AssertionError("the Task never said that it was retrying")


async def test_an_outage_is_shown_and_uses_up_no_attempt(world: World) -> None:
    await world.agent()
    world.jobs.behave = lambda job: job.answer("After the storm.")
    world.jobs.out_of_reach = True
    handle = await world.start()

    assert "out of reach" in (await retrying(handle)).message
    assert (await shown(handle)).total_attempts == 0

    world.jobs.out_of_reach = False
    final = await ended(handle)
    assert (final.phase, final.total_attempts) == (Phase.SUCCEEDED, 1)
    assert [c.status for c in final.conditions if c.type == "Retrying"] == ["False"]


async def test_a_cancelled_task_ends_when_its_job_is_proven_gone(world: World) -> None:
    await world.agent()
    world.jobs.out_of_reach = True
    handle = await world.start()
    await retrying(handle)

    await handle.signal("cancel")
    await retrying(handle)
    world.jobs.out_of_reach = False

    assert (await ended(handle)).phase is Phase.CANCELLED
    assert not world.jobs.names
    assert len(world.jobs.fenced) == 1


async def test_the_same_task_again_is_answered_from_its_record(world: World) -> None:
    await world.agent()
    world.jobs.behave = lambda job: job.answer("Once.")
    first = await world.run()

    again = await world.run()

    assert again == first
    assert len(world.jobs.names) == 1


async def test_another_task_of_the_same_name_is_refused(world: World) -> None:
    await world.agent()
    world.jobs.behave = lambda job: job.answer("Once.")
    await world.run()

    status = await world.run(prompt="Something else.")

    assert status.reason is Reason.TASK_CONFLICT
    assert len(world.jobs.names) == 1
    assert (await world.ledger.task_named("default", "task-1")).status.phase is Phase.SUCCEEDED


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"spec": {"type": "ai", "prompt": "x"}}, ["spec.agentRef", "required"]),
        ({"spec": task_spec(prompt=7, timeout="soon")}, ["spec.prompt", "spec.timeout"]),
        ({"spec": task_spec(promt="x")}, ["spec.promt", "did you mean prompt"]),
        ({"spec": task_spec(prompt="x" * 300_000)}, ["limit"]),
        ({"spec": task_spec(prompt="\ud800")}, ["spec.prompt"]),
        ({"spec": task_spec(retryPolicy={"maxRetries": 2**60})}, ["spec.retryPolicy.maxRetries"]),
        ({"metadata": {"name": "other"}, "spec": task_spec()}, ["metadata.name"]),
        (["spec"], ["must be a map"]),
        ("text", ["must be a map"]),
        (None, ["must be a map"]),
    ],
)
async def test_bad_json_is_refused_with_all_its_errors(world: World, payload: Any, words: list[str]) -> None:
    handle = await world.client.start_workflow(
        "Task", raw_json(payload), id="task/default/bad", task_queue="anima", result_type=TaskStatus
    )

    status = await ended(handle)

    assert status.reason is Reason.TASK_INVALID
    assert all(word in status.message for word in words), status.message
    assert not await world.ledger.tasks()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON at line 1"),
        (b'{"spec": ', "not JSON at line 1"),
        (b'{"spec": "\xff"}', "not UTF-8 at byte 10"),
        (b'{"spec": {"prompt": "a", "prompt": "b"}}', "same field twice"),
        (b"[" * 100_000 + b"]" * 100_000, "nested deeper than 64 levels"),
        (b'{"spec": {"priority": ' + b"9" * 5000 + b"}}", "beyond 2^53-1"),
        (b'{"spec": {"priority": NaN}}', "not a finite number"),
    ],
)
async def test_an_input_that_is_no_plain_json_is_refused_for_what_it_is(world: World, data: bytes, words: str) -> None:
    payload = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))
    handle = await world.client.start_workflow(
        "Task", payload, id="task/default/bad", task_queue="anima", result_type=TaskStatus
    )

    status = await ended(handle)

    assert status.reason is Reason.TASK_INVALID
    assert words in status.message


@pytest.mark.parametrize("arguments", [[], [{"spec": task_spec()}, "and more"]])
async def test_no_input_and_two_inputs_are_refused(world: World, arguments: list[Any]) -> None:
    handle = await world.client.start_workflow("Task", args=arguments, id="task/default/bad", task_queue="anima")

    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()

    assert isinstance(failure.value.cause, ApplicationError)
    assert failure.value.cause.type == Reason.TASK_INVALID


@pytest.mark.parametrize("identifier", ["task/default/Upper", "task/default", "job/default/x", "task/a/b/c"])
async def test_a_workflow_id_that_names_no_task_is_refused(world: World, identifier: str) -> None:
    handle = await world.client.start_workflow(
        "Task", {"spec": task_spec()}, id=identifier, task_queue="anima", result_type=TaskStatus
    )

    assert (await ended(handle)).reason is Reason.TASK_INVALID


async def test_an_edit_of_an_open_task_counts_from_the_next_attempt(world: World) -> None:
    await world.agent(soul=None)
    handle = await world.start(retryPolicy=RETRIES)
    await until(world, handle, Phase.RUNNING)

    await handle.execute_update("edit", task_spec(prompt="Rather this.", retryPolicy=RETRIES))
    world.jobs.behave = lambda job: job.answer("This.")
    next(iter(world.jobs.jobs.values())).exit(1)

    assert (await ended(handle)).phase is Phase.SUCCEEDED
    second = await world.ledger.attempts((await shown(handle)).uid)
    assert (await world.ledger.input(second[1].key)).user_prompt == "Rather this."


async def test_an_edit_of_a_bound_task_is_refused_by_the_names_of_its_fields(world: World) -> None:
    await world.agent()
    handle = await world.start()
    await until(world, handle, Phase.RUNNING)

    with pytest.raises(WorkflowUpdateFailedError) as refusal:
        await handle.execute_update("edit", task_spec(prompt="Other.", timeout="1h"))

    assert isinstance(refusal.value.cause, ApplicationError)
    assert refusal.value.cause.type == Reason.FROZEN_INPUT_DRIFT
    assert "prompt, timeout" in str(refusal.value.cause)
    await handle.signal("cancel")
    await ended(handle)
