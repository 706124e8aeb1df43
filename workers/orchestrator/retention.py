"""Letting old messages go, where the installation has said how long they are kept."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from anima.model.errors import AnimaError
from anima.stores.sessions import Sessions
from workers.settings import Retention

log = logging.getLogger(__name__)


class RetentionDuty:
    """Removes what has expired from all Sessions, now and then.

    Args:
        sessions: where the messages are.
        retention: how long and how many are kept.
        clock: the time.
        interval: between two rounds.
    """

    def __init__(
        self,
        sessions: Sessions,
        retention: Retention,
        clock: Callable[[], datetime],
        interval: timedelta = timedelta(minutes=10),
    ) -> None:
        self._sessions = sessions
        self._retention = retention
        self._clock = clock
        self._interval = interval

    async def run(self) -> None:
        """Do a round now and then, until cancelled; none if everything is kept."""
        while self._retention.limited:
            try:
                await self.round()
            except AnimaError as error:
                log.warning("retention: %s; trying again", type(error).__name__)
            await asyncio.sleep(self._interval.total_seconds())

    async def round(self) -> int:
        """Remove all that has expired by now; return how many messages."""
        age, removed = self._retention.max_age, 0
        before = self._clock() - age if age else None
        while found := await self._sessions.expire(before, self._retention.max_messages):
            removed += found
        if removed:
            log.info("retention: removed %d messages", removed)
        return removed
