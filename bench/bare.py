"""The yardstick: a workflow with one activity that does nothing, in a worker of its own.

``python -m bench.bare ADDRESS`` serves it until it is told to end.
"""

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

TASK_QUEUE = "bench-bare"


@activity.defn
async def nothing() -> None:
    """Do nothing."""


@workflow.defn
class Bare:
    """Run one activity."""

    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(nothing, start_to_close_timeout=timedelta(seconds=30))


async def serve(address: str) -> None:
    """Serve the yardstick at a Temporal server."""
    client = await Client.connect(address)
    async with Worker(client, task_queue=TASK_QUEUE, workflows=[Bare], activities=[nothing]):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
