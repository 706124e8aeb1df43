"""The model inside Temporal's workflow sandbox, in a real worker."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from tests.model.samples import SPEC
from tests.model.sandboxed import SandboxedWorkflow


@pytest.fixture(scope="module")
async def environment() -> AsyncIterator[WorkflowEnvironment]:
    program = Path(sys.executable).with_name("temporal-test-server")
    async with await WorkflowEnvironment.start_time_skipping(
        data_converter=pydantic_data_converter, test_server_existing_path=str(program)
    ) as skipping:
        yield skipping


@pytest.mark.parametrize(
    ("payload", "answer"),
    [
        ({"spec": SPEC}, ["All of it.", "True"]),
        (
            {"spec": {"type": "ai", "prompt": "x", "timeout": "soon", "agentRef": {"name": "a", "nmae": "b"}}},
            [
                "TaskInvalid",
                "spec.agentRef.nmae: unknown field (did you mean name?)",
                'spec.timeout: must be a duration with units (write "90s", "12m" or "1h30m")',
            ],
        ),
    ],
)
async def test_every_module_of_the_model_loads_and_works_in_the_workflow_sandbox(
    environment: WorkflowEnvironment, payload: Any, answer: list[str]
):
    async with Worker(
        environment.client,
        task_queue="sandbox",
        workflows=[SandboxedWorkflow],
        workflow_runner=SandboxedWorkflowRunner(),
        max_cached_workflows=0,
    ):
        said = await environment.client.execute_workflow(
            SandboxedWorkflow.run, payload, id="sandboxed", task_queue="sandbox"
        )
    assert said == answer
