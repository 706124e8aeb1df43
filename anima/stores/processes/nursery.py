"""The orchestrator's side of a zygote: start it, ask it, replace it when it died."""

import asyncio
import contextlib
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from anima.model.errors import Unavailable
from anima.stores.processes.launch import Launch, encode

_ZYGOTE = "anima.stores.processes.zygote"
_INHERITED = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})
_PREFIXES = ("LC_", "PYTHON")
_ANSWER_TIMEOUT = 30.0
_PRELOAD_PAUSE = 10.0


class NurseryGoneError(Exception):
    """The zygote died before it answered; the Job may have been started or not."""


class Nursery:
    """A zygote and the requests under way.

    Args:
        entrypoint: the module to preload; none for a zygote that only executes.
    """

    def __init__(self, entrypoint: str | None = None) -> None:
        self._entrypoint = entrypoint
        self._process: Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._opened_at = 0.0
        self._ready: asyncio.Future[bool] | None = None
        self._numbers = 0
        self._waiting: dict[int, asyncio.Future[str]] = {}

    @property
    def pid(self) -> int | None:
        """The zygote's process; none if it is not running."""
        return self._process.pid if self._process and self._alive else None

    @property
    def ready(self) -> bool:
        """Whether it has preloaded and can be asked now."""
        return self._alive and self._was_ready

    @property
    def _alive(self) -> bool:
        return self._listener is not None and not self._listener.done()

    @property
    def _was_ready(self) -> bool:
        return self._ready is not None and self._ready.done() and self._ready.result()

    @property
    def _failed_lately(self) -> bool:
        failed = self._entrypoint is not None and self._ready is not None and not self._was_ready
        return failed and time.monotonic() < self._opened_at + _PRELOAD_PAUSE

    async def open(self) -> None:
        """Start the zygote unless it runs; do not wait until it is ready.

        One that died while it preloaded is not started again right away.
        """
        async with self._opening:
            if not self._alive and not self._failed_lately:
                await self._spawn()

    async def _spawn(self) -> None:
        arguments = [self._entrypoint] if self._entrypoint else []
        self._opened_at = time.monotonic()
        self._ready = asyncio.get_running_loop().create_future()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", _ZYGOTE, *arguments,
            stdin=PIPE, stdout=PIPE, env=_environment(), start_new_session=True,
        )  # fmt: skip
        self._listener = asyncio.create_task(self._listen(self._process, self._ready))

    async def preloaded(self) -> bool:
        """Wait until the zygote is ready; return False if it died instead."""
        return self._ready is not None and await asyncio.shield(self._ready)

    async def launch(self, launch: Launch, environment: Mapping[str, str]) -> None:
        """Have a Job started, and return when it is decided whether it starts.

        Raises:
            NurseryGoneError: the zygote died meanwhile.
            Unavailable: it could not be started now.
        """
        if self._process is None or self._process.stdin is None or not self._alive:
            raise NurseryGoneError
        self._numbers += 1
        number = self._numbers
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._process.stdin.write(encode(replace(launch, number=number), environment))
            async with asyncio.timeout(_ANSWER_TIMEOUT):
                error = await answer
        except TimeoutError:
            raise Unavailable(f"no answer within {_ANSWER_TIMEOUT:g} s on the start of {launch.directory}") from None
        finally:
            del self._waiting[number]
        if error:
            raise Unavailable(f"cannot start the Job in {launch.directory}: {error}")

    async def _listen(self, process: Process, ready: asyncio.Future[bool]) -> None:
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                message = json.loads(line)
                if "ready" in message:
                    ready.set_result(True)
                    continue
                waiting = self._waiting.get(message["number"])
                if waiting and not waiting.done():
                    waiting.set_result(message["error"])
        finally:
            if not ready.done():
                ready.set_result(False)
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(NurseryGoneError())

    async def close(self) -> None:
        """End the zygote; the Jobs that came from it run on."""
        if self._process is None or self._process.stdin is None or self._listener is None:
            return
        self._process.stdin.close()
        if not self._was_ready:
            # It is importing and would see the end of its input only after that.
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
        self._listener.cancel()
        await asyncio.wait([self._listener])


def _environment() -> dict[str, str]:
    """What a zygote needs to import the worker, and no secret."""
    kept = {name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith(_PREFIXES)}
    return kept | {"PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in sys.path)}
