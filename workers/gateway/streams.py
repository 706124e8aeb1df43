"""Server-sent events: what there is to tell, look by look, until nothing follows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from anima.model.api import END_EVENT
from anima.model.errors import NotFound


@dataclass(frozen=True, slots=True)
class Look:
    """What one look has found.

    Args:
        events: to be sent, each a whole `server_sent`.
        last: nothing follows them.
        waits_for: why there is nothing, for whoever reads the stream as text.
    """

    events: list[str]
    last: bool = False
    waits_for: str = "nothing new"


def server_sent(data: str, *, event: str | None = None, identifier: str | None = None) -> str:
    """Write one event.

    Args:
        data: in one line, as JSON is.
        event: its type, if it is not the stream's usual one.
        identifier: what a reader gives back as `Last-Event-ID` to go on after it.
    """
    head = f"id: {identifier}\n" if identifier is not None else ""
    return f"{head}event: {event}\ndata: {data}\n\n" if event else f"{head}data: {data}\n\n"


async def stream(
    look: Callable[[], Awaitable[Look]], interval: timedelta, ending: Callable[[], bool]
) -> AsyncIterator[str]:
    """Yield what each look finds, and the end event after the last.

    A gateway that ends leaves the stream without its end event; what is deleted
    meanwhile ends it in order.

    Args:
        look: finds what is new since the look before.
        interval: the pause after a look that found nothing.
        ending: tells whether the gateway ends.
    """
    try:
        while True:
            found = await look()
            for event in found.events:
                yield event
            if found.last:
                break
            if not found.events:
                if ending():
                    return
                yield f": {found.waits_for}\n\n"
                await asyncio.sleep(interval.total_seconds())
    except NotFound:
        pass  # It was deleted meanwhile.
    yield server_sent("{}", event=END_EVENT)
