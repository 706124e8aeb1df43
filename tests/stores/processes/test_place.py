"""What a Job finds: environment, directory, process, output."""

import json
import os
import signal
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from anima.home import Home
from anima.stores.processes.directory import JobDirectory
from tests.stores.processes.bench import (
    Bench,
    Fifo,
    Witness,
    arguments,
    environment,
    is_gone,
    local_jobs,
    zygotes,
)


async def test_the_environment_is_exactly_what_was_given(anyhow: Bench, tmp_path: Path) -> None:
    given = {
        "A": "$(HOME) $HOME $$ ${x} {{y}} @file %s",
        "B": " a\nb\r\nc\t",
        "C": "\N{SNOWMAN}\N{PILE OF POO}e\N{COMBINING ACUTE ACCENT}\ufeff",
        "D": "x" * 112_640,
        "E": "",
        "lower-case.and:odd": "1",
    }
    out = tmp_path / "out"
    program = (
        "import json, os\n"
        f"with open({str(out)!r}, 'w') as file:\n"
        "    json.dump({k.decode(): v.decode() for k, v in os.environb.items()}, file)\n"
    )
    await anyhow.start(program, env=given)
    assert (await anyhow.end()).exit_code == 0
    seen = json.loads(out.read_text())
    scratch = str(anyhow.directory() / "scratch")
    expected = given | {"PROGRAM": program, "HOME": scratch, "TMPDIR": scratch, "PATH": os.environ["PATH"]}
    # Python itself sets LC_CTYPE where there is no locale.
    assert {name: value for name, value in seen.items() if name != "LC_CTYPE"} == expected


async def test_given_variables_win_over_the_defaults(anyhow: Bench, fifo: Callable[[str], Fifo]) -> None:
    out = fifo("out")
    program = "import os\n" + out.tell("[os.environ[name] for name in ('HOME', 'TMPDIR', 'PATH')]")
    await anyhow.start(program, env={"HOME": "/h", "TMPDIR": "/t", "PATH": "/p"})
    assert await out.receive() == "['/h', '/t', '/p']"


async def test_the_environment_is_in_no_file_and_no_other_process(anyhow: Bench, fifo: Callable[[str], Fifo]) -> None:
    ready, go = fifo("ready"), fifo("go")
    program = ready.tell("__import__('os').getpid()") + go.wait
    await anyhow.start(program, env={"TOKEN": "streng-geheim"})
    job = int(await ready.receive())
    supervisor = anyhow.supervisor()
    for pid in (job, supervisor, *zygotes()):
        assert b"streng-geheim" not in arguments(pid)
    for pid in (supervisor, *zygotes()):
        assert b"streng-geheim" not in environment(pid)
    go.send()
    await anyhow.end()
    files = [path for path in anyhow.home.root.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"streng-geheim" in path.read_bytes()]


async def test_a_zygote_is_given_no_secret_of_the_orchestrator(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "streng-geheim")
    async with local_jobs(home) as jobs:
        assert await jobs.preloaded()
        assert len(zygotes()) == 2
        for pid in zygotes():
            assert b"streng-geheim" not in environment(pid)


