"""What a Task does while somebody waits, on standard error."""

import asyncio
from contextlib import suppress

import typer
from pydantic import JsonValue

from anima.cli.output import printable
from anima.gateway import Gateway
from anima.handle import TaskHandle
from anima.model.attempts import ProgressEvent
from anima.model.errors import NotFound, Unavailable
from anima.model.task import TaskStatus

LOOK_EVERY = 0.5
"""Seconds between two looks."""


class Progress:
    """Prints each change of a Task's phase and attempt, and each step of its worker."""

    def __init__(self, handle: TaskHandle, gateway: Gateway) -> None:
        self._handle = handle
        self._gateway = gateway
        self._line = ""
        self._attempts = 0
        self._sequence = -1

    async def until_ended(self) -> TaskStatus:
        """Print until the Task has ended, and return its final status."""
        ended = asyncio.create_task(self._handle.wait())
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=LOOK_EVERY)
                # Whoever is away now may be back at the next look; `wait` decides.
                with suppress(NotFound, Unavailable):
                    await self._look()
            return await ended
        finally:
            ended.cancel()

    async def _look(self) -> None:
        status = await self._handle.status()
        if status.total_attempts != self._attempts:
            self._attempts, self._sequence = status.total_attempts, -1
        if not status.phase.final:
            self._tell_status(status)
        page = await self._gateway.events(self._handle.namespace, self._handle.name, self._sequence)
        for event in page.events:
            self._sequence = event.sequence
            self.show(event)
        # The end comes after what led to it.
        if status.phase.final:
            self._tell_status(status)

    def show(self, event: ProgressEvent) -> None:
        """Print one step of the worker."""
        if line := _told(event):
            self.tell(line)

    def tell(self, line: str) -> None:
        """Print one line."""
        typer.secho(printable(line), err=True, dim=True)

    def _tell_status(self, status: TaskStatus) -> None:
        line = _described(status)
        if line != self._line:
            self.tell(line)
        self._line = line


def _described(status: TaskStatus) -> str:
    parts = [status.phase.value]
    if status.attempt:
        parts.append(f"attempt {status.attempt}")
    if status.soul_binding is not None:
        parts.append(f"soul {status.soul_binding.soul_digest}")
    if status.holds:
        parts.append(f"held by {', '.join(status.holds)}")
    # Whoever waited reports how it ended, with the reason and what to do.
    if status.message and not status.phase.final:
        parts.append(status.message)
    return ", ".join(parts)


def _told(event: ProgressEvent) -> str:
    match event.kind:
        case "started":
            return f"asking {event.data.get('model')}"
        case "retry":
            return f"asking again: {event.data.get('cause')}"
        case "transcript":
            return _given(event.data)
        case "text":
            return ""
        case other:
            return other


def _given(data: dict[str, JsonValue]) -> str:
    messages, left_out = data.get("messages"), data.get("leftOut")
    if not messages and not left_out:
        return ""
    return f"with {messages} earlier messages of its Session" + (f", without {left_out} older ones" if left_out else "")
