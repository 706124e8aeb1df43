"""Jobs of one home, started in each of the ways there are."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from anima.home import Home
from tests.stores.processes.bench import Bench, Fifo, Witness, local_jobs


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "a home")


@pytest.fixture
async def bench(home: Home) -> AsyncIterator[Bench]:
    """Jobs that are forked from the preloaded worker."""
    async with local_jobs(home) as jobs:
        assert await jobs.preloaded()
        yield Bench(jobs, home)


@pytest.fixture(params=["forked", "fresh", "command"])
async def anyhow(request: pytest.FixtureRequest, home: Home) -> AsyncIterator[Bench]:
    """Jobs that are forked, run the worker in a new interpreter, or are commands."""
    async with local_jobs(home, fork=request.param == "forked") as jobs:
        await jobs.preloaded()
        yield Bench(jobs, home, request.param)


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Callable[[str], Fifo]]:
    made = []

    def make(name: str) -> Fifo:
        made.append(Fifo(tmp_path / name))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "witness")


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Run without root's right to write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
