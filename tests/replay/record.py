"""Record the history of every scenario that has none yet.

``python -m tests.replay.record VERSION`` adds ``histories/<scenario>.<version>.json``.
What is there is never written again: it stands for Tasks that are under way.
"""

import asyncio
import re
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from temporalio.client import WorkflowFailureError

from tests.replay.scenarios import SCENARIOS
from tests.workflows.world import open_world, skipping_server

HISTORIES = Path(__file__).with_name("histories")


async def main(version: str) -> None:
    """Run the scenarios of a version that are not on record."""
    async with skipping_server() as server:
        for scenario in SCENARIOS:
            path = HISTORIES / f"{scenario.__name__}.{version}.json"
            if path.exists():
                continue
            with tempfile.TemporaryDirectory() as directory:
                async with open_world(server, Path(directory)) as world:
                    await world.agent()
                    handle = await scenario(world)
                    with suppress(WorkflowFailureError):
                        await handle.result()
                    path.write_text(_anonymous((await handle.fetch_history()).to_json()))


def _anonymous(history: str) -> str:
    """Leave out where it was recorded: paths in stack traces, host and process."""
    relative = history.replace(f"{Path(__file__).parents[2]}/", "")
    return re.sub(r'"(identity|binaryChecksum)": "[^"]*"', r'"\1": "recorder"', relative)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
