"""Hundreds of Tasks wait for one Session: they are served in order, and their waiting costs nothing."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.workflows.waiters import open_waiters

pytestmark = [pytest.mark.verify, pytest.mark.timeout(400)]

FEW, MANY = 50, 500
CACHE = 600
SPAN = timedelta(seconds=10)
# The Session's own workflow, and the metrics that a worker sends about itself.
ASIDE = 10
# Ten times the waiters may cost this much more memory: the cache is bounded.
GROWTH = 1.3


async def test_five_hundred_waiters_are_served_in_order_and_cost_what_fifty_do(tmp_path: Path) -> None:
    async with open_waiters(tmp_path, CACHE) as waiters:
        few = await waiters.cost("few", FEW, SPAN)
        many = await waiters.cost("many", MANY, SPAN)
        assert waiters.requests.cached <= CACHE

    assert many.idle <= few.idle + ASIDE, (few, many)
    assert many.resident <= few.resident * GROWTH, (few, many)
