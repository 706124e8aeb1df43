"""Today's workflow code goes on with the Tasks that earlier code began."""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.replay.record import HISTORIES
from tests.replay.scenarios import SCENARIOS, workflow_of
from workers.orchestrator.process import WORKFLOWS
from workflows.inputs import OneInput

RECORDED = sorted(HISTORIES.glob("*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=[path.stem for path in RECORDED])
async def test_a_recorded_history_replays(path: Path) -> None:
    history = WorkflowHistory.from_json(workflow_of(path.name), path.read_text())  # noqa: ASYNC240 (a small file)
    replayer = Replayer(workflows=WORKFLOWS, interceptors=[OneInput()], data_converter=pydantic_data_converter)

    await replayer.replay_workflow(history)


def test_every_scenario_is_on_record() -> None:
    assert {scenario.__name__ for scenario in SCENARIOS} <= {path.name.split(".")[0] for path in RECORDED}


@pytest.mark.parametrize("path", RECORDED, ids=[path.stem for path in RECORDED])
def test_no_recorded_history_holds_a_persona(path: Path) -> None:
    assert "PERSONA-MARKER" not in path.read_text()
