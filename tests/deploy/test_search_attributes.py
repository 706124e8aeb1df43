"""What an operator registers is what the workflows set."""

import asyncio
import os
import sys
from pathlib import Path

from temporalio.testing import WorkflowEnvironment

from workers.orchestrator.attributes import check_attributes

SCRIPT = Path(__file__).parents[2] / "deploy" / "search-attributes.sh"


async def test_the_script_registers_all_that_the_orchestrator_asks_for_and_may_run_twice() -> None:
    programs = Path(sys.executable).parent
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=str(programs / "temporal")) as server:
        address = server.client.service_client.config.target_host
        environ = os.environ | {"TEMPORAL_ADDRESS": address, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        for _ in range(2):
            script = await asyncio.create_subprocess_exec(SCRIPT, env=environ)
            assert await script.wait() == 0

        await check_attributes(server.client)
