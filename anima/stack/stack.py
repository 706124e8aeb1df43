"""The whole stack: all parts up, or none."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

from anima.home import Home
from anima.stack import parts
from anima.stack.addresses import Addresses, HomeLock, write_addresses
from anima.stack.ports import HOST, Ports
from anima.stack.process import Child, Part, Say, StackError


class Stack:
    """Runs Temporal, the gateway, the orchestrator and the small model on loopback.

    An async context: inside it every part is ready, and each one that dies is
    started again; after it all have stopped.  Jobs are not parts: they survive.

    Args:
        home: the directory of all data; created if need be.
        ports: where to listen.
        say: told one line for each step.
        environ: what the parts inherit, without keys of model providers.
    """

    def __init__(self, home: Home, ports: Ports, say: Say, environ: Mapping[str, str] = os.environ) -> None:
        self._home = home
        self._ports = ports
        self._say = say
        self._environ = environ
        self._closing = AsyncExitStack()
        self.children: list[Child] = []

    async def __aenter__(self) -> Addresses:
        """Start everything.

        Raises:
            StackError: it cannot start; whatever had started has stopped again.
        """
        async with AsyncExitStack() as closing:
            addresses = await self._start(closing)
            self._closing = closing.pop_all()
        return addresses

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    async def _start(self, closing: AsyncExitStack) -> Addresses:
        _prepare(self._home)
        closing.enter_context(HomeLock(self._home))
        ports = self._ports.claim()
        chosen = self._parts(ports)
        addresses = _addresses(ports, model=any(part.name == "model" for part in chosen))
        environment = parts.environment(self._home, addresses, ports, self._environ)
        for part in chosen:
            child = Child(part, environment, self._home.root, self._home.logs / f"{part.name}.log", self._say)
            closing.push_async_callback(child.stop)
            self.children.append(child)
        await self._all_ready()
        if all(child.name != "model" for child in self.children):
            addresses = replace(addresses, model=None)
        write_addresses(self._home, addresses)
        closing.callback(self._home.stack.unlink, missing_ok=True)
        return addresses

    def _parts(self, ports: Ports) -> list[Part]:
        # They stop in reverse: nobody loses what it depends on while it stops.
        model = parts.small_model(ports)
        if model is None:
            self._say("the small model is not installed: Providers of type local cannot answer")
        chosen = [parts.temporal(self._home, ports), model, parts.gateway(ports), parts.orchestrator(self._home)]
        return [part for part in chosen if part is not None]

    async def _all_ready(self) -> None:
        began = monotonic()
        starting = [asyncio.create_task(self._one_ready(child, began)) for child in self.children]
        try:
            await asyncio.gather(*starting)
        finally:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)

    async def _one_ready(self, child: Child, began: float) -> None:
        try:
            await child.start()
        except StackError as error:
            if not child.optional:
                raise
            self._say(f"{error}\nEverything else goes on without {child.name}.")
            self.children.remove(child)
            await child.stop()
        else:
            self._say(f"{child.name} is ready after {monotonic() - began:.1f} s")


def _addresses(ports: Ports, *, model: bool) -> Addresses:
    return Addresses(
        gateway=f"http://{HOST}:{ports.gateway}",
        temporal=f"{HOST}:{ports.temporal}",
        ui=f"http://{HOST}:{ports.ui}",
        model=f"http://{HOST}:{ports.model}/v1" if model else None,
        pid=os.getpid(),
    )


def _prepare(home: Home) -> None:
    try:
        home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in (home.run, home.logs):
            directory.mkdir(mode=0o700, exist_ok=True)
            _check_writable(directory)
    except OSError as error:
        raise StackError(
            f"the home {home.root} cannot be used: {error.strerror or error}; "
            "set ANIMA_HOME to a directory that you can write to"
        ) from None
    # Left by a stack that was killed.
    with suppress(FileNotFoundError):
        (home.run / "orchestrator.ready").unlink()


def _check_writable(directory: Path) -> None:
    probe = directory / ".writable"
    probe.touch()
    probe.unlink()
