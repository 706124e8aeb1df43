"""What the tests of local Jobs are made of: programs, meeting points, a bench."""

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from anima.home import Home
from anima.model.attempts import AttemptKey
from anima.model.jobs import JobObservation, JobSpec
from anima.model.persona import SensitiveText
from anima.stores.processes import census
from anima.stores.processes.jobs import LocalJobs
from anima.stores.processes.registry import Registry

NOW = datetime(2026, 12, 1, tzinfo=UTC)
KEY = AttemptKey(task_uid="uid-1", attempt=1)
WORKER = "tests.stores.processes.worker"

IGNORE_TERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
WAIT = "import signal\nwhile True: signal.pause()\n"
# Leaves a child in the group and a daemon outside of it, both deaf to SIGTERM.
FAMILY = (
    "import os, signal\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "pids = [os.getpid()]\n"
    "for leave in (False, True):\n"
    "    pid = os.fork()\n"
    "    if pid == 0:\n"
    "        if leave and (os.setsid(), os.fork())[1]: os._exit(0)\n"
    "        with open({pids!r}, 'w') as file: print(os.getpid(), file=file)\n"
    "        while True: signal.pause()\n"
    "    pids.append(int(open({pids!r}).readline()))\n"
    "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
)


def clock() -> datetime:
    return NOW


def local_jobs(home: Home, entrypoint: str = WORKER, **options: Any) -> LocalJobs:
    return LocalJobs(home, clock, entrypoint, **options)


def spec_of(name: str = "job", **fields: Any) -> JobSpec:
    # A Job that a failed test leaves behind ends all the same.
    defaults: dict[str, Any] = {"prompt_digest": "sha256:" + "0" * 64, "timeout": timedelta(seconds=60)}
    return JobSpec(name=name, namespace="team", task="task", key=KEY, **(defaults | fields))


class Fifo:
    """Lines between the test and a Job; the test itself holds both ends, so no open waits."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._ends = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    @property
    def wait(self) -> str:
        """Code that waits for `send`."""
        return f"open({str(self.path)!r}).readline()\n"

    def tell(self, expression: str) -> str:
        """Code that hands the value of an expression to `receive`."""
        return f"print({expression}, file=open({str(self.path)!r}, 'w'), flush=True)\n"

    async def receive(self) -> str:
        await readable(self._ends)
        return os.read(self._ends, 65536).decode().strip()

    def send(self) -> None:
        os.write(self._ends, b"go\n")

    def close(self) -> None:
        os.close(self._ends)


async def readable(descriptor: int) -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)


class Witness:
    """A file in which every start of a Job leaves a line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def testify(self) -> str:
        """Code that leaves a line."""
        return f"import os\nwith open({str(self._path)!r}, 'a') as file: file.write(f'{{os.getpid()}}\\n')\n"

    @property
    def starts(self) -> int:
        return len(self._path.read_text().splitlines()) if self._path.exists() else 0


class Bench:
    """One `LocalJobs`, and how to run programs with it."""

    def __init__(self, jobs: LocalJobs, home: Home, way: str = "forked") -> None:
        self.jobs = jobs
        self.home = home
        self.way = way

    async def start(self, program: str, name: str = "job", env: dict[str, str] | None = None, **fields: Any) -> JobSpec:
        if self.way == "command":
            fields["command"] = [sys.executable, "-c", program]
        spec = spec_of(name, **fields)
        variables = {"PROGRAM": program} | (env or {})
        await self.jobs.create(spec, {key: SensitiveText(value) for key, value in variables.items()})
        return spec

    async def end(self, name: str = "job") -> JobObservation:
        async for job in self.jobs.ended():
            if job.name == name:
                return await self.observe(name)
        raise AssertionError

    async def observe(self, name: str = "job") -> JobObservation:
        return await self.jobs.observe("team", name)

    def directory(self, name: str = "job") -> Path:
        return self.home.jobs / "team" / name

    def supervisor(self, name: str = "job") -> int:
        holder = Registry(self.home.jobs, clock, str).directory("team", name).holder()
        assert holder is not None
        return holder

    async def admitted(self, name: str = "job") -> None:
        """Wait until a creation has begun; nothing announces that."""
        async with asyncio.timeout(30):
            while not (self.directory(name) / "spec.json").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.001)


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    await readable(handle)
    os.close(handle)


def arguments(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def is_gone(pid: int) -> bool:
    process = census.look(pid)
    return process is None or process.state in "ZX"


def zygotes() -> list[int]:
    children = [process.pid for process in census.processes() if process.parent == os.getpid()]
    return [pid for pid in children if b"processes.zygote" in arguments(pid)]
