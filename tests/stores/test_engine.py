"""What a database tells when it fails, and what it never tells."""

import asyncio
import logging
import sqlite3
import stat
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from anima.model.agent import Agent
from anima.model.errors import Refusal, Unavailable
from anima.model.reasons import Reason
from anima.model.resources import ConfigMap
from anima.model.task import TaskSpec
from anima.stores.migrations import migrate
from anima.stores.ports import Catalog, Ledger
from anima.stores.sql import SqlCatalog, SqlLedger, open_engine, sqlite_url
from anima.stores.sql import engine as engine_module

SOUL = "You are a walrus of few words."
AGENT = Agent.model_validate({
    "apiVersion": "anima.dev/v1alpha1",
    "kind": "Agent",
    "metadata": {"name": "walrus"},
    "spec": {"soul": {"inline": SOUL}},
})  # fmt: skip
SPEC = TaskSpec.model_validate({"type": "ai", "agentRef": {"name": "walrus"}, "prompt": "Say hello."})
SUBMITTED = datetime(2026, 11, 30, 11, tzinfo=UTC)
on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
on_postgresql = pytest.mark.parametrize("url", [pytest.param("postgresql", marks=pytest.mark.verify)], indirect=True)


@asynccontextmanager
async def opened(url: URL, clock: Any) -> AsyncIterator[tuple[SqlCatalog, SqlLedger]]:
    engine = open_engine(url)
    try:
        await migrate(engine)
        yield SqlCatalog(engine, clock, lambda: "uid"), SqlLedger(engine, clock)
    finally:
        await engine.dispose()


async def run(engine: AsyncEngine, statement: str) -> Any:
    async with engine.connect() as connection:
        result = await connection.exec_driver_sql(statement)
        await connection.commit()
        return result.scalar() if result.returns_rows else None


def everything_shown(error: BaseException) -> str:
    """What any formatter could print of an error: frames, locals and causes."""
    shown = repr(error) + str(error)
    seen: BaseException | None = error
    while seen is not None:
        details = traceback.TracebackException.from_exception(seen, capture_locals=True)
        shown += "".join(details.format())
        seen = seen.__cause__ or seen.__context__
    return shown


@pytest.mark.parametrize("name", ["with space", "100%", "what?", "a#b", "é'\";"])
async def test_a_path_may_have_any_characters(tmp_path: Path, clock: Any, name: str) -> None:
    directory = tmp_path / name
    directory.mkdir()
    async with opened(sqlite_url(directory / "anima.db"), clock) as (catalog, _):
        await catalog.apply(AGENT)
    assert [path.name for path in directory.iterdir()] == ["anima.db"]


async def test_the_files_are_for_their_owner_only(tmp_path: Path, clock: Any) -> None:
    async with opened(sqlite_url(tmp_path / "anima.db"), clock) as (catalog, _):
        await catalog.apply(AGENT)
        modes = [stat.S_IMODE((tmp_path / f"anima.db{suffix}").stat().st_mode) for suffix in ("", "-wal", "-shm")]
    assert modes == [0o600, 0o600, 0o600]


@on_sqlite
async def test_each_connection_is_durable_and_checks_references(engine: AsyncEngine) -> None:
    wanted = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000}
    assert {name: await run(engine, f"PRAGMA {name}") for name in wanted} == wanted


def test_a_new_database_is_in_wal_mode_before_anyone_connects(tmp_path: Path) -> None:
    open_engine(sqlite_url(tmp_path / "anima.db"))
    # The file format's read and write versions: 2 is WAL.
    assert (tmp_path / "anima.db").read_bytes()[18:20] == b"\2\2"


async def test_a_database_that_cannot_be_created_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file or directory"):
        open_engine(sqlite_url(tmp_path / "missing" / "anima.db"))


async def test_a_database_that_vanished_is_unavailable(tmp_path: Path, clock: Any) -> None:
    directory = tmp_path / "home"
    directory.mkdir()
    engine = open_engine(sqlite_url(directory / "anima.db"))
    (directory / "anima.db").unlink()
    directory.rmdir()
    with pytest.raises(Unavailable, match="cannot be opened"):
        await SqlCatalog(engine, clock, lambda: "uid").list(Agent)


async def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "anima.db").write_text("This is a letter, not a database. " * 100)
    engine = open_engine(sqlite_url(tmp_path / "anima.db"))
    with pytest.raises(Unavailable, match="not an Anima database"):
        await migrate(engine)
    await engine.dispose()


async def test_a_locked_database_is_unavailable_and_readable(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT", 0.01)
    async with opened(sqlite_url(tmp_path / "anima.db"), clock) as (catalog, _):
        holder = sqlite3.connect(tmp_path / "anima.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked by another process"):
            await catalog.apply(AGENT)
        assert await catalog.list(Agent) == []
        holder.rollback()
        await catalog.apply(AGENT)
        holder.close()


@on_sqlite
async def test_a_read_only_database_is_unavailable(engine: AsyncEngine, catalog: Catalog) -> None:
    await run(engine, "PRAGMA query_only = ON")
    with pytest.raises(Unavailable, match="read-only"):
        await catalog.apply(AGENT)


@on_sqlite
async def test_a_full_disk_is_unavailable_and_leaves_nothing_half_done(engine: AsyncEngine, catalog: Catalog) -> None:
    await run(engine, f"PRAGMA max_page_count = {await run(engine, 'PRAGMA page_count')}")
    large = ConfigMap.model_validate({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"key": "x" * 100_000},
    })  # fmt: skip
    with pytest.raises(Unavailable, match="disk is full"):
        await catalog.apply(large)
    await run(engine, "PRAGMA max_page_count = 1000000")
    assert await catalog.list(ConfigMap) == []
    assert (await catalog.apply(large)).resource.metadata.resource_version == "1"


