"""`anima dev` and `anima demo` as processes, from start to stop."""

import asyncio
import os
import shlex
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from anima.exits import Exit
from anima.home import Home
from anima.model.digests import PREFIX

COMMAND = (sys.executable, "-c", "from anima.cli import main; main()")
FREE_PORTS = {f"ANIMA_{part}_PORT": "0" for part in ("GATEWAY", "TEMPORAL", "UI", "MODEL")}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "a home")


async def start(home: Home, *arguments: str) -> Process:
    keyless = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environment = keyless | FREE_PORTS | {"ANIMA_HOME": str(home.root)}
    return await asyncio.create_subprocess_exec(*COMMAND, *arguments, stdout=PIPE, stderr=PIPE, env=environment)


async def run(home: Home, *arguments: str) -> tuple[int | None, str, str]:
    process = await start(home, *arguments)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def until_line(process: Process, wanted: str) -> None:
    assert process.stdout
    async for line in process.stdout:
        if wanted in line.decode():
            return
    assert process.stderr
    pytest.fail(f"it ended without saying {wanted!r}: {(await process.stderr.read()).decode()}")


async def test_dev_serves_a_demo_refuses_a_second_stack_and_stops_on_ctrl_c(home: Home) -> None:
    stack = await start(home, "dev")
    try:
        # A home of one's own has to be set in the other terminal, too.
        await until_line(stack, f"  export ANIMA_HOME={shlex.quote(str(home.root))}")
        await until_line(stack, "Ctrl-C stops it.")
        code, out, err = await run(home, "demo")
        assert code == Exit.OK, err
        assert "Succeeded, attempt " in err
        assert "Using the stack that runs" in out
        assert f"Soul      {PREFIX}" in out
        assert "/namespaces/default/workflows/task%2Fdefault%2Fdemo-" in out

        code, out, err = await run(home, "dev")
        assert (code, out) == (Exit.UNAVAILABLE, "")
        assert f"a stack already runs on {home.root} (process {stack.pid}, " in err

        stack.send_signal(signal.SIGINT)
        out_, err_ = await stack.communicate()
        assert (stack.returncode, err_) == (Exit.OK, b"")
        assert b"Stopped." in out_
        assert not home.stack.exists()
    finally:
        if stack.returncode is None:
            stack.kill()
            await stack.wait()


async def test_a_home_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, out, err = await run(Home(tmp_path / "file" / "home"), "dev")
    assert (code, out) == (Exit.UNAVAILABLE, "")
    assert err.count("\n") == 1
    assert "cannot be used: Not a directory; set ANIMA_HOME" in err
