"""A whole stack whose parts may be killed, and what must be true of it afterwards."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError

from anima.client import AnimaClient
from anima.gateway import Gateway
from anima.handle import TaskHandle
from anima.home import Home
from anima.keys import load
from anima.model.binding import SoulBinding
from anima.model.errors import AnimaError, Unavailable
from anima.model.manifest import parse_resource
from anima.model.task import Phase, TaskStatus
from anima.stack import Addresses, Ports, Stack, process
from anima.stack.process import Child, Part
from anima.stores.processes import census
from anima.stores.processes.directory import JobDirectory
from anima.stores.sql import SqlLedger, SqlSessions, open_engine, sqlite_url
from tests.e2e.trigger import CONTROL, Trigger, disarm, fired_at, kill

ROOT = Path(__file__).parent.parent.parent
JOB = Path(__file__).parent / "job.py"
SOUL = "# Keeper\n\nNothing is lost.\n"
TASK_LIMIT = 120.0
_ZYGOTE = b"anima.stores.processes.zygote"


class KillableStack(Stack):
    """The stack without the small model, its workers replaced by those with triggers."""

    def _parts(self, ports: Ports) -> list[Part]:
        chosen = [part for part in super()._parts(ports) if part.name != "model"]
        return [replace(part, command=_with_triggers(part)) for part in chosen]


def _with_triggers(part: Part) -> tuple[str, ...]:
    if part.name == "temporal":
        return part.command
    return (sys.executable, "-P", "-m", f"tests.e2e.{part.name}")


@dataclass(frozen=True)
class Gate:
    """Holds Jobs back before they report."""

    path: Path

    @property
    def option(self) -> str:
        return f"--hold={self.path}"

    def open(self) -> None:
        self.path.touch()


@dataclass
class Place:
    """A running stack, and the ways to use it, to hurt it and to look at it."""

    home: Home
    addresses: Addresses
    children: dict[str, Child]
    temporal: Client
    gateway: Gateway
    ledger: SqlLedger
    sessions: SqlSessions
    directory: Path
    said: list[str] = field(default_factory=list)

    @property
    def client(self) -> AnimaClient:
        return AnimaClient(self.temporal, self.gateway)

    @property
    def control(self) -> Path:
        return self.directory / "control"

    @property
    def witness(self) -> Path:
        """Gets a line ``key pid`` from each Job."""
        return self.directory / "witness"

    async def apply(self, kind: str, name: str, spec: Mapping[str, Any] | None = None, **body: Any) -> dict[str, Any]:
        """Create or replace an object."""
        manifest = {
            "apiVersion": "v1" if kind in ("ConfigMap", "Secret") else "anima.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "default"},
            **({"spec": dict(spec)} if spec is not None else {}),
            **body,
        }
        return (await self.gateway.apply(parse_resource(manifest))).resource

    async def agent(self, name: str, *options: str, **spec: Any) -> None:
        """Apply an Agent with a soul whose Jobs run the test's own program with these options."""
        command = [sys.executable, "-I", "-S", str(JOB), str(self.witness), *options]
        await self.apply(
            "Agent",
            name,
            {
                "soul": {"inline": SOUL},
                "providerRef": {"name": "rehearsal"},
                "execution": {"command": command},
                **spec,
            },
        )

    async def submit(self, agent: str, name: str, **spec: Any) -> TaskHandle:
        """Start a Task."""
        return await self.client.submit({"metadata": {"name": name}, "spec": task_spec(agent, **spec)})

    def arm(self, point: str, when: Any, target: str) -> None:
        """Have something killed at a point: a part by its name, or the last ``job`` or its ``supervisor``."""
        if target in ("job", "supervisor"):
            Trigger(point, when, witness=str(self.witness), parent=target == "supervisor").arm(self.control)
        else:
            Trigger(point, when, self.children[target].pid or 0).arm(self.control)

    def fired_at(self) -> datetime | None:
        """Return when the armed kill happened."""
        moment = fired_at(self.control)
        return datetime.fromtimestamp(moment, UTC) if moment else None

    async def end(self, handle: TaskHandle, seconds: float = TASK_LIMIT) -> TaskStatus:
        """Wait for the end of a Task, whatever dies meanwhile."""
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await handle.wait()
                except Unavailable:
                    await asyncio.sleep(0.2)

    async def answer(self, handle: TaskHandle) -> str:
        """Return the stored answer, through the gateway."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return (await self.gateway.result(handle.namespace, handle.name)).decode()
                except Unavailable:
                    await asyncio.sleep(0.1)

    async def shell(self, command: str) -> str:
        """Run a command as a person would who has read the README; return what it prints."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {"PATH": path, "HOME": str(self.directory), "ANIMA_HOME": str(self.home.root)}
        process = await asyncio.create_subprocess_shell(
            command,
            env=kept | {"TEMPORAL_ADDRESS": self.addresses.temporal, "COLUMNS": "200"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = (stream.decode() for stream in await process.communicate())
        if process.returncode:
            raise AssertionError(f"{command}\n{output}{errors}")
        return output

    async def binding(self, uid: str) -> SoulBinding | None:
        """Return the binding on record."""
        return (await self.ledger.task(uid)).binding

    def jobs_of(self, uid: str) -> list[str]:
        """Return the attempts of a Task for which a Job has run, once for each Job."""
        lines = self.witness.read_text().splitlines() if self.witness.exists() else []
        return [line.split()[0] for line in lines if line.startswith(f"{uid}/")]

    async def succeeded(self, handle: TaskHandle, attempts: int = 1) -> TaskStatus:
        """Check everything that must be true of a Task that succeeded; return its status."""
        status = await self.end(handle)
        assert status.phase is Phase.SUCCEEDED, (status.reason, status.message)
        assert (status.attempt, status.total_attempts) == (attempts, attempts)
        assert status.result_ref is not None
        assert (await self.answer(handle)).startswith(f"{status.uid}/0/{status.result_ref.attempt} was asked: ")
        assert self.jobs_of(status.uid) == [f"{status.uid}/0/{number}" for number in range(1, attempts + 1)]
        assert status.soul_binding is not None
        assert status.soul_binding == await self.binding(status.uid)
        return status

    async def started(self, handle: TaskHandle, attempt: int) -> TaskStatus:
        """Wait until the Job of an attempt has borne witness, and the Task says that it runs."""
        async with asyncio.timeout(TASK_LIMIT):
            while True:
                with suppress(AnimaError):
                    status = await handle.status()
                    ran = f"{status.uid}/0/{attempt}" in self.jobs_of(status.uid)
                    if ran and status.attempt == attempt and status.phase is Phase.RUNNING:
                        return status
                await asyncio.sleep(0.05)

    async def recorded(self, handle: TaskHandle, phase: Phase) -> TaskStatus:
        """Wait for a phase on record, and return the record."""
        async with asyncio.timeout(60):
            while True:
                record = await self.gateway.task(handle.namespace, handle.name)
                if record.phase is phase:
                    return record
                await asyncio.sleep(0.2)

    async def shown(self, handle: TaskHandle, phase: Phase) -> None:
        """Wait until the Task shows a phase."""
        async with asyncio.timeout(TASK_LIMIT):
            while True:
                if (await handle.status()).phase is phase:
                    return
                await asyncio.sleep(0.05)

    async def kill(self, part: str) -> None:
        """Kill a part, and wait until the stack has it at work again."""
        kill(self.children[part].pid or 0)
        await self.ready()

    def zygotes(self) -> list[int]:
        """Return the processes that Jobs are forked from."""
        orchestrator = self.children["orchestrator"].pid
        return [
            process.pid
            for process in census.processes()
            if process.parent == orchestrator and _ZYGOTE in self._command(process.pid)
        ]

    async def ready(self) -> None:
        """Wait until every part is up and at work."""
        disarm(self.control)
        async with asyncio.timeout(120):
            while True:
                if await self._is_ready():
                    return
                await asyncio.sleep(0.05)

    async def _is_ready(self) -> bool:
        beacon = self.home.run / "orchestrator.ready"
        with suppress(RPCError, Unavailable, OSError):
            if beacon.read_text().strip() != str(self.children["orchestrator"].pid):
                return False
            await self.gateway.version()
            request = DescribeNamespaceRequest(namespace=self.addresses.namespace)
            await self.temporal.workflow_service.describe_namespace(request, timeout=timedelta(seconds=2))
            return all(child.pid for child in self.children.values())
        return False

    async def quiet(self, seconds: float = 30) -> None:
        """Wait until no Job, no supervisor and no zygote of a dead orchestrator runs."""
        deadline = time.monotonic() + seconds
        while strays := self._strays():
            assert time.monotonic() < deadline, strays
            await asyncio.sleep(0.1)

    def supervisors(self) -> dict[str, int]:
        """Return the supervisors that run, by the name of their Job."""
        directories = [JobDirectory(path) for path in self.home.jobs.glob("[!.]*/*")]
        held = {directory.name: directory.holder() for directory in directories}
        return {name: pid for name, pid in held.items() if pid is not None}

    def jobs(self) -> list[int]:
        """Return the processes of Jobs with the test's own program."""
        witness = os.fsencode(str(self.witness))
        return [one.pid for one in census.processes() if witness in self._command(one.pid).split(b"\0")]

    def _strays(self) -> list[str]:
        orchestrator = self.children["orchestrator"].pid
        forks = [one for one in census.processes() if one.parent != orchestrator and self._is_fork(one.pid)]
        return [*self.supervisors(), *(f"Job {pid}" for pid in self.jobs()), *(str(fork) for fork in forks)]

    def _is_fork(self, pid: int) -> bool:
        return _ZYGOTE in self._command(pid) and self._is_mine(pid)

    def _command(self, pid: int) -> bytes:
        with suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        return b""

    def _is_mine(self, pid: int) -> bool:
        # Zygotes inherit TMPDIR, which no other stack shares, and their forks keep it.
        with suppress(OSError):
            mine = os.fsencode(f"TMPDIR={self.directory}")
            return mine in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for what no event tells of."""
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


def task_spec(agent: str, **spec: Any) -> dict[str, Any]:
    """Return a Task's spec with quick retries."""
    return {
        "type": "ai",
        "agentRef": {"name": agent},
        "prompt": "What is left?",
        "retryPolicy": {"maxRetries": 3, "initialDelay": "100ms"},
        **spec,
    }


@asynccontextmanager
async def open_place(directory: Path, environ: Mapping[str, str] | None = None) -> AsyncIterator[Place]:
    """Start a stack in a directory; parts that die are started again without a growing pause."""
    said: list[str] = []
    (directory / "control").mkdir()
    home = Home(directory / "a home")
    ours = {CONTROL: str(directory / "control"), "PYTHONPATH": str(ROOT), "TMPDIR": str(directory)}
    stack = KillableStack(home, Ports(0, 0, 0, 0), said.append, {**os.environ, **(environ or {}), **ours})
    healthy_after, process._HEALTHY_AFTER = process._HEALTHY_AFTER, 0.0
    try:
        async with stack as addresses, Gateway(addresses.gateway, load(home.user_token)) as gateway:
            engine = open_engine((environ or {}).get("ANIMA_DATABASE_URL") or sqlite_url(home.database))
            place = Place(
                home=home,
                addresses=addresses,
                children={child.name: child for child in stack.children},
                temporal=await Client.connect(addresses.temporal, data_converter=pydantic_data_converter),
                gateway=gateway,
                ledger=SqlLedger(engine, partial(datetime.now, UTC)),
                sessions=SqlSessions(engine, partial(datetime.now, UTC), lambda: str(uuid4())),
                directory=directory,
                said=said,
            )
            await place.apply("Provider", "rehearsal", {"type": "rehearsal"})
            try:
                yield place
            finally:
                await engine.dispose()
                # What a failed test leaves would outlive the stack, as Jobs do.
                for pid in (*place.supervisors().values(), *place.jobs()):
                    kill(pid)
    finally:
        process._HEALTHY_AFTER = healthy_after
