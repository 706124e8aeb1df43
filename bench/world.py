"""A stack of its own for the figures, with Agents that answer at once or never."""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter

from anima.gateway import Gateway
from anima.home import Home
from anima.keys import load
from anima.model.manifest import parse_resource
from anima.model.names import workflow_id
from anima.model.task import TaskStatus
from anima.model.wire import TASK_QUEUE, TASK_WORKFLOW
from anima.stack import Ports, Stack
from anima.stores.sql import SqlLedger, open_engine, sqlite_url
from tests.doubles.model_server import ModelServer

NAMESPACE = "default"
SOUL = "# Bench\nBe brief.\n"


@dataclass
class World:
    """The parts that a measurement needs."""

    home: Home
    client: Client
    ledger: SqlLedger
    model: ModelServer
    numbers: Any

    async def submit(self, agent: str) -> WorkflowHandle[Any, TaskStatus]:
        """Start a Task of an Agent."""
        spec = {"type": "ai", "agentRef": {"name": agent}, "prompt": f"Say hello, {next(self.numbers)}."}
        return await self.client.start_workflow(
            TASK_WORKFLOW,
            {"spec": spec},
            id=workflow_id(NAMESPACE, f"bench-{next(self.numbers)}"),
            task_queue=TASK_QUEUE,
            result_type=TaskStatus,
        )

    async def job_seconds(self, handle: WorkflowHandle[Any, TaskStatus]) -> float:
        """Return the time from the start of a Job's process to the decided outcome."""
        record = await self.ledger.task_named(NAMESPACE, handle.id.rsplit("/", 1)[1])
        (attempt,) = await self.ledger.attempts(record.uid)
        claim = json.loads((self.home.jobs / NAMESPACE / attempt.job_name / "claim.json").read_text())
        assert attempt.outcome
        assert attempt.outcome.decided_at
        return (attempt.outcome.decided_at - datetime.fromisoformat(claim["started_at"])).total_seconds()


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """Start the stack in a temporary home, the yardstick's worker and a model double."""
    with tempfile.TemporaryDirectory(prefix="anima-bench-") as directory, ModelServer() as model:
        home = Home(Path(directory))
        async with Stack(home, Ports(0, 0, 0, 0), _say) as addresses:
            bare = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.bare", addresses.temporal)
            try:
                await _apply(addresses.gateway, load(home.user_token), model.address)
                engine = open_engine(sqlite_url(home.database))
                client = await Client.connect(addresses.temporal, data_converter=pydantic_data_converter)
                await _warm(home)
                yield World(home, client, SqlLedger(engine, partial(datetime.now, UTC)), model, count())
                await engine.dispose()
            finally:
                bare.terminate()
                await bare.wait()


async def _apply(gateway: str, token: str, model: str) -> None:
    async with Gateway(gateway, token) as api:
        for kind, name, spec in (
            ("Provider", "rehearsal", {"type": "rehearsal"}),
            ("Provider", "double", {"type": "openai-compatible", "baseURL": f"{model}/v1"}),
            ("Agent", "quick", {"providerRef": {"name": "rehearsal"}, "soul": {"inline": SOUL}}),
            ("Agent", "asks", _asking("double-1")),
            ("Agent", "hangs", _asking("hang")),
        ):
            metadata = {"name": name, "namespace": NAMESPACE}
            manifest = {"apiVersion": "anima.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
            await api.apply(parse_resource(manifest))


def _asking(model: str) -> dict[str, Any]:
    return {"providerRef": {"name": "double"}, "model": {"name": model}, "soul": {"inline": SOUL}}


async def _warm(home: Home) -> None:
    # The worker's imports are paid once a start of the stack, not once a Task.
    deadline = time.monotonic() + 60
    while "preloaded" not in (home.logs / "orchestrator.log").read_text() and time.monotonic() < deadline:
        await asyncio.sleep(0.2)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
