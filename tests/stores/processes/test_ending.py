"""How a Job ends: timeout, retirement, deletion."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from anima.home import Home
from anima.model.errors import Refusal
from anima.model.jobs import JobPhase
from anima.model.reasons import Reason
from tests.stores.processes.bench import (
    FAMILY,
    IGNORE_TERM,
    KEY,
    WAIT,
    Bench,
    Fifo,
    Witness,
    is_gone,
    local_jobs,
    zygotes,
)


async def test_a_job_that_runs_too_long_is_ended(anyhow: Bench) -> None:
    await anyhow.start(WAIT, timeout=timedelta(seconds=0.3))
    ended = await anyhow.end()
    assert (ended.phase, ended.exit_code, ended.timed_out) == (JobPhase.ENDED, 143, True)
    assert ended.message == "ran longer than its timeout of 0.3 s"


async def test_a_job_that_ignores_the_polite_signal_is_killed_after_its_grace(bench: Bench) -> None:
    await bench.start(IGNORE_TERM + WAIT, timeout=timedelta(seconds=0.1), grace=timedelta(seconds=0.1))
    ended = await bench.end()
    assert (ended.exit_code, ended.timed_out) == (137, True)


async def test_a_retired_job_may_end_by_itself(bench: Bench, fifo: Callable[[str], Fifo]) -> None:
    go = fifo("go")
    await bench.start(go.wait + "sys.exit(2)")
    await bench.jobs.retire("team", "job")
    assert (await bench.observe()).phase is JobPhase.RUNNING
    go.send()
    ended = await bench.end()
    assert (ended.exit_code, ended.message) == (2, "")
    await bench.jobs.retire("team", "job")
    await bench.jobs.retire("team", "nobody")


async def test_a_retired_job_that_lingers_is_stopped(home: Home) -> None:
    async with local_jobs(home, linger=timedelta(seconds=0.1)) as jobs:
        bench = Bench(jobs, home)
        await bench.start(WAIT)
        await jobs.retire("team", "job")
        ended = await bench.end()
    assert (ended.exit_code, ended.timed_out) == (143, False)
    assert ended.message == "stopped: it ran on after its attempt was decided"


async def test_deleting_ends_every_process_of_the_job(
    anyhow: Bench, tmp_path: Path, fifo: Callable[[str], Fifo]
) -> None:
    ready, pids = fifo("ready"), fifo("pids")
    await anyhow.start(FAMILY.format(pids=str(pids.path)) + ready.tell("pids") + WAIT)
    family = json.loads(await ready.receive())
    assert len(family) == 3
    await anyhow.jobs.delete(KEY, "team", "job")
    assert [pid for pid in family if not is_gone(pid)] == []
    ended = await anyhow.observe()
    assert (ended.phase, ended.exit_code, ended.message) == (JobPhase.ENDED, 143, "deleted while it ran")


async def test_deleting_kills_a_job_that_ignores_the_polite_signal(bench: Bench, fifo: Callable[[str], Fifo]) -> None:
    ready = fifo("ready")
    await bench.start(IGNORE_TERM + ready.tell("1") + WAIT, grace=timedelta(seconds=0.1))
    await ready.receive()
    await bench.jobs.delete(KEY, "team", "job")
    assert (await bench.observe()).exit_code == 137


async def test_a_deleted_job_is_never_created_again(bench: Bench, witness: Witness) -> None:
    spec = await bench.start(witness.testify)
    await bench.end()
    for _ in range(2):
        await bench.jobs.delete(KEY, "team", "job")
    with pytest.raises(Refusal, match="team/job was deleted") as refused:
        await bench.jobs.create(spec, {})
    assert refused.value.reason is Reason.JOB_IDENTITY_CONFLICT
    assert (await bench.observe()).exit_code == 0
    assert await bench.jobs.records() == []


async def test_a_job_deleted_before_it_was_created_never_starts(bench: Bench) -> None:
    await bench.jobs.delete(KEY, "team", "job")
    with pytest.raises(Refusal, match="was deleted"):
        await bench.start("")
    observed = await bench.observe()
    assert (observed.phase, observed.message) == (JobPhase.ABSENT, "deleted before it started")


async def test_a_job_deleted_while_its_start_is_under_way_never_starts(bench: Bench, witness: Witness) -> None:
    for pid in zygotes():
        os.kill(pid, signal.SIGSTOP)
    creation = asyncio.create_task(bench.start(witness.testify))
    await bench.admitted()
    await bench.jobs.delete(KEY, "team", "job")
    for pid in zygotes():
        os.kill(pid, signal.SIGCONT)
    with pytest.raises(Refusal, match="was deleted"):
        await creation
    assert witness.starts == 0


async def test_only_the_attempt_itself_deletes_its_job(bench: Bench, fifo: Callable[[str], Fifo]) -> None:
    go = fifo("go")
    await bench.start(go.wait)
    for name in ("job", "other"):
        await bench.jobs.delete(KEY, "team", "other")
        with pytest.raises(Refusal, match="is of attempt uid-1/0/1, not uid-1/0/2") as refused:
            await bench.jobs.delete(KEY.model_copy(update={"attempt": 2}), "team", name)
        assert refused.value.reason is Reason.JOB_IDENTITY_CONFLICT
    assert (await bench.observe()).phase is JobPhase.RUNNING
    go.send()
    await bench.end()
