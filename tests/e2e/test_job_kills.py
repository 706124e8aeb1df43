"""kill -9 of a Job, of its supervisor, and of the process that Jobs are forked from."""

import asyncio
import os
import signal
from datetime import timedelta

import pytest

from anima.model.names import job_name
from anima.model.reasons import Reason
from anima.stores.processes.directory import JobDirectory
from tests.e2e.place import Gate, Place, until

pytestmark = [pytest.mark.verify, pytest.mark.timeout(300)]


@pytest.mark.parametrize("point", ["started", "input", "event"])
async def test_a_job_killed_at_work_is_tried_again(place: Place, point: str) -> None:
    await place.agent(f"dies-{point}", f"--die={point}")
    status = await place.succeeded(await place.submit(f"dies-{point}", f"job-{point}"), attempts=2)
    first, second = await place.ledger.attempts(status.uid)
    assert first.outcome is not None
    assert (first.outcome.reason, first.outcome.exit_code) == (Reason.JOB_FAILED, 137)
    assert second.outcome is not None
    assert second.outcome.succeeded


async def test_a_job_killed_with_its_report_under_way_is_decided_once(place: Place) -> None:
    await place.agent("dies-report", "--die=report")
    handle = await place.submit("dies-report", "job-report")
    # Either the report was taken, and counts, or the attempt has failed and another follows.
    ended = await place.end(handle)
    await place.succeeded(handle, attempts=ended.total_attempts)
    assert ended.total_attempts in (1, 2)


async def test_a_job_killed_after_its_report_was_stored_has_succeeded(place: Place) -> None:
    await place.agent("quick")
    place.arm("report", "after", "job")
    await place.succeeded(await place.submit("quick", "job-answered"))
    assert place.fired_at() is not None


async def test_a_job_whose_supervisor_is_killed_is_lost_and_tried_again(place: Place, gate: Gate) -> None:
    await place.agent("held", gate.option)
    handle = await place.submit("held", "supervisor")
    uid = (await place.started(handle, 1)).uid
    supervisor = JobDirectory(place.home.jobs / "default" / job_name("supervisor", uid, 0, 1)).holder()
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    # Nobody is left to tell of the end: the workflow's own slow look finds it.
    await place.started(handle, 2)
    gate.open()
    status = await place.succeeded(handle, attempts=2)
    first, _ = await place.ledger.attempts(status.uid)
    assert first.outcome is not None
    assert first.outcome.reason is Reason.JOB_LOST


async def test_a_job_outlives_the_orchestrator_and_is_adopted(place: Place, gate: Gate) -> None:
    await place.agent("held", gate.option)
    handle = await place.submit("held", "adopted")
    await place.started(handle, 1)
    await place.kill("orchestrator")
    gate.open()
    await place.succeeded(handle)


async def test_zygotes_that_are_killed_are_replaced(place: Place) -> None:
    await place.agent("quick")
    killed = place.zygotes()
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    await place.succeeded(await place.submit("quick", "zygote"))


async def test_the_built_in_worker_insists_on_its_report_while_the_gateway_is_away(place: Place) -> None:
    await place.apply("Agent", "rehearses", {"soul": {"inline": "# Patient\n"}, "providerRef": {"name": "rehearsal"}})
    gateway = place.children["gateway"]
    place.arm("report", "before", "gateway")
    handle = await place.submit("rehearses", "patient")
    await until(lambda: place.fired_at() is not None)
    # Not started again before the minute is over.
    await gateway.stop()
    await asyncio.sleep(timedelta(minutes=1).total_seconds())
    assert (await handle.status()).total_attempts == 1
    await gateway.start()
    status = await place.end(handle)
    assert (status.phase, status.total_attempts) == ("Succeeded", 1), status.message
    assert "This is a rehearsal" in await place.answer(handle)
