"""kill -9 of each part at each step of an attempt: the Task reaches its right end."""

from typing import Literal

import pytest

from anima.model.wire import Step
from tests.e2e.place import Place

pytestmark = [pytest.mark.verify, pytest.mark.timeout(300)]

PASSED = [Step.ADMIT, Step.BIND, Step.CREATE, Step.SETTLE, Step.CLOSE]
PARTS = ["orchestrator", "gateway", "temporal"]
# Before each step of a success, and after it acted but before that is on record.
MOMENTS = ["before", "after"]


@pytest.fixture(autouse=True, scope="module")
async def agents(stack: Place) -> None:
    await stack.agent("quick")
    await stack.agent("fails-once", "--fail=1")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("when", MOMENTS)
@pytest.mark.parametrize("step", PASSED)
async def test_a_part_killed_at_a_step_loses_nothing(
    place: Place, step: Step, when: Literal["before", "after"], part: str
) -> None:
    place.arm(step, when, part)
    handle = await place.submit("quick", f"{step.replace('.', '-')}-{when}-{part}")
    status = await place.succeeded(handle)
    killed_at = place.fired_at()
    assert killed_at is not None
    assert status.soul_binding is not None
    assert status.soul_binding.bound_at < killed_at or step in (Step.ADMIT, Step.BIND)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("when", MOMENTS)
async def test_a_part_killed_while_a_failed_job_is_removed_loses_nothing(
    place: Place, when: Literal["before", "after"], part: str
) -> None:
    place.arm(Step.DELETE, when, part)
    handle = await place.submit("fails-once", f"job-delete-{when}-{part}")
    await place.succeeded(handle, attempts=2)
    assert place.fired_at() is not None


@pytest.mark.parametrize("when", MOMENTS)
async def test_a_gateway_killed_around_the_commit_of_a_report_loses_no_result(
    place: Place, when: Literal["before", "after"]
) -> None:
    place.arm("report", when, "gateway")
    await place.succeeded(await place.submit("quick", f"report-{when}"))
    assert place.fired_at() is not None
