"""Every implementation of Catalog, Ledger and Sessions, for the one contract suite.

A database is one line in `DATABASES` and a fixture that gives its address; a Catalog
without SQL is one more branch in `catalog`.
"""

import itertools
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from anima.stores.migrations import migrate
from anima.stores.ports import Catalog, Ledger
from anima.stores.sessions import Conversations, Sessions
from anima.stores.sql import SqlCatalog, SqlConversations, SqlLedger, SqlSessions, open_engine, sqlite_url

DATABASES = [
    pytest.param("sqlite", id="sqlite"),
    pytest.param("postgresql", id="postgresql", marks=pytest.mark.verify),
]


class Clock:
    """A time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, 12, 0, 0, 250_000, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **span: float) -> None:
        self.now += timedelta(**span)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def new_uid() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"uid-{next(numbers)}"


@pytest.fixture
def sqlite(tmp_path: Path) -> URL:
    return sqlite_url(tmp_path / "anima.db")


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest) -> URL:
    address: URL = request.getfixturevalue(request.param)
    return address


@pytest.fixture
async def engine(url: URL) -> AsyncIterator[AsyncEngine]:
    engine = open_engine(url)
    await migrate(engine)
    yield engine
    await engine.dispose()


@pytest.fixture
async def other_engine(url: URL, engine: AsyncEngine) -> AsyncIterator[AsyncEngine]:
    """The same database, as another process opens it."""
    other = open_engine(url)
    yield other
    await other.dispose()


@pytest.fixture
def catalog(engine: AsyncEngine, clock: Clock, new_uid: Callable[[], str]) -> Catalog:
    return SqlCatalog(engine, clock, new_uid)


@pytest.fixture
def other_catalog(other_engine: AsyncEngine, clock: Clock, new_uid: Callable[[], str]) -> Catalog:
    return SqlCatalog(other_engine, clock, new_uid)


@pytest.fixture
def ledger(engine: AsyncEngine, clock: Clock) -> Ledger:
    return SqlLedger(engine, clock)


@pytest.fixture
def other_ledger(other_engine: AsyncEngine, clock: Clock) -> Ledger:
    return SqlLedger(other_engine, clock)


@pytest.fixture
def sessions(engine: AsyncEngine, clock: Clock, new_uid: Callable[[], str]) -> Sessions:
    return SqlSessions(engine, clock, new_uid)


@pytest.fixture
def other_sessions(other_engine: AsyncEngine, clock: Clock, new_uid: Callable[[], str]) -> Sessions:
    return SqlSessions(other_engine, clock, new_uid)


@pytest.fixture
def conversations(engine: AsyncEngine, clock: Clock, new_uid: Callable[[], str]) -> Conversations:
    return SqlConversations(engine, clock, new_uid)


@pytest.fixture
def other_conversations(other_engine: AsyncEngine, clock: Clock, new_uid: Callable[[], str]) -> Conversations:
    return SqlConversations(other_engine, clock, new_uid)
