"""Whatever is killed when: a Job starts once, and its end is known or known to be lost."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable

from anima.home import Home
from anima.model.jobs import JobPhase
from anima.stores.processes import census
from anima.stores.processes.registry import Registry
from tests.stores.processes.bench import (
    IGNORE_TERM,
    KEY,
    NOW,
    WAIT,
    Bench,
    Fifo,
    Witness,
    clock,
    gone,
    is_gone,
    local_jobs,
    spec_of,
    zygotes,
)


async def test_a_zygote_that_died_is_replaced(bench: Bench, witness: Witness) -> None:
    for pid in zygotes():
        os.kill(pid, signal.SIGKILL)
        await gone(pid)
    await bench.start(witness.testify)
    assert (await bench.end()).exit_code == 0
    assert await bench.jobs.preloaded()
    await bench.start(witness.testify, "second")
    assert (await bench.end("second")).exit_code == 0
    assert witness.starts == 2


async def test_a_zygote_that_dies_with_requests_loses_and_repeats_none(bench: Bench, witness: Witness) -> None:
    for pid in zygotes():
        os.kill(pid, signal.SIGSTOP)
    creations = [asyncio.create_task(bench.start(witness.testify, f"job-{number}")) for number in range(8)]
    creations.append(asyncio.create_task(bench.start(witness.testify)))
    await bench.admitted()
    for pid in zygotes():
        os.kill(pid, signal.SIGKILL)
    await asyncio.gather(*creations)
    for spec in [await creation for creation in creations]:
        assert (await bench.end(spec.name)).exit_code == 0
    assert witness.starts == 9


async def test_a_zygote_that_died_before_it_was_ready_is_replaced(home: Home) -> None:
    async with local_jobs(home, fork=False) as jobs:
        for pid in zygotes():
            os.kill(pid, signal.SIGKILL)
        await Bench(jobs, home).start("sys.exit(8)")
        assert (await Bench(jobs, home).end()).exit_code == 8


async def test_running_jobs_survive_their_zygote(bench: Bench, fifo: Callable[[str], Fifo]) -> None:
    go = fifo("go")
    await bench.start(go.wait + "sys.exit(7)")
    for pid in zygotes():
        os.kill(pid, signal.SIGKILL)
    go.send()
    assert (await bench.end()).exit_code == 7


async def test_a_job_whose_supervisor_was_killed_is_lost_with_all_its_group(
    anyhow: Bench, witness: Witness, fifo: Callable[[str], Fifo]
) -> None:
    ready, child = fifo("ready"), fifo("child")
    program = (
        witness.testify + IGNORE_TERM + "if os.fork() == 0:\n"
        f"    {child.tell('os.getpid()')}"
        "    while True: signal.pause()\n" + ready.tell("os.getpid()") + WAIT
    )
    spec = await anyhow.start(program)
    pids = [int(await child.receive()), int(await ready.receive())]
    supervisor = anyhow.supervisor()
    os.kill(supervisor, signal.SIGKILL)
    await gone(supervisor)
    # The Job itself at once, the rest when somebody looks.
    await gone(pids[1])
    lost = await anyhow.observe()
    assert (lost.phase, lost.exit_code, lost.ended_at) == (JobPhase.LOST, None, NOW)
    assert lost.message == "its supervisor died before it could write down the exit status"
    assert [pid for pid in pids if not is_gone(pid)] == []
    assert not (anyhow.directory() / "scratch").exists()
    assert await anyhow.jobs.create(spec, {}) == lost.uid
    assert await anyhow.end() == lost
    await anyhow.jobs.delete(KEY, "team", "job")
    assert await anyhow.observe() == lost
    assert witness.starts == 1


async def test_deleting_a_lost_job_ends_its_group(bench: Bench, fifo: Callable[[str], Fifo]) -> None:
    child = fifo("child")
    await bench.start(f"import os, signal\nif os.fork() == 0: {child.tell('os.getpid()')}" + WAIT)
    pid = int(await child.receive())
    os.kill(bench.supervisor(), signal.SIGKILL)
    await bench.jobs.delete(KEY, "team", "job")
    assert is_gone(pid)
    assert (await bench.observe()).phase is JobPhase.LOST


async def test_what_a_crash_before_the_start_has_left_does_not_hinder_it(bench: Bench, witness: Witness) -> None:
    Registry(bench.home.jobs, clock, lambda: "first").admit(spec_of())
    assert (await bench.observe()).phase is JobPhase.PENDING
    for name in ("scratch/old", "lock", "log", ".claim.json.draft"):
        (bench.directory() / name).parent.mkdir(exist_ok=True)
        (bench.directory() / name).touch()
    await bench.start(witness.testify + "print(os.listdir('.'))")
    assert (await bench.end()).uid == "first"
    assert await bench.jobs.log("team", "job") == b"[]\n"
    assert witness.starts == 1


async def test_a_job_survives_its_orchestrator_and_is_adopted(
    home: Home, witness: Witness, fifo: Callable[[str], Fifo]
) -> None:
    go = fifo("go")
    program = witness.testify + go.wait + "print('late'); sys.exit(9)"
    orchestrator = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.stores.processes.orchestrator",
        str(home.root), spec_of().model_dump_json(), program,
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert orchestrator.stdout is not None
    uid = (await orchestrator.stdout.readline()).decode().strip()
    children = [process.pid for process in census.processes() if process.parent == orchestrator.pid]
    assert len(children) == 2
    orchestrator.kill()
    await orchestrator.wait()
    for pid in children:
        await gone(pid)
    async with local_jobs(home) as jobs:
        bench = Bench(jobs, home)
        assert (await bench.observe()).phase is JobPhase.RUNNING
        assert await jobs.create(spec_of(), {}) == uid
        ended = jobs.ended()
        told = asyncio.ensure_future(anext(ended))
        go.send()
        assert (await told).name == "job"
        assert (await bench.observe()).exit_code == 9
        assert await jobs.log("team", "job") == b"late\n"
    assert witness.starts == 1
