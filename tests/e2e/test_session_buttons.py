"""What a person can do with Temporal's own UI and command to a Session in which Tasks wait."""

import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from temporalio.api.enums.v1 import EventType

from anima.model.errors import Refusal
from anima.model.reasons import Reason
from anima.model.task import Phase
from tests.e2e.line import Line
from tests.e2e.orchestrator import INTERVAL
from tests.e2e.place import Gate, Place, open_place

pytestmark = [pytest.mark.verify, pytest.mark.timeout(300)]

WAITERS = ["second", "third", "fourth"]
BUTTONS = {
    "reset to the first": "reset --reason test --type FirstWorkflowTask",
    "reset to the last": "reset --reason test --type LastWorkflowTask",
    "terminate": "terminate --reason test",
    "delete": "delete",
}
NUMBERS = itertools.count()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with open_place(tmp_path_factory.mktemp("stack"), {INTERVAL: "1"}) as place:
        yield place


@pytest.fixture
async def line(place: Place, gate: Gate) -> AsyncIterator[Line]:
    """A Session of the test's own: `first` has it until the gate is opened, and others wait."""
    name = f"talk-{next(NUMBERS)}"
    await place.agent(name, gate.option)
    line = Line(place, name, name)
    await line.hold("first")
    for word in WAITERS:
        await line.join(word)
    yield line
    gate.open()


async def press(line: Line, button: str, workflow: str) -> None:
    # Delete asks whether one is sure.
    await line.place.shell(f"echo y | temporal workflow {button} --workflow-id {workflow}")


async def press_on(line: Line, button: str, word: str) -> None:
    await press(line, button, f"task/default/{line.session}-{word}")


async def press_on_session(line: Line, button: str) -> None:
    await press(line, button, f"session/default/{line.session}")


async def is_served(line: Line, word: str) -> None:
    """Wait until a Task has the Session and its Job runs."""
    await line.place.started(line.handles[word], 1)
    assert line.grants()[-1][0] == word


async def middle(line: Line, word: str) -> int:
    """Return the event in the middle of a Task's history that it can be reset to."""
    workflow = line.place.temporal.get_workflow_handle(f"task/default/{line.session}-{word}")
    done = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    points = [event.event_id for event in (await workflow.fetch_history()).events if event.event_type == done]
    assert len(points) > 1
    return points[len(points) // 2]


class TestResetOfTheHolder:
    async def test_to_its_first_step_it_has_the_session_by_the_same_token(
        self, place: Place, line: Line, gate: Gate
    ) -> None:
        await press_on(line, BUTTONS["reset to the first"], "first")
        await place.started(line.handles["first"], 1)
        assert line.grants() == [("first", 1)]
        gate.open()
        await line.served()

    async def test_to_the_middle_it_has_the_session_by_the_same_token(
        self, place: Place, line: Line, gate: Gate
    ) -> None:
        # One that has waited: its history goes from the queue over the lock to the Job.
        await line.handles["first"].cancel()
        await is_served(line, "second")
        await press_on(line, f"reset --reason test --event-id {await middle(line, 'second')}", "second")
        await place.started(line.handles["second"], 1)
        assert line.grants() == [("first", 1), ("second", 2)]
        gate.open()
        await line.served("first")

    async def test_one_that_has_been_served_leaves_the_session_to_the_others(
        self, place: Place, line: Line, gate: Gate
    ) -> None:
        gate.open()
        before = await place.end(line.handles["first"])
        await press_on(line, BUTTONS["reset to the first"], "first")
        assert await place.end(line.handles["first"]) == before
        await line.served()


class TestTerminateOfTheHolder:
    async def test_the_next_is_served_and_the_record_says_so(self, place: Place, line: Line, gate: Gate) -> None:
        await press_on(line, BUTTONS["terminate"], "first")
        await is_served(line, "second")
        record = await place.recorded(line.handles["first"], Phase.FAILED)
        assert record.reason is Reason.TERMINATED
        gate.open()
        await line.served("first")

    async def test_deleted_it_is_missed_too(self, place: Place, line: Line, gate: Gate) -> None:
        await press_on(line, BUTTONS["delete"], "first")
        await is_served(line, "second")
        assert (await place.recorded(line.handles["first"], Phase.FAILED)).reason is Reason.TERMINATED
        gate.open()
        await line.served("first")

    async def test_a_task_of_its_name_gets_its_end_and_the_next_is_served(
        self, place: Place, line: Line, gate: Gate
    ) -> None:
        await press_on(line, BUTTONS["terminate"], "first")
        name = f"{line.session}-first"
        again = await place.submit(line.agent, name, **line.spec(name))
        assert (await place.end(again)).reason is Reason.TERMINATED
        await is_served(line, "second")
        with pytest.raises(Refusal) as refusal:
            await place.submit(line.agent, name, **(line.spec(name) | {"prompt": "Another?"}))
        assert refusal.value.reason is Reason.TASK_CONFLICT
        gate.open()
        await line.served("first")


class TestTerminateOfAWaiter:
    async def test_the_others_are_served_in_order(self, place: Place, line: Line, gate: Gate) -> None:
        await press_on(line, BUTTONS["terminate"], "third")
        gate.open()
        await line.served("third")
        assert (await place.recorded(line.handles["third"], Phase.FAILED)).reason is Reason.TERMINATED


@pytest.mark.parametrize("button", BUTTONS.values(), ids=BUTTONS)
class TestTheSessionsOwnWorkflow:
    async def test_nobody_waits_for_ever(self, line: Line, gate: Gate, button: str) -> None:
        await press_on_session(line, button)
        await line.join("fifth")
        gate.open()
        await line.served()

    async def test_nor_if_the_holder_is_terminated_too(self, line: Line, gate: Gate, button: str) -> None:
        await press_on(line, BUTTONS["terminate"], "first")
        await press_on_session(line, button)
        await is_served(line, "second")
        gate.open()
        await line.served("first")