async def test_an_object_that_this_version_cannot_read_is_unavailable(engine: AsyncEngine, catalog: Catalog) -> None:
    await catalog.apply(AGENT)
    async with engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE resources SET body = replace(body, '\"soul\"', '\"ghost\"')")
    with pytest.raises(Unavailable, match="stored Agent cannot be read") as caught:
        await catalog.get(Agent, "default", "walrus")
    shown = everything_shown(caught.value)
    assert "walrus of few words" not in shown


SCHEMAS = {
    "no column": ("CREATE TABLE resources (id INTEGER)", {"sqlite": "SQLITE_ERROR", "postgresql": "42703"}),
    "a check": (
        "CREATE TABLE resources (kind TEXT, namespace TEXT, name TEXT, uid TEXT, body TEXT CHECK (length(body) < 0))",
        {"sqlite": "SQLITE_CONSTRAINT_CHECK", "postgresql": "23514"},
    ),
}


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_a_failing_database_tells_no_persona(engine: AsyncEngine, catalog: Catalog, schema: str) -> None:
    statement, codes = SCHEMAS[schema]
    await run(engine, "DROP TABLE resources")
    await run(engine, statement)
    with pytest.raises(Unavailable, match=codes[engine.dialect.name]) as caught:
        await catalog.apply(AGENT)
    shown = everything_shown(caught.value)
    assert "walrus of few words" not in shown


async def test_a_verbose_log_tells_no_persona(url: URL, clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("", "aiosqlite", "asyncpg", "sqlalchemy.engine", "sqlalchemy.pool", "asyncio"):
        caplog.set_level(logging.DEBUG, logger=name)
    async with opened(url, clock) as (catalog, _):
        await catalog.apply(AGENT)
        await catalog.get(Agent, "default", "walrus")
    assert "INSERT INTO resources" in caplog.text
    assert "Row" in caplog.text
    assert "walrus of few words" not in caplog.text


async def test_a_cancelled_call_leaves_all_or_nothing_and_blocks_nobody(ledger: Ledger) -> None:
    for turns in range(40):
        call = asyncio.ensure_future(ledger.admit("default", f"t{turns}", f"t{turns}", "id", SPEC, SUBMITTED))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    await ledger.admit("default", "last", "last", "id", SPEC, SUBMITTED)
    for record in await ledger.tasks():
        assert record.spec == SPEC
    assert (await ledger.tasks())[0].name == "last"


@on_postgresql
async def test_a_connection_that_was_cut_is_replaced(engine: AsyncEngine, catalog: Catalog) -> None:
    await catalog.apply(AGENT)
    other = open_engine(engine.url)
    await run(other, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    await other.dispose()
    assert [agent.name for agent in await catalog.list(Agent)] == ["walrus"]


CUT = """
CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$
"""


@on_postgresql
async def test_a_transaction_that_is_cut_is_unavailable_and_leaves_nothing(
    engine: AsyncEngine, catalog: Catalog
) -> None:
    await run(engine, CUT)
    await run(engine, "CREATE TRIGGER cut AFTER INSERT ON resources FOR EACH ROW EXECUTE FUNCTION cut()")
    with pytest.raises(Unavailable) as caught:
        await catalog.apply(AGENT)
    shown = everything_shown(caught.value)
    assert "walrus of few words" not in shown
    assert await catalog.list(Agent) == []


@on_postgresql
async def test_a_missing_database_is_unavailable(url: URL) -> None:
    with pytest.raises(Unavailable, match=r"3D000.*no database of that name"):
        await migrate(open_engine(url.set(database="missing")))


@on_postgresql
async def test_a_user_that_is_refused_is_unavailable(url: URL) -> None:
    with pytest.raises(Unavailable, match="refuses the user"):
        await migrate(open_engine(url.set(username="stranger")))


@on_postgresql
async def test_a_server_that_does_not_write_is_unavailable(engine: AsyncEngine, catalog: Catalog) -> None:
    await run(engine, f'ALTER DATABASE "{engine.url.database}" SET default_transaction_read_only = on')
    await engine.dispose()
    with pytest.raises(Unavailable, match=r"25006.*read-only"):
        await catalog.apply(AGENT)


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        ("postgresql+asyncpg://anima@127.0.0.1:1/anima", "no server answers"),
        ("postgresql+asyncpg://anima@/anima?host={directory}", "no server answers"),
        ("postgresql+asyncpg://anima@host.invalid/anima", "name of its host is unknown"),
    ],
)
async def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path, address: str, cause: str) -> None:
    with pytest.raises(Unavailable, match=cause):
        await migrate(open_engine(address.format(directory=tmp_path)))


def test_an_address_whose_driver_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(Refusal, match=r"anima\[postgresql\]") as caught:
        open_engine("postgresql+asyncpg://anima:word@db/anima")
    assert caught.value.reason is Reason.SETTING_INVALID
    assert "word" not in caught.value.message
