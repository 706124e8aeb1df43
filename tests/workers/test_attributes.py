"""The orchestrator does not poll a server that would fail its workflows."""

import sys
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment

from anima.model.errors import Unavailable
from workers.orchestrator.attributes import check_attributes


async def test_missing_search_attributes_are_refused_with_the_command_that_makes_them() -> None:
    program = str(Path(sys.executable).with_name("temporal"))
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=program) as server:
        with pytest.raises(Unavailable, match="--name AnimaAttempt --type Int"):
            await check_attributes(server.client)
