"""A world on a time-skipping server, for each test a new one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment

from tests.workflows.world import World, open_world, skipping_server


@pytest.fixture(scope="session")
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    async with skipping_server() as environment:
        yield environment


@pytest.fixture(params=[1000, 0], ids=["cached", "replayed"])
def cache(request: pytest.FixtureRequest) -> int:
    """Workflows that the worker keeps; with none, every step replays the history."""
    return request.param


@pytest.fixture
async def world(skipping: WorkflowEnvironment, tmp_path: Path, cache: int) -> AsyncIterator[World]:
    async with open_world(skipping, tmp_path, cache) as world:
        yield world
