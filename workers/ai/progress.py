"""Progress events: text in a few larger pieces, in order, never in the way."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pydantic import JsonValue

from anima.model.attempts import MAX_EVENTS, ProgressEvent
from anima.model.errors import Unavailable

_MAX_DELTA_BYTES = 8 * 1024


class Progress:
    """Collects what happens and sends it now and then.

    A reader joins the deltas of the `text` events; after a `retry` event the
    answer begins anew.

    Args:
        send: delivers one event; may be tried again with the same event.
        interval: the least number of seconds between two deliveries.
    """

    def __init__(self, send: Callable[[ProgressEvent], Awaitable[None]], interval: float) -> None:
        self._send = send
        self._interval = interval
        self._text: list[str] = []
        self._waiting: deque[ProgressEvent] = deque()
        self._sequence = 0
        self._news = asyncio.Event()

    def started(self, model: str) -> None:
        """Tell that `model` is about to be asked."""
        self._add("started", {"model": model})

    def transcript(self, messages: int, left_out: int) -> None:
        """Tell how many earlier messages the model is given, and how many it is not."""
        self._add("transcript", {"messages": messages, "leftOut": left_out})

    def text(self, delta: str) -> None:
        """Tell of more text of the answer."""
        if delta:
            self._text.append(delta)
            self._news.set()

    def retry(self, cause: str, delay: float) -> None:
        """Tell that the answer begins anew after `delay` seconds."""
        self._seal()
        self._add("retry", {"cause": cause, "delaySeconds": round(delay, 3)})

    async def pump(self) -> None:
        """Deliver until cancelled; what cannot be delivered now is kept for later.

        Raises:
            AttemptOver: the attempt is decided; nobody listens any more.
        """
        while True:
            await self._news.wait()
            await asyncio.sleep(self._interval)
            with suppress(Unavailable):
                await self._deliver()

    async def finish(self, within: float) -> None:
        """Deliver the rest if that is possible `within` so many seconds."""
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(within):
                await self._deliver()

    async def _deliver(self) -> None:
        self._seal()
        while self._waiting:
            await self._send(self._waiting[0])
            self._waiting.popleft()
        if not self._text:
            self._news.clear()

    def _seal(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        for piece in _pieces(text):
            self._add("text", {"delta": piece})

    def _add(self, kind: str, data: dict[str, JsonValue]) -> None:
        # The gateway keeps only so many; the report brings the whole answer anyway.
        if self._sequence < MAX_EVENTS:
            self._waiting.append(ProgressEvent(sequence=self._sequence, kind=kind, data=data))
            self._sequence += 1
            self._news.set()


def _pieces(text: str) -> list[str]:
    """Cut text so that each piece is small enough as JSON, escapes included."""
    if not text:
        return []
    if len(json.dumps(text, ensure_ascii=False).encode()) <= _MAX_DELTA_BYTES:
        return [text]
    middle = len(text) // 2
    return _pieces(text[:middle]) + _pieces(text[middle:])
