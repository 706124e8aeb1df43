"""How a Job is started: once, whoever asks how often."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from anima.home import Home
from anima.model.errors import Refusal, Unavailable
from anima.model.jobs import JobPhase
from anima.model.persona import SensitiveText
from anima.model.reasons import Reason
from tests.stores.processes.bench import (
    WORKER,
    Bench,
    Fifo,
    Witness,
    local_jobs,
    spec_of,
)


async def test_a_job_runs_once_and_its_end_is_told(anyhow: Bench, witness: Witness) -> None:
    await anyhow.start(witness.testify + "import sys; print('done'); sys.exit(3)")
    ended = await anyhow.end()
    assert (ended.phase, ended.exit_code, ended.timed_out, ended.message) == (JobPhase.ENDED, 3, False, "")
    assert ended.uid
    assert ended.started_at is not None
    assert ended.ended_at is not None
    assert ended.started_at <= ended.ended_at
    assert await anyhow.jobs.log("team", "job") == b"done\n"
    assert witness.starts == 1


async def test_creating_again_adopts_a_running_and_an_ended_job(
    anyhow: Bench, witness: Witness, fifo: Callable[[str], Fifo]
) -> None:
    go = fifo("go")
    spec = await anyhow.start(witness.testify + go.wait)
    running = await anyhow.jobs.create(spec, {})
    go.send()
    assert (await anyhow.end()).exit_code == 0
    assert await anyhow.jobs.create(spec, {}) == running == (await anyhow.observe()).uid
    assert witness.starts == 1


async def test_many_creations_of_one_job_at_once_start_one_process(
    bench: Bench, witness: Witness, fifo: Callable[[str], Fifo]
) -> None:
    go = fifo("go")
    async with local_jobs(bench.home) as others:
        assert await others.preloaded()
        environment = {"PROGRAM": SensitiveText(witness.testify + go.wait)}
        uids = await asyncio.gather(*(jobs.create(spec_of(), environment) for jobs in (bench.jobs, others) * 10))
        assert len(set(uids)) == 1
        assert (await bench.observe()).phase is JobPhase.RUNNING
        go.send()
        assert (await Bench(others, bench.home).end()).exit_code == 0
    assert witness.starts == 1


async def test_fifty_jobs_at_once_all_run_and_all_ends_are_told(bench: Bench, witness: Witness) -> None:
    names = {f"job-{number}" for number in range(50)}
    ended = bench.jobs.ended()
    await asyncio.gather(*(bench.start(witness.testify, name) for name in names))
    assert {(await anext(ended)).name for _ in names} == names
    assert witness.starts == 50


async def test_jobs_start_while_the_worker_is_still_being_imported(
    home: Home, tmp_path: Path, fifo: Callable[[str], Fifo], monkeypatch: pytest.MonkeyPatch
) -> None:
    go = fifo("go")
    (tmp_path / "slow_worker.py").write_text(f"from {WORKER} import main\ndef preload(): {go.wait}")
    monkeypatch.syspath_prepend(str(tmp_path))
    async with local_jobs(home, "slow_worker") as jobs:
        await Bench(jobs, home).start("sys.exit(4)")
        assert (await Bench(jobs, home).end()).exit_code == 4
        go.send()
        assert await jobs.preloaded()


@pytest.mark.parametrize("entrypoint", ["tests.stores.processes.threaded_worker", "no_such_module"])
async def test_a_worker_that_cannot_be_preloaded_is_run_in_a_new_interpreter(home: Home, entrypoint: str) -> None:
    async with local_jobs(home, entrypoint) as jobs:
        assert not await jobs.preloaded()
        await Bench(jobs, home).start("sys.exit(4)")
        ended = await Bench(jobs, home).end()
        assert ended.exit_code == (4 if entrypoint == "tests.stores.processes.threaded_worker" else 1)
        assert (b"No module named 'no_such_module'" in await jobs.log("team", "job")) == (ended.exit_code == 1)


async def test_another_spec_under_the_same_name_is_refused(bench: Bench) -> None:
    await bench.start("")
    with pytest.raises(Refusal, match="team/job exists with another spec") as refused:
        await bench.jobs.create(spec_of(prompt_digest="sha256:" + "1" * 64), {})
    assert refused.value.reason is Reason.JOB_IDENTITY_CONFLICT


@pytest.mark.parametrize("long", [False, True])
async def test_any_home_path_works(tmp_path: Path, long: bool) -> None:
    home = Home(tmp_path.joinpath(*["ein langer Weg nach Hause"] * (8 if long else 1)) / "Ünï 'q'")
    async with local_jobs(home) as jobs:
        await Bench(jobs, home).start("sys.exit(5)")
        ended = jobs.ended()
        assert (await anext(ended)).name == "job"
        assert (await jobs.observe("team", "job")).exit_code == 5


async def test_a_home_that_cannot_be_used_is_an_operational_failure(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(Unavailable, match=r"home.*Not a directory.*permissions"):
        async with local_jobs(Home(tmp_path / "home")):
            pass
