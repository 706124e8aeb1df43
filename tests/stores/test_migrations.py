"""The history of the tables."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import URL, Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from anima.model.agent import Agent
from anima.model.errors import Unavailable
from anima.stores.migrations import migrate
from anima.stores.ports import Catalog
from anima.stores.sql import open_engine, sqlite_url
from anima.stores.sql.tables import metadata

MIGRATE = """
import asyncio, sys
from anima.stores.migrations import migrate
from anima.stores.sql import open_engine
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
asyncio.run(migrate(open_engine(sys.argv[1])))
"""


async def test_the_migrations_make_the_tables_that_the_stores_use(engine: AsyncEngine) -> None:
    def differences(connection: Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))

    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_migrating_again_keeps_what_is_stored(engine: AsyncEngine, catalog: Catalog) -> None:
    agent = Agent.model_validate({
        "apiVersion": "anima.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "a"}, "spec": {},
    })  # fmt: skip
    applied = await catalog.apply(agent)
    await migrate(engine)
    assert await catalog.list(Agent) == [applied.resource]


async def test_a_database_of_a_newer_version_is_left_alone(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Unavailable, match="9999"):
        await migrate(engine)


async def test_connections_that_start_at_once_all_find_the_tables(tmp_path: Path) -> None:
    for number in range(10):
        await race(sqlite_url(tmp_path / f"{number}.db"))


@pytest.mark.verify
async def test_connections_to_postgresql_that_start_at_once_all_find_the_tables(postgresql: URL) -> None:
    await race(postgresql)


async def race(url: URL) -> None:
    engines = [open_engine(url) for _ in range(6)]
    await asyncio.gather(*(migrate(engine) for engine in engines))
    await asyncio.gather(*(engine.dispose() for engine in engines))


def test_processes_that_start_at_once_all_find_the_tables(url: URL) -> None:
    command = [sys.executable, "-c", MIGRATE, url.render_as_string(hide_password=False)]
    pipe = subprocess.PIPE
    racers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(3)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert [(racer.communicate()[1], racer.returncode) for racer in racers] == [("", 0)] * 3