async def test_a_job_has_a_process_of_its_own_with_nothing_left_over(anyhow: Bench, tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = (
        "import json, os, resource, signal, stat, sys, tempfile\n"
        "descriptors = [name for name in os.listdir('/dev/fd') if os.path.exists(f'/dev/fd/{name}')]\n"
        f"with open({str(out)!r}, 'w') as file: json.dump(dict(\n"
        "    descriptors=sorted(descriptors),\n"
        "    stdin=sys.stdin.read(), umask=os.umask(0), core=resource.getrlimit(resource.RLIMIT_CORE),\n"
        "    mask=len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),\n"
        "    child=signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, pipe=signal.getsignal(signal.SIGPIPE),\n"
        "    leader=os.getpgid(0) == os.getpid(), session=os.getsid(0) == os.getppid(),\n"
        "    cwd=os.getcwd(), temporary=tempfile.gettempdir(), mode=stat.S_IMODE(os.stat('.').st_mode),\n"
        "), file)\n"
    )
    await anyhow.start(program)
    assert (await anyhow.end()).exit_code == 0
    scratch = str(anyhow.directory() / "scratch")
    assert json.loads(out.read_text()) == {
        "descriptors": ["0", "1", "2"],
        "stdin": "",
        "umask": 0o077,
        "core": [0, 0],
        "mask": 0,
        "child": True,
        "pipe": signal.SIG_IGN,
        "leader": True,
        "session": True,
        "cwd": scratch,
        "temporary": scratch,
        "mode": 0o700,
    }
    assert stat.S_IMODE(anyhow.directory().stat().st_mode) == 0o700


async def test_forked_jobs_do_not_share_their_random_numbers(bench: Bench) -> None:
    for name in ("one", "two"):
        await bench.start("import random; print(random.random())", name)
        await bench.end(name)
    assert await bench.jobs.log("team", "one") != await bench.jobs.log("team", "two")


async def test_a_job_over_its_memory_limit_fails_alone(anyhow: Bench) -> None:
    await anyhow.start("bytearray(2**30)", memory_limit=512 * 2**20)
    assert (await anyhow.end()).exit_code == 1
    assert b"MemoryError" in await anyhow.jobs.log("team", "job")


async def test_a_memory_limit_in_which_the_worker_cannot_start_is_named(bench: Bench, witness: Witness) -> None:
    await bench.start(witness.testify, memory_limit=4096)
    ended = await bench.end()
    assert ended.exit_code == 126
    assert "memory limit of 4096 bytes is too small" in ended.message
    assert witness.starts == 0


async def test_the_scratch_directory_is_gone_at_the_end_whatever_is_in_it(anyhow: Bench, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir(mode=0o755)
    program = (
        "import os\n"
        "os.makedirs('a/b/c'); open('a/b/c/persona', 'w').close()\n"
        f"os.symlink({str(tmp_path / 'outside')!r}, 'a/link')\n"
        "os.chmod('a/b', 0); os.chmod('.', 0)\n"
    )
    await anyhow.start(program)
    ended = await anyhow.end()
    assert (ended.exit_code, ended.message) == (0, "")
    assert not (anyhow.directory() / "scratch").exists()
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o755


def test_a_scratch_directory_is_removed_even_if_the_job_locked_itself_out(unprivileged: None) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        job, outside = JobDirectory(Path(temporary, "job")), Path(temporary, "outside")
        (job.scratch / "a/b").mkdir(parents=True)
        outside.mkdir(mode=0o750)
        (job.scratch / "a/link").symlink_to(outside)
        for path in (job.scratch / "a/b", job.scratch / "a", job.scratch):
            path.chmod(0)
        assert job.remove_scratch() == ""
        assert not job.scratch.exists()
        assert stat.S_IMODE(outside.stat().st_mode) == 0o750


async def test_output_of_any_bytes_and_line_length_is_kept(anyhow: Bench) -> None:
    await anyhow.start("import os; os.write(2, bytes(range(256))); os.write(1, b'x' * 5_000_000 + b'\\xff\\0end')")
    assert (await anyhow.end()).exit_code == 0
    log = (anyhow.directory() / "log").read_bytes()
    assert log == bytes(range(256)) + b"x" * 5_000_000 + b"\xff\0end"
    assert await anyhow.jobs.log("team", "job", limit=7) == b"xx\xff\0end"
    assert await anyhow.jobs.log("team", "nobody") == b""


async def test_a_process_that_keeps_the_output_open_delays_nothing(anyhow: Bench, fifo: Callable[[str], Fifo]) -> None:
    child, go = fifo("child"), fifo("go")
    program = (
        "import os, signal\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"    {child.tell('os.getpid()')}"
        "    while True: signal.pause()\n"
        f"{go.wait}os._exit(6)\n"
    )
    await anyhow.start(program)
    pid = int(await child.receive())
    go.send()
    assert (await anyhow.end()).exit_code == 6
    assert is_gone(pid)
