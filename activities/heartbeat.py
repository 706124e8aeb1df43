"""Telling Temporal that a long activity is still at work.

Without it, a step whose worker was killed waits for its whole timeout.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity

_BEATS = 3
"""So many within the timeout, so that one that is late does no harm."""


@asynccontextmanager
async def heartbeats() -> AsyncIterator[None]:
    """Beat while the body runs, if the running activity has a heartbeat timeout."""
    timeout = activity.info().heartbeat_timeout
    if not timeout:
        yield
        return
    beating = asyncio.create_task(_beat(timeout / _BEATS))
    try:
        yield
    finally:
        beating.cancel()


async def _beat(interval: timedelta) -> None:
    while True:
        await asyncio.sleep(interval.total_seconds())
        activity.heartbeat()
