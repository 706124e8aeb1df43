"""The SDK against a real Temporal server and a small stand-in for the Task workflow."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from anima.client import SPEC_DIGEST_MEMO, AnimaClient, ListedTask
from anima.handle import TaskHandle
from anima.model.base import MAX_INT
from anima.model.errors import NotFound, Refusal, Unavailable
from anima.model.inputs import spec_digest
from anima.model.manifest import parse_task
from anima.model.reasons import Reason
from anima.model.task import Phase, TaskStatus
from anima.model.wire import TASK_QUEUE, TASK_WORKFLOW
from tests.doubles.task_workflow import StandIn

SOON = timedelta(seconds=30)


@pytest_asyncio.fixture
async def client(temporal: WorkflowEnvironment) -> AsyncIterator[AnimaClient]:
    async with Worker(temporal.client, task_queue=TASK_QUEUE, workflows=[StandIn]):
        yield AnimaClient(temporal.client)


@pytest.fixture
def name() -> str:
    return f"t-{uuid4().hex[:12]}"


def manifest(name: str, prompt: str = "go", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"type": "ai", "agentRef": {"name": "heron"}, "prompt": prompt, **spec},
    }


class Recorded:
    """A gateway that has one Task on record."""

    def __init__(self, status: TaskStatus) -> None:
        self._status = status

    async def task(self, namespace: str, name: str) -> TaskStatus:
        assert (namespace, name) == (self._status.namespace, self._status.name)
        return self._status


async def visible(client: AnimaClient, namespace: str, phase: Phase) -> list[ListedTask]:
    """Ask until visibility, which is a moment late, lists something."""
    async with asyncio.timeout(30):
        while not (listed := await client.list(namespace, phase)):  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.05)
    return listed


async def test_a_submitted_task_ends_with_its_status(client: AnimaClient, name: str):
    handle = await client.submit(manifest(name))
    status = await handle.wait(SOON)
    assert (status.namespace, status.name, status.phase) == ("default", name, Phase.SUCCEEDED)
    assert (await handle.status()).phase is Phase.SUCCEEDED


async def test_a_failed_task_is_a_status_and_not_an_error(client: AnimaClient, name: str):
    handle = await client.submit(manifest(name, "fail"), wait=True)
    status = await handle.wait(SOON)
    assert (status.phase, status.reason, status.message) == (Phase.FAILED, Reason.JOB_FAILED, "exit code 3")


async def test_the_result_of_a_failed_task_is_refused_with_its_reason(client: AnimaClient, name: str):
    handle = await client.submit(manifest(name, "fail"))
    with pytest.raises(Refusal, match="exit code 3") as caught:
        await handle.result(SOON)
    assert caught.value.reason is Reason.JOB_FAILED


async def test_signals_carry_an_optional_hint(client: AnimaClient, name: str):
    handle = await client.submit(manifest(name, "hold"))
    await handle.suspend(by="ada", reason="lunch")
    await handle.resume()
    await handle.cancel(reason="done")
    status = await handle.wait(SOON)
    expected = [("suspend", {"by": "ada", "reason": "lunch"}), ("resume", None), ("cancel", {"reason": "done"})]
    assert status.message == str(expected)


async def test_waiting_may_end_before_the_task_does(client: AnimaClient, name: str):
    handle = await client.submit(manifest(name, "hold"))
    with pytest.raises(TimeoutError):
        await handle.wait(timedelta(milliseconds=50))
    assert (await handle.status()).phase is Phase.RUNNING
    await handle.cancel()
    await handle.wait(SOON)


async def test_the_same_content_joins_and_other_content_is_a_conflict(client: AnimaClient, name: str):
    handle = await client.submit(manifest(name, "hold"))
    await client.submit(manifest(name, "hold", retryPolicy={"maxRetries": 0}))
    with pytest.raises(Refusal, match=name) as caught:
        await client.submit(manifest(name, "other"))
    assert caught.value.reason is Reason.TASK_CONFLICT
    await handle.cancel()
    await handle.wait(SOON)


async def test_content_is_compared_with_a_task_that_another_sdk_started(
    client: AnimaClient, temporal: WorkflowEnvironment, name: str
):
    body = {"spec": manifest(name, "hold")["spec"], "metadata": {"namespace": "default"}}
    await temporal.client.start_workflow(TASK_WORKFLOW, body, id=f"task/default/{name}", task_queue=TASK_QUEUE)
    handle = await client.submit(manifest(name, "hold"))
    with pytest.raises(Refusal, match="other content"):
        await client.submit(manifest(name, "other"))
    await handle.cancel()
    await handle.wait(SOON)


async def test_a_closed_task_runs_again_under_the_same_id(client: AnimaClient, name: str):
    await client.submit(manifest(name), wait=True)
    handle = await client.submit(manifest(name), wait=True)
    assert (await handle.wait(SOON)).phase is Phase.SUCCEEDED


async def test_the_submission_is_readable_in_temporal(client: AnimaClient, temporal: WorkflowEnvironment, name: str):
    handle = await client.submit(manifest(name, priority=2), wait=True)
    description = await temporal.client.get_workflow_handle(handle.workflow_id).describe()
    spec = parse_task(manifest(name, priority=2), "default", name).spec
    assert await description.memo_value(SPEC_DIGEST_MEMO) == spec_digest(spec)
    assert await description.static_summary() == f"Task default/{name} for Agent heron"
    assert description.raw_info.priority.priority_key == 2
    assert (await client.submitted("default", name)).spec == spec


@pytest.mark.parametrize(
    ("task", "path"),
    [
        ({"metadata": {"name": "x"}}, "spec"),
        ({"metadata": {"name": "X"}, "spec": {}}, "metadata.name"),
        (manifest("x", "y" * 300_000), ""),
        (manifest("x", maxRetries=MAX_INT + 1), "spec.maxRetries"),
    ],
)
async def test_a_task_that_is_not_valid_is_refused_unsent(client: AnimaClient, task: dict[str, Any], path: str):
    with pytest.raises(Refusal) as caught:
        await client.submit(task)
    assert caught.value.reason is Reason.TASK_INVALID
    assert path in [problem.path for problem in caught.value.problems]


async def test_another_kind_cannot_be_submitted(client: AnimaClient):
    with pytest.raises(Refusal, match="Agent cannot be submitted"):
        await client.submit({"kind": "Agent", "metadata": {"name": "x"}, "spec": {}})


async def test_an_edit_is_admitted_or_refused_by_reason(client: AnimaClient, name: str):
    handle = await client.submit(manifest(name, "hold"))
    spec = manifest(name, "better")["spec"]
    assert (await handle.edit(spec)).phase is Phase.RUNNING
    with pytest.raises(Refusal, match="frozen") as caught:
        await handle.edit({**spec, "prompt": "frozen"})
    assert caught.value.reason is Reason.FROZEN_INPUT_DRIFT
    await handle.cancel()
    await handle.wait(SOON)


async def test_a_terminated_task_is_failed_for_that_reason(
    client: AnimaClient, temporal: WorkflowEnvironment, name: str
):
    handle = await client.submit(manifest(name, "hold"))
    await temporal.client.get_workflow_handle(handle.workflow_id).terminate()
    # A query of a terminated workflow answers as if it ran.
    for status in (await handle.wait(SOON), await handle.status()):
        assert (status.phase, status.reason) == (Phase.FAILED, Reason.TERMINATED)


async def test_a_task_cancelled_by_temporal_is_cancelled(client: AnimaClient, temporal: WorkflowEnvironment, name: str):
    handle = await client.submit(manifest(name, "hold"))
    await temporal.client.get_workflow_handle(handle.workflow_id).cancel()
    assert (await handle.wait(SOON)).phase is Phase.CANCELLED


async def test_tasks_are_listed_by_namespace_and_phase(client: AnimaClient, temporal: WorkflowEnvironment, name: str):
    namespace = f"n-{uuid4().hex[:8]}"
    task = manifest(name, "hold")
    task["metadata"]["namespace"] = namespace
    handle = await client.submit(task)
    listed = await visible(client, namespace, Phase.RUNNING)
    assert [(item.name, item.phase) for item in listed] == [(name, Phase.RUNNING)]
    assert await client.list(namespace, Phase.FAILED) == []
    await temporal.client.get_workflow_handle(handle.workflow_id).terminate()
    listed = await visible(client, namespace, Phase.FAILED)
    assert listed[0].reason is Reason.TERMINATED


async def test_a_run_that_was_refused_the_name_does_not_hide_the_task_that_has_it(
    client: AnimaClient, temporal: WorkflowEnvironment, name: str
):
    namespace = f"n-{uuid4().hex[:8]}"
    task, other = manifest(name), manifest(name, "conflict")
    task["metadata"]["namespace"] = other["metadata"]["namespace"] = namespace
    await client.submit(task, wait=True)
    await visible(client, namespace, Phase.RUNNING)
    recorded = TaskStatus(namespace=namespace, name=name, uid="u", phase=Phase.SUCCEEDED)
    handle = TaskHandle(temporal.client, Recorded(recorded), namespace, name)  # type: ignore[arg-type]

    await client.submit(other, wait=True)
    async with asyncio.timeout(30):
        while len([e async for e in temporal.client.list_workflows(f'AnimaNamespace = "{namespace}"')]) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    assert [(item.name, item.reason) for item in await client.list(namespace)] == [(name, None)]
    assert (await handle.wait(SOON)).reason is Reason.TASK_CONFLICT
    assert (await handle.status()).phase is Phase.SUCCEEDED


async def test_an_unknown_task_is_not_found(client: AnimaClient, name: str):
    handle = client.handle("default", name)
    for ask in (handle.status, handle.wait, handle.cancel, handle.binding):
        with pytest.raises(NotFound, match=name):
            await ask()


async def test_a_namespace_that_is_no_label_is_refused(client: AnimaClient):
    with pytest.raises(Refusal, match="namespace"):
        await client.list('x" OR WorkflowType != "')


async def test_a_server_that_does_not_answer_is_named_with_the_remedy():
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 does not answer; is `anima dev` running\?"):
        await AnimaClient.connect("127.0.0.1:1")


async def test_connect_follows_the_environment_of_temporal(
    temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, name: str
):
    address = temporal.client.service_client.config.target_host
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    client = await AnimaClient.connect()
    with pytest.raises(NotFound, match=address):
        await client.handle("default", name).cancel()
