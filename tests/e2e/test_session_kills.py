"""kill -9 at each step of a Session in which twenty Tasks wait: order, turns, pin and tokens are right."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import pytest
import pytest_asyncio

from anima.model.wire import Step
from tests.e2e.line import Line
from tests.e2e.orchestrator import INTERVAL
from tests.e2e.place import Gate, Place, open_place, until

pytestmark = [pytest.mark.verify, pytest.mark.timeout(400)]

TASKS = 20
PARTS = ["orchestrator", "gateway", "temporal"]
# Before a step acts, and after it acted but before that is on record.
MOMENTS: list[Literal["before", "after"]] = ["before", "after"]
MOVING = [Step.PIN, Step.APPEND, Step.LEAVE, Step.GRANT]
ROUTES = ["input", "events", "report"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with open_place(tmp_path_factory.mktemp("stack"), {INTERVAL: "1"}) as place:
        yield place


@pytest.fixture
async def line(place: Place, gate: Gate, request: pytest.FixtureRequest) -> Line:
    """A Session of the test's own, held by its first Task until the gate is opened."""
    name = request.node.callspec.params["victim"]
    await place.agent(name, gate.option)
    line = Line(place, f"talk-{name}", name)
    await line.hold("0")
    return line


async def fill(line: Line) -> None:
    """Let the rest of the Tasks come, all at once."""
    rest = range(len(line.handles), TASKS)
    await asyncio.gather(*(line.join(str(number)) for number in rest))


async def killed(place: Place, point: str, when: Literal["before", "after"], victim: str) -> None:
    """Wait until a point is reached and the victim is dead, and everything is up again."""
    place.arm(point, when, victim)
    await until(lambda: place.fired_at() is not None, 90)
    await place.ready()


@pytest.mark.parametrize("victim", PARTS)
async def test_a_part_killed_at_each_step_of_a_session_loses_nothing(
    place: Place, line: Line, gate: Gate, victim: str
) -> None:
    for when in MOMENTS:
        async with asyncio.TaskGroup() as both:
            both.create_task(killed(place, Step.ACQUIRE, when, victim))
            both.create_task(line.join(f"acquire-{when}"))
    await fill(line)
    for when in MOMENTS:
        await killed(place, Step.LOOK, when, victim)
    gate.open()
    for step in MOVING:
        for when in MOMENTS:
            await killed(place, step, when, victim)
    assert len(await line.served()) == TASKS


@pytest.mark.parametrize("victim", ["job", "supervisor"])
async def test_a_job_killed_at_each_step_of_its_own_loses_nothing(
    place: Place, line: Line, gate: Gate, victim: str
) -> None:
    await fill(line)
    gate.open()
    for route in ROUTES:
        for when in MOMENTS:
            await killed(place, route, when, victim)
    assert len(await line.served()) == TASKS
