"""What a person can do to a Task with Temporal's own UI and command."""

import json
import re

import pytest
from temporalio.client import WorkflowFailureError

from anima.handle import TaskHandle
from anima.model.names import job_name
from anima.model.reasons import Reason
from anima.model.task import Phase
from anima.stores.processes.directory import JobDirectory
from tests.e2e.place import ROOT, Gate, Place, until

pytestmark = [pytest.mark.verify, pytest.mark.timeout(300)]

# What the button Reset in the UI does, on the first point that it offers.
RESET = "temporal workflow reset --workflow-id task/default/{} --type FirstWorkflowTask --reason test"


async def running(place: Place, name: str, gate: Gate) -> TaskHandle:
    """Start a Task, bound and with a Job that waits."""
    await place.agent(name, gate.option)
    handle = await place.submit(name, name)
    await place.started(handle, 1)
    return handle


def job_of(place: Place, name: str, uid: str) -> JobDirectory:
    return JobDirectory(place.home.jobs / "default" / job_name(name, uid, 0, 1))


class TestReset:
    async def test_a_bound_task_whose_agent_was_edited_does_not_bind_again(self, place: Place, gate: Gate) -> None:
        handle = await running(place, "edited", gate)
        before = await handle.status()
        await place.agent("edited", gate.option, soul={"inline": "# Another\n"})

        await place.shell(RESET.format("edited"))

        status = await place.end(handle)
        assert (status.phase, status.reason) == (Phase.FAILED, Reason.SOUL_DRIFT)
        assert status.uid == before.uid
        assert await place.binding(status.uid) == before.soul_binding
        assert status.soul_binding == before.soul_binding
        assert (status.attempt, status.total_attempts) == (1, 1)
        assert place.jobs_of(status.uid) == [f"{status.uid}/0/1"]
        job = job_of(place, "edited", status.uid)
        assert job.deleted() == f"{status.uid}/0/1"
        assert job.holder() is None

    async def test_a_running_task_adopts_its_running_job(self, place: Place, gate: Gate) -> None:
        handle = await running(place, "adopts", gate)
        await place.shell(RESET.format("adopts"))
        await place.started(handle, 1)
        gate.open()
        await place.succeeded(handle)

    async def test_a_closed_task_returns_its_stored_end(self, place: Place) -> None:
        await place.agent("closed")
        handle = await place.submit("closed", "closed")
        before = await place.succeeded(handle)
        await place.agent("closed", soul={"inline": "# Another\n"})
        await place.shell(RESET.format("closed"))
        assert await place.succeeded(handle) == before


class TestTerminate:
    async def test_the_job_is_ended_and_the_record_says_so(self, place: Place, gate: Gate) -> None:
        handle = await running(place, "terminated", gate)
        status = await handle.status()
        await place.shell("temporal workflow terminate --workflow-id task/default/terminated --reason test")
        job = job_of(place, "terminated", status.uid)
        await until(lambda: job.holder() is None and job.deleted() is not None, seconds=60)
        record = await place.recorded(handle, Phase.FAILED)
        assert record.reason is Reason.TERMINATED
        assert (record.attempt, record.total_attempts) == (1, 1)
        assert record.soul_binding == status.soul_binding

    async def test_a_result_that_was_accepted_before_is_kept(self, place: Place, gate: Gate) -> None:
        handle = await running(place, "answered", gate)
        uid = (await handle.status()).uid
        # The report is stored, and nobody is there to make it the Task's end.
        await place.children["orchestrator"].stop()
        gate.open()
        job = job_of(place, "answered", uid)
        await until(lambda: job.holder() is None)
        await place.shell("temporal workflow terminate --workflow-id task/default/answered --reason test")
        await place.children["orchestrator"].start()
        record = await place.recorded(handle, Phase.SUCCEEDED)
        assert record.result_ref is not None
        assert (await place.answer(handle)).startswith(f"{uid}/0/1 was asked: ")


class TestCancel:
    async def test_it_ends_the_task_as_the_signal_does(self, place: Place, gate: Gate) -> None:
        handle = await running(place, "cancelled", gate)
        await place.shell("temporal workflow cancel --workflow-id task/default/cancelled")
        status = await place.end(handle)
        assert (status.phase, status.reason) == (Phase.CANCELLED, Reason.CANCELLED)
        assert (await place.gateway.task("default", "cancelled")).phase is Phase.CANCELLED
        assert job_of(place, "cancelled", status.uid).holder() is None
        with pytest.raises(WorkflowFailureError):
            await place.temporal.get_workflow_handle(handle.workflow_id).result()


class TestReadme:
    async def test_its_signals_and_queries_work_as_written(self, place: Place, gate: Gate) -> None:
        commands = readme_commands()
        await place.agent("reviewer", gate.option)
        name = commands["suspend"].split("task/default/")[1].split()[0]
        handle = await place.submit("reviewer", name)
        await place.started(handle, 1)

        await place.shell(commands["suspend"])
        assert '"operator"' in await place.shell(commands["status"])
        await place.shell(commands["resume"])
        printed = await place.shell(commands["status"])
        assert '"operator"' not in printed
        assert json.loads(re.sub(r"(?s)^[^{]*|[^}]*$", "", printed))["phase"] == "Running"
        await place.shell(commands["cancel"])

        status = await place.end(handle)
        assert (status.phase, status.reason) == (Phase.CANCELLED, Reason.CANCELLED)

    async def test_its_start_with_json_runs_a_task(self, place: Place) -> None:
        await place.agent("reviewer")
        await place.shell(readme_commands()["start"])
        await place.succeeded(place.client.handle("default", "second"))


def readme_commands() -> dict[str, str]:
    """Return the commands of `temporal` in the README, by signal, query, or as ``start``."""
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    temporal workflow ")]
    return {("start" if " start " in line else line.split()[-1]): line for line in lines}
