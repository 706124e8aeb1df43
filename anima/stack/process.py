"""One child process: started, watched, started again, stopped."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anima.model.errors import Unavailable
from anima.stack import tether

_READY_WITHIN = 90.0
_LOOK_EVERY = 0.05
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0
_HEALTHY_AFTER = 30.0
_TRIES_TO_START = 3
# The orchestrator gives its activities 20 seconds.
_GRACE = 30.0
_LOG_LIMIT = 10 * 1024 * 1024

Say = Callable[[str], None]


class StackError(Unavailable):
    """The stack cannot start or go on; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Part:
    """A program of the stack, and how to tell that it is ready."""

    name: str
    command: tuple[str, ...]
    ready: Callable[[int], Awaitable[bool]]
    """Given the process id of the running program."""
    optional: bool = False
    """The stack goes on without it if it does not start."""


class Child:
    """Keeps one part running, whatever ends it, until it is stopped.

    Args:
        part: what to run.
        environment: its whole environment.
        directory: its working directory.
        log: the file its output is appended to.
        say: told about restarts.
    """

    def __init__(self, part: Part, environment: Mapping[str, str], directory: Path, log: Path, say: Say) -> None:
        self._part = part
        self._environment = dict(environment)
        self._directory = directory
        self._log = log
        self._say = say
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    @property
    def name(self) -> str:
        return self._part.name

    @property
    def optional(self) -> bool:
        return self._part.optional

    @property
    def pid(self) -> int | None:
        """The id of the process that runs now."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Start the part and return once it is ready.

        Raises:
            StackError: it ended again and again, or was not ready in time.
        """
        self._watch = asyncio.create_task(self._keep_running(), name=f"keep {self.name} running")
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait({ready, self._watch}, timeout=_READY_WITHIN, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._watch.done():
            self._watch.result()
        if not self._ready.is_set():
            raise StackError(f"{self.name} is not ready after {_READY_WITHIN:.0f} s{self._last_words()}")

    async def stop(self) -> None:
        """End the process: politely, then by force; return when it is gone."""
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError, StackError):
                await self._watch
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_GRACE):
                await process.wait()
        except (TimeoutError, asyncio.CancelledError) as impatience:
            self._say(f"{self.name} does not stop and is killed")
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if isinstance(impatience, asyncio.CancelledError):
                raise

    async def _keep_running(self) -> None:
        clock = asyncio.get_running_loop().time
        failures = 0
        while True:
            began = clock()
            code = await self._run_once()
            failures = 0 if clock() - began > _HEALTHY_AFTER else failures + 1
            if not self._ready.is_set() and failures >= _TRIES_TO_START:
                raise StackError(f"{self.name} does not start: {_ending(code)}{self._last_words()}")
            pause = min(_FIRST_PAUSE * 2 ** max(failures - 1, 0), _LONGEST_PAUSE)
            self._say(f"{self.name} {_ending(code)}; it is started again in {pause:.1f} s")
            await asyncio.sleep(pause)

    async def _run_once(self) -> int:
        process = await self._spawn()
        look = asyncio.create_task(self._look_until_ready(process.pid))
        try:
            return await process.wait()
        finally:
            look.cancel()

    async def _spawn(self) -> asyncio.subprocess.Process:
        _rotate(self._log)
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *_tied(self._part.command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=self._environment,
                # Ctrl-C is for the stack alone, which then stops its parts in order.
                start_new_session=True,
            )
        return self._process

    async def _look_until_ready(self, pid: int) -> None:
        while True:
            if await self._part.ready(pid):
                break
            await asyncio.sleep(_LOOK_EVERY)
        if self._ready.is_set():
            self._say(f"{self.name} is ready again")
        self._ready.set()

    def _last_words(self) -> str:
        with suppress(OSError):
            lines = self._log.read_bytes()[-4096:].decode(errors="replace").splitlines()
            return f"; the end of {self._log}:\n" + "\n".join(f"  {line}" for line in lines[-6:])
        return ""


def _tied(command: tuple[str, ...]) -> list[str]:
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command]


def _ending(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _rotate(log: Path) -> None:
    with suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_LIMIT:
            log.replace(log.with_suffix(".log.1"))
