"""A whole stack on PostgreSQL: the same processes, told only another address."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import URL

from anima.model.wire import Step
from tests.e2e.place import open_place

pytestmark = [pytest.mark.verify, pytest.mark.timeout(300)]


async def test_tasks_run_on_postgresql_through_the_kill_of_each_part(postgresql: URL, tmp_path: Path) -> None:
    address = postgresql.render_as_string(hide_password=False)
    async with open_place(tmp_path, {"ANIMA_DATABASE_URL": address}) as place:
        await place.ready()
        await place.agent("keeper")
        handles = [await place.submit("keeper", f"together-{number}") for number in range(8)]
        await asyncio.gather(*(place.succeeded(handle) for handle in handles))
        for part in ("orchestrator", "gateway"):
            place.arm(Step.SETTLE, "after", part)
            await place.succeeded(await place.submit("keeper", f"without-{part}"))
            assert place.fired_at() is not None
            await place.ready()
        await place.quiet()
        assert not place.home.database.exists()
