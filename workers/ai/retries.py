"""How often and how long to try again, for the gateway and for providers."""

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Tries, counting the first, and the seconds that they may take together."""

    tries: int
    total: float
    first_delay: float = 0.5
    max_delay: float = 20.0


class Retries:
    """One budget of tries: the pause doubles, with jitter, within the limits.

    Args:
        limits: how much is allowed.
        clock: seconds that never go back.
        jitter: a number from 0 to 1.
    """

    def __init__(self, limits: RetryLimits, clock: Callable[[], float], jitter: Callable[[], float] = random.random):
        self._limits = limits
        self._clock = clock
        self._jitter = jitter
        self._started = clock()
        self._used = 0

    def next_delay(self, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait before the next try; none if there is none.

        Args:
            retry_after: seconds that the other side asked for; never undercut.
        """
        self._used += 1
        step = min(self._limits.first_delay * 2 ** min(self._used - 1, 32), self._limits.max_delay)
        delay = step * (0.5 + self._jitter() / 2) + (retry_after or 0.0)
        left = self._started + self._limits.total - self._clock()
        return delay if self._used < self._limits.tries and delay <= left else None
