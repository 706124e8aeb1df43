"""Old messages go by themselves, if the installation says so."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from anima.model.session import Message, Role
from anima.stores.migrations import migrate
from anima.stores.sql import SqlSessions, open_engine, sqlite_url
from tests.doubles.interruptions import Interrupted, Interruption
from workers.orchestrator.retention import RetentionDuty
from workers.settings import Retention

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TURN = [Message(role=Role.USER, content="Hello?"), Message(role=Role.ASSISTANT, content="Hello!")]


@pytest.fixture
async def sessions(tmp_path: Path) -> AsyncIterator[SqlSessions]:
    engine = open_engine(sqlite_url(tmp_path / "anima.db"))
    await migrate(engine)
    numbers = iter(range(1000))
    yield SqlSessions(engine, lambda: NOW, lambda: f"uid-{next(numbers)}")
    await engine.dispose()


async def count(sessions: SqlSessions) -> int:
    return sum(session.messages for session in await sessions.sessions())


async def test_a_round_goes_on_until_nothing_is_left_to_remove(sessions: SqlSessions) -> None:
    for number in range(120):
        await sessions.import_messages("default", f"talk-{number}", TURN)
    later = NOW + timedelta(days=31)

    assert await RetentionDuty(sessions, Retention(timedelta(days=32)), lambda: later).round() == 0
    assert await RetentionDuty(sessions, Retention(timedelta(days=30)), lambda: later).round() == 240
    assert await count(sessions) == 0


async def test_by_default_everything_is_kept(sessions: SqlSessions) -> None:
    await sessions.import_messages("default", "talk", TURN)

    await RetentionDuty(sessions, Retention(), lambda: NOW + timedelta(days=3650)).run()

    assert await count(sessions) == 2


async def test_a_database_that_is_away_is_asked_again(sessions: SqlSessions) -> None:
    await sessions.import_messages("default", "talk", TURN)
    interrupted = Interrupted(sessions)
    interrupted.next["expire"] = [Interruption.BEFORE]
    duty = RetentionDuty(interrupted, Retention(max_messages=0), lambda: NOW, timedelta(0))  # type: ignore[arg-type]

    running = asyncio.create_task(duty.run())
    while await count(sessions):  # noqa: ASYNC110 (a database tells nobody)
        await asyncio.sleep(0)
    running.cancel()
