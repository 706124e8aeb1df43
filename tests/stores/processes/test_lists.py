"""Which Jobs there are, and which have ended."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from datetime import timedelta

import pytest

from anima.home import Home
from anima.model.errors import Conflict
from anima.model.jobs import JobPhase
from anima.stores.processes.supervisor import SOCKET
from tests.stores.processes.bench import (
    Bench,
    Fifo,
    gone,
    local_jobs,
)


async def test_jobs_that_ended_without_an_orchestrator_are_told_first(home: Home, fifo: Callable[[str], Fifo]) -> None:
    go = fifo("go")
    async with local_jobs(home) as jobs:
        await Bench(jobs, home).start("", "early")
        await Bench(jobs, home).start(go.wait, "late")
        await Bench(jobs, home).end("early")
        supervisor = Bench(jobs, home).supervisor("late")
    go.send()
    await gone(supervisor)
    async with local_jobs(home) as jobs:
        ended = jobs.ended()
        assert {(await anext(ended)).name for _ in range(2)} == {"early", "late"}


async def test_no_end_is_made_up(bench: Bench, fifo: Callable[[str], Fifo], caplog: pytest.LogCaptureFixture) -> None:
    go = fifo("go")
    await bench.start(go.wait)
    ended = bench.jobs.ended()
    told = asyncio.ensure_future(anext(ended))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as anybody, contextlib.chdir(bench.home.run):
        for message in (b"team/job", b"team/nobody", b"../../etc", b"", b"\xff/\0", b"x" * 5000):
            anybody.sendto(message, SOCKET)
    await bench.start("", "other")
    assert (await told).name == "other"
    go.send()
    assert (await anext(ended)).name == "job"
    assert caplog.records == []


async def test_records_tell_every_job_that_exists(bench: Bench) -> None:
    specs = [
        await bench.start("", "a", timeout=timedelta(minutes=1), memory_limit=2**30),
        await bench.start("", "b", command=["true"]),
    ]
    records = await bench.jobs.records()
    assert [record.spec for record in records] == specs
    assert [record.uid for record in records] == [(await bench.observe(spec.name)).uid for spec in specs]


async def test_a_pruned_job_leaves_nothing_and_a_running_one_is_not_pruned(
    bench: Bench, fifo: Callable[[str], Fifo]
) -> None:
    go = fifo("go")
    await bench.start(go.wait)
    with pytest.raises(Conflict, match="team/job still runs"):
        await bench.jobs.prune("team", "job")
    supervisor = bench.supervisor()
    go.send()
    await gone(supervisor)
    for _ in range(2):
        await bench.jobs.prune("team", "job")
    assert (await bench.observe()).phase is JobPhase.ABSENT
    assert list((bench.home.jobs / "team").iterdir()) == []
