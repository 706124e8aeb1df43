"""One stack for each module, as starting one takes seconds."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.place import Gate, Place, open_place


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with open_place(tmp_path_factory.mktemp("stack")) as place:
        yield place


@pytest.fixture
async def place(stack: Place) -> AsyncIterator[Place]:
    """The stack with every part at work; after the test nothing is left running on it."""
    await stack.ready()
    yield stack
    await stack.ready()
    await stack.quiet()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "go on")
