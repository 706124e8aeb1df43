"""Reading a transcript out of a real database: the same again, and as little as is needed."""

import itertools
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from activities.transcripts import TranscriptReader
from anima.model.errors import Conflict, LockLost, NotFound
from anima.model.session import Message, Role, SessionLock, SessionRecord
from anima.model.transcript import DEFAULT_BUDGET, LOCAL_BUDGET, MIN_BUDGET
from anima.stores.migrations import migrate
from anima.stores.sql import SqlSessions, open_engine, sqlite_url


class CountingSessions(SqlSessions):
    """Counts the records that were read."""

    read = 0

    async def records(self, *name: str, **query: Any) -> Sequence[SessionRecord]:
        page = await super().records(*name, **query)
        self.read += len(page)
        return page


@pytest.fixture
async def sessions(tmp_path: Path) -> AsyncIterator[CountingSessions]:
    engine = open_engine(sqlite_url(tmp_path / "anima.db"))
    await migrate(engine)
    numbers = itertools.count(1)
    yield CountingSessions(engine, lambda: datetime(2026, 11, 30, tzinfo=UTC), lambda: f"uid-{next(numbers)}")
    await engine.dispose()


@pytest.fixture
def reader(sessions: CountingSessions) -> TranscriptReader:
    return TranscriptReader(sessions)


def turns(count: int, size: int = 100) -> list[Message]:
    return [
        message
        for number in range(count)
        for message in (
            Message(role=Role.USER, content=f"question {number} " + "?" * size),
            Message(role=Role.ASSISTANT, content=f"answer {number} " + "!" * size),
        )
    ]


async def begun(sessions: SqlSessions, messages: Sequence[Message], name: str = "harbour") -> SessionLock:
    status = await sessions.import_messages("default", name, messages)
    return SessionLock(session_uid=status.uid, namespace="default", session=name, task_uid="task", token=1)


async def test_what_is_read_is_what_was_referred_to(sessions: CountingSessions, reader: TranscriptReader) -> None:
    lock = await begun(sessions, turns(200))
    reference = await reader.reference(lock, LOCAL_BUDGET)
    assert (reference.session, reference.through, reference.messages) == ("harbour", 400, 400)
    transcript = await reader.read("default", reference)
    assert transcript.digest == reference.digest
    assert transcript.messages[-1].content.startswith("answer 199 ")
    assert transcript.left_out_messages == 400 - len(transcript.messages)
    assert 40 < len(transcript.messages) < 80


async def test_the_same_session_and_budget_give_the_same_reference(
    sessions: CountingSessions, reader: TranscriptReader
) -> None:
    lock = await begun(sessions, turns(100))
    assert await reader.reference(lock, MIN_BUDGET) == await reader.reference(lock, MIN_BUDGET)
    assert (await reader.reference(lock, MIN_BUDGET)).digest != (await reader.reference(lock, LOCAL_BUDGET)).digest


async def test_a_session_without_messages_gives_an_empty_transcript(
    sessions: CountingSessions, reader: TranscriptReader
) -> None:
    reference = await reader.reference(await begun(sessions, []), DEFAULT_BUDGET)
    assert (reference.through, reference.messages) == (0, 0)
    assert (await reader.read("default", reference)).messages == []


async def test_what_is_added_later_is_not_read(sessions: CountingSessions, reader: TranscriptReader) -> None:
    """A reference to an earlier state is to that state for ever."""
    lock = await begun(sessions, turns(5))
    early = (await reader.reference(lock, DEFAULT_BUDGET)).model_copy(update={"through": 4, "messages": 4})
    composed = await reader.reference(await begun(sessions, turns(2), "other"), DEFAULT_BUDGET)
    transcript = await reader.read("default", early.model_copy(update={"digest": composed.digest}))
    assert [message.content[:10] for message in transcript.messages] == [
        "question 0",
        "answer 0 !",
        "question 1",
        "answer 1 !",
    ]


async def test_a_session_twenty_times_as_long_is_read_no_further(
    sessions: CountingSessions, reader: TranscriptReader
) -> None:
    read = []
    for count in (200, 4000):
        lock = await begun(sessions, turns(count), f"of-{count}")
        sessions.read = 0
        await reader.reference(lock, LOCAL_BUDGET)
        read.append(sessions.read)
    assert read[0] == read[1] < 200


async def test_a_user_message_far_back_is_found(sessions: CountingSessions, reader: TranscriptReader) -> None:
    answers = [Message(role=Role.ASSISTANT, content=f"step {number} " + "." * 300) for number in range(300)]
    lock = await begun(sessions, [*turns(3), Message(role=Role.USER, content="Go on"), *answers])
    transcript = await reader.read("default", await reader.reference(lock, MIN_BUDGET))
    assert transcript.messages[0].content.endswith("\n\nGo on")
    assert transcript.messages[-1].content.startswith("step 299")


async def test_another_session_of_the_same_name_is_refused(
    sessions: CountingSessions, reader: TranscriptReader
) -> None:
    lock = await begun(sessions, turns(2))
    reference = await reader.reference(lock, DEFAULT_BUDGET)
    await sessions.delete("default", "harbour")
    with pytest.raises(NotFound):
        await reader.read("default", reference)
    await begun(sessions, turns(2))
    with pytest.raises(Conflict, match="default/harbour was deleted"):
        await reader.read("default", reference)
    with pytest.raises(LockLost):
        await reader.reference(lock, DEFAULT_BUDGET)


async def test_other_records_than_those_referred_to_are_refused(
    sessions: CountingSessions, reader: TranscriptReader
) -> None:
    reference = await reader.reference(await begun(sessions, turns(2)), DEFAULT_BUDGET)
    with pytest.raises(Conflict, match=f"changed up to record 3: .* created for {reference.digest}"):
        await reader.read("default", reference.model_copy(update={"through": 3}))
