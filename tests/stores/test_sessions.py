"""The contract of the Sessions port: pins, turns, and what is read of them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import event, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from anima.model.binding import Revision
from anima.model.errors import Conflict, LockLost, NotFound, Refusal, Unavailable
from anima.model.reasons import Reason
from anima.model.session import (
    MAX_CONTENT_BYTES,
    Claimant,
    Identity,
    Message,
    Role,
    SessionLock,
    ToolCall,
    Turn,
)
from anima.model.transcript import storable
from anima.stores.ports import Ledger
from anima.stores.sessions import Sessions
from anima.stores.sql import tables
from tests.stores.claimants import conversation, end, lock, revision, rows, task, tasks
from tests.stores.conftest import Clock

PINNED = revision()
USER = Message(role=Role.USER, content="Hello?")
ASSISTANT = Message(role=Role.ASSISTANT, content="Hello.")


def turn(claimant: Claimant, iteration: int = 0, of: Revision | None = PINNED, answer: str = "Hello.") -> Turn:
    return Turn(
        task_uid=claimant.task_uid,
        task=claimant.task,
        iteration=iteration,
        prompt="Hello?",
        answer=answer,
        revision=of,
    )


async def pin(
    sessions: Sessions, ledger: Ledger, name: str, of: Revision | None = PINNED, append: bool = True
) -> Identity | None:
    """Take the Session for a Task, pin it, and go without a turn."""
    claimant = await task(ledger, name)
    try:
        return await sessions.pin(await lock(sessions, claimant), name, of, append)
    finally:
        await sessions.leave("default", "chat", claimant.task_uid)


async def refused(sessions: Sessions, ledger: Ledger, of: Revision | None, append: bool = True) -> Reason:
    """Return why a Task may not use the Session; nothing is written."""
    before = await sessions.session("default", "chat")
    with pytest.raises(Refusal, match="default/chat") as caught:
        await pin(sessions, ledger, "refused", of, append)
    after = await sessions.session("default", "chat")
    assert (after.identity, after.messages) == (before.identity, before.messages)
    return caught.value.reason


async def contents(sessions: Sessions, **which: Any) -> list[str]:
    return [record.content for record in await sessions.records("default", "chat", **which)]


async def identity(sessions: Sessions) -> Identity | None:
    return (await sessions.session("default", "chat")).identity


def numbered(count: int) -> list[Message]:
    return [Message(role=(Role.USER, Role.ASSISTANT)[number % 2], content=f"m{number}") for number in range(count)]


class TestPin:
    async def test_the_first_task_pins_its_revision(self, sessions: Sessions, ledger: Ledger, clock: Clock) -> None:
        pinned = await pin(sessions, ledger, "first")
        assert pinned == Identity(revision=PINNED, task_uid="first-uid", task="first", pinned_at=clock.now)
        assert await identity(sessions) == pinned

    async def test_the_same_revision_continues(self, sessions: Sessions, ledger: Ledger) -> None:
        first = await task(ledger, "first")
        held = await lock(sessions, first)
        pinned = await sessions.pin(held, "first", PINNED, append=True)
        await sessions.append(held, turn(first))
        await sessions.leave("default", "chat", first.task_uid)
        assert await pin(sessions, ledger, "second") == pinned
        assert await identity(sessions) == pinned

    @pytest.mark.parametrize("append", [True, False])
    async def test_the_same_revision_continues_after_an_empty_first_turn(
        self, sessions: Sessions, ledger: Ledger, append: bool
    ) -> None:
        pinned = await pin(sessions, ledger, "first")
        assert await pin(sessions, ledger, "second", append=append) == pinned

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param(revision(generation=2), id="a text that was changed and reverted"),
            pytest.param(PINNED.model_copy(update={"agent_uid": "another-uid"}), id="an Agent that was recreated"),
            pytest.param(revision(soul="You are long-winded."), id="another soul"),
            pytest.param(PINNED.model_copy(update={"prompt_digest": PINNED.soul_digest}), id="another role"),
            pytest.param(PINNED.model_copy(update={"envelope_version": 2}), id="another envelope"),
            pytest.param(None, id="a soul that was removed"),
        ],
    )
    async def test_another_revision_is_refused(
        self, sessions: Sessions, ledger: Ledger, other: Revision | None
    ) -> None:
        await pin(sessions, ledger, "first")
        assert await refused(sessions, ledger, other) is Reason.SESSION_SOUL_MISMATCH

    @pytest.mark.parametrize("append", [True, False])
    async def test_a_session_that_began_without_a_soul_gets_none(
        self, sessions: Sessions, ledger: Ledger, append: bool
    ) -> None:
        pinned = await pin(sessions, ledger, "first", None, append)
        assert pinned is not None
        assert pinned.revision is None
        assert await identity(sessions) == pinned
        assert await refused(sessions, ledger, PINNED) is Reason.SESSION_SOUL_MISMATCH

    async def test_absence_pins_absence_only_so_role_and_agent_may_change(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        pinned = await pin(sessions, ledger, "first", None)
        for name, append in (("of-another-agent", True), ("of-another-role", False)):
            assert await pin(sessions, ledger, name, None, append) == pinned

    async def test_a_soul_cannot_join_imported_history(self, sessions: Sessions, ledger: Ledger) -> None:
        await sessions.import_messages("default", "chat", [USER, ASSISTANT])
        assert await refused(sessions, ledger, PINNED) is Reason.SESSION_UNPINNED_HISTORY

    async def test_imported_history_goes_on_without_a_soul(self, sessions: Sessions, ledger: Ledger) -> None:
        await sessions.import_messages("default", "chat", [USER, ASSISTANT])
        pinned = await pin(sessions, ledger, "first", None)
        assert pinned is not None
        assert pinned.digest is None
        assert await refused(sessions, ledger, PINNED) is Reason.SESSION_SOUL_MISMATCH

    async def test_failures_that_establish_nothing_are_no_history(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        await sessions.import_messages("default", "chat", [USER, ASSISTANT])
        async with engine.begin() as connection:
            await connection.execute(update(tables.session_records).values(unbound=True))
        pinned = await pin(sessions, ledger, "first")
        assert pinned is not None
        assert pinned.revision == PINNED

    async def test_a_new_soul_session_must_append_its_first_turn(self, sessions: Sessions, ledger: Ledger) -> None:
        await lock(sessions, await task(ledger, "idle"))
        await sessions.leave("default", "chat", "idle-uid")
        assert await refused(sessions, ledger, PINNED, append=False) is Reason.SESSION_MUST_APPEND
        assert await pin(sessions, ledger, "second") is not None

    async def test_a_pin_whose_answer_was_lost_is_the_same_again(
        self, sessions: Sessions, ledger: Ledger, clock: Clock
    ) -> None:
        held = await lock(sessions, await task(ledger, "first"))
        pinned = await sessions.pin(held, "first", PINNED, append=True)
        clock.advance(hours=1)
        assert await sessions.pin(held, "first", PINNED, append=True) == pinned

    async def test_a_pin_stays_when_its_task_is_gone(self, sessions: Sessions, ledger: Ledger) -> None:
        first = await task(ledger, "first")
        pinned = await sessions.pin(await lock(sessions, first), "first", PINNED, append=True)
        await end(ledger, first)
        await ledger.delete_task("default", "first")
        assert await identity(sessions) == pinned
        assert await refused(sessions, ledger, revision(generation=2)) is Reason.SESSION_SOUL_MISMATCH

    async def test_a_conversation_is_only_checked(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        await conversation(engine, "m1")
        held = await lock(sessions, await task(ledger, "m1"))
        for of in (PINNED, None):
            assert await sessions.pin(held, "m1", of, append=True) is None
        assert (await rows(engine))["session_records"] == 0

    async def test_a_pinned_conversation_refuses_another_revision(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        await conversation(engine, "m1", "m2")
        first, second = await tasks(ledger, "m1", "m2")
        await sessions.append(await lock(sessions, first), turn(first))
        await sessions.leave("default", "chat", first.task_uid)
        held = await lock(sessions, second)
        pinned = await sessions.pin(held, "m2", PINNED, append=True)
        assert pinned is not None
        assert pinned.task == "m1"
        with pytest.raises(Refusal) as caught:
            await sessions.pin(held, "m2", None, append=True)
        assert caught.value.reason is Reason.SESSION_SOUL_MISMATCH


async def stale_locks(sessions: Sessions, ledger: Ledger) -> dict[str, SessionLock]:
    """The second Task has the Session, as the first has left; each lock but its own is stale."""
    first, second = await tasks(ledger, "first", "second")
    old = await lock(sessions, first)
    await sessions.leave("default", "chat", first.task_uid)
    held = await lock(sessions, second)
    return {
        "a lock that was left": old,
        "the token of another": old.model_copy(update={"token": held.token}),
        "a token of before": held.model_copy(update={"token": old.token}),
        "a token that is not given yet": held.model_copy(update={"token": held.token + 1}),
        "another Session": held.model_copy(update={"session_uid": "another-uid"}),
    }


class TestLock:
    async def test_nothing_is_written_under_a_lock_that_is_not_the_tasks(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        for stale in (await stale_locks(sessions, ledger)).values():
            claimant = Claimant(task_uid=stale.task_uid, task="first", workflow_id="x")
            with pytest.raises(LockLost, match="default/chat"):
                await sessions.pin(stale, "first", PINNED, append=True)
            with pytest.raises(LockLost, match="default/chat"):
                await sessions.append(stale, turn(claimant))
        assert (await rows(engine))["session_records"] == 0

    async def test_nothing_is_written_for_a_task_that_is_closed(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        first = await task(ledger, "first")
        held = await lock(sessions, first)
        await end(ledger, first)
        with pytest.raises(LockLost):
            await sessions.pin(held, "first", PINNED, append=True)
        with pytest.raises(LockLost):
            await sessions.append(held, turn(first))
        assert (await rows(engine))["session_records"] == 0

    async def test_a_turn_is_stored_under_its_own_tasks_lock_only(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        first, second = await tasks(ledger, "first", "second")
        held = await lock(sessions, first)
        with pytest.raises(LockLost):
            await sessions.append(held, turn(second))
        assert (await rows(engine))["session_records"] == 0


class TestAppend:
    async def test_a_turn_is_the_users_message_and_its_answer(
        self, sessions: Sessions, ledger: Ledger, clock: Clock
    ) -> None:
        first = await task(ledger, "first")
        held = await lock(sessions, first)
        await sessions.pin(held, "first", PINNED, append=True)
        clock.advance(seconds=1)
        await sessions.append(held, turn(first))
        records = await sessions.records("default", "chat")
        assert [(record.sequence, record.role, record.content) for record in records] == [
            (1, Role.USER, "Hello?"),
            (2, Role.ASSISTANT, "Hello."),
        ]
        for record in records:
            assert (record.task_uid, record.iteration, record.created_at) == ("first-uid", 0, clock.now)
        status = await sessions.session("default", "chat")
        assert (status.messages, status.updated_at) == (2, clock.now)

    @pytest.mark.parametrize("of", [PINNED, None])
    async def test_both_messages_carry_the_revision(
        self, sessions: Sessions, ledger: Ledger, of: Revision | None
    ) -> None:
        first = await task(ledger, "first")
        held = await lock(sessions, first)
        await sessions.pin(held, "first", of, append=True)
        await sessions.append(held, turn(first, of=of))
        digest = of.session_digest if of else None
        assert [record.revision for record in await sessions.records("default", "chat")] == [digest, digest]

    async def test_a_turn_is_stored_once_however_often_it_is_sent(self, sessions: Sessions, ledger: Ledger) -> None:
        first = await task(ledger, "first")
        held = await lock(sessions, first)
        for _ in range(3):
            await sessions.append(held, turn(first))
        await sessions.append(held, turn(first, answer="Something else."))
        assert await contents(sessions) == ["Hello?", "Hello."]
        assert (await sessions.session("default", "chat")).messages == 2

    async def test_a_turn_that_is_stored_is_not_stored_again_under_a_newer_token(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        first, second = await tasks(ledger, "first", "second")
        for claimant in (first, second, first):
            held = await lock(sessions, claimant)
            await sessions.append(held, turn(claimant))
            await sessions.leave("default", "chat", claimant.task_uid)
        assert [record.task_uid for record in await sessions.records("default", "chat")] == [
            *["first-uid"] * 2,
            *["second-uid"] * 2,
        ]

    async def test_a_turn_whose_acknowledgement_was_lost_is_stored_even_if_the_lock_is_lost_since(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        first = await task(ledger, "first")
        held = await lock(sessions, first)
        await sessions.append(held, turn(first))
        await sessions.leave("default", "chat", first.task_uid)
        await end(ledger, first)
        await sessions.append(held, turn(first))
        assert len(await contents(sessions)) == 2

    async def test_each_iteration_has_its_turn(self, sessions: Sessions, ledger: Ledger) -> None:
        first = await task(ledger, "first")
        held = await lock(sessions, first)
        for iteration in (0, 1, 1, 0, 2):
            await sessions.append(held, turn(first, iteration, answer=f"answer {iteration}"))
        assert (await contents(sessions))[1::2] == ["answer 0", "answer 1", "answer 2"]

    async def test_of_racing_writers_one_stores_the_turn(
        self, sessions: Sessions, other_sessions: Sessions, ledger: Ledger
    ) -> None:
        first = await task(ledger, "first")
        held = await lock(sessions, first)
        for iteration in range(10):
            racers = [sessions, other_sessions] * 2
            await asyncio.gather(*(one.append(held, turn(first, iteration)) for one in racers))
        assert [record.sequence for record in await sessions.records("default", "chat")] == list(range(1, 21))

    async def test_a_turn_is_stored_whole_or_not_at_all(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        first = await task(ledger, "first")
        held = await lock(sessions, first)
        for spins in range(30):
            call = asyncio.ensure_future(sessions.append(held, turn(first, spins)))
            for _ in range(spins):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        iterations = [record.iteration for record in await sessions.records("default", "chat")]
        assert iterations[::2] == iterations[1::2]
        assert (await sessions.session("default", "chat")).messages == len(iterations)

    @pytest.mark.parametrize(
        "answer", ["nul \0 nul", "half \ud83e pair", "x" * (5 * 1024 * 1024)], ids=["NUL", "lone surrogate", "5 MB"]
    )
    async def test_no_answer_makes_a_session_unsaveable(self, sessions: Sessions, ledger: Ledger, answer: str) -> None:
        first = await task(ledger, "first")
        await sessions.append(await lock(sessions, first), turn(first, answer=answer))
        stored = (await contents(sessions))[-1]
        assert stored == storable(Message(role=Role.ASSISTANT, content=answer)).content
        assert len(stored.encode()) <= MAX_CONTENT_BYTES


class TestAnswer:
    async def test_an_answer_pins_answers_the_message_and_empties_it(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine, clock: Clock
    ) -> None:
        uid = await conversation(engine, "m1", "m2")
        first = await task(ledger, "m1")
        await sessions.append(await lock(sessions, first), turn(first))
        assert await identity(sessions) == Identity(revision=PINNED, task_uid="m1-uid", task="m1", pinned_at=clock.now)
        messages = tables.conversation_messages
        async with engine.connect() as connection:
            found = (await connection.execute(select(messages).order_by(messages.c.number))).all()
        assert [(row.session_uid, row.number, row.answer, row.content) for row in found] == [
            (uid, 1, 2, ""),
            (uid, 2, None, "Hello?"),
        ]

    async def test_an_answer_without_a_soul_pins_absence(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        await conversation(engine, "m1")
        first = await task(ledger, "m1")
        await sessions.append(await lock(sessions, first), turn(first, of=None))
        pinned = await identity(sessions)
        assert pinned is not None
        assert pinned.digest is None

    async def test_the_first_identity_of_a_conversation_stays(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        await conversation(engine, "m1", "m2")
        first, second = await tasks(ledger, "m1", "m2")
        for claimant in (first, second):
            await sessions.append(await lock(sessions, claimant), turn(claimant))
            await sessions.leave("default", "chat", claimant.task_uid)
        pinned = await identity(sessions)
        assert pinned is not None
        assert pinned.task == "m1"
        assert len(await contents(sessions)) == 4

    async def test_an_answer_to_a_message_whose_failure_is_stored_is_not_stored(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        await conversation(engine, "m1", "m2")
        first = await task(ledger, "m1")
        held = await lock(sessions, first)
        async with engine.begin() as connection:
            messages = tables.conversation_messages
            await connection.execute(update(messages).where(messages.c.number == 1).values(answer=2))
        with pytest.raises(LockLost):
            await sessions.append(held, turn(first))
        assert (await rows(engine))["session_records"] == 0


class TestReads:
    async def test_what_does_not_exist_is_not_found(self, sessions: Sessions) -> None:
        for call in (
            sessions.session("default", "chat"),
            sessions.records("default", "chat"),
            sessions.delete("default", "chat"),
        ):
            with pytest.raises(NotFound, match="no Session chat in namespace default"):
                await call

    async def test_the_identity_is_no_message(self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine) -> None:
        pinned = await pin(sessions, ledger, "first")
        assert pinned is not None
        assert (await rows(engine))["session_records"] == 1
        status = await sessions.session("default", "chat")
        assert (status.messages, status.identity) == (0, pinned)
        for which in ({}, {"newest": True}, {"after": -1}, {"contains": "agent-uid"}, {"contains": ""}, {"before": 1}):
            assert await contents(sessions, **which) == []

    async def test_a_page_is_bounded_from_either_side(self, sessions: Sessions) -> None:
        await sessions.import_messages("default", "chat", numbered(10))
        sequences = {
            (): list(range(1, 11)),
            (("after", 7),): [8, 9, 10],
            (("before", 4),): [1, 2, 3],
            (("after", 2), ("before", 5)): [3, 4],
            (("limit", 2),): [1, 2],
            (("limit", 3), ("newest", True)): [8, 9, 10],
            (("before", 8), ("limit", 3), ("newest", True)): [5, 6, 7],
            (("after", 10),): [],
        }
        for which, expected in sequences.items():
            found = await sessions.records("default", "chat", **dict(which))
            assert (which, [record.sequence for record in found]) == (which, expected)

    async def test_a_search_takes_text_as_it_is_and_letters_of_either_case(self, sessions: Sessions) -> None:
        said = ["100% sure", "100 percent", "a_b", "acb", "Hello WORLD", "back\\slash", "nul \0 nul"]
        await sessions.import_messages(
            "default", "chat", [Message(role=Role.USER, content=content) for content in said]
        )
        found = {
            "100%": ["100% sure"],
            "a_b": ["a_b"],
            "hello w": ["Hello WORLD"],
            "HELLO": ["Hello WORLD"],
            "k\\s": ["back\\slash"],
            "\0": ["nul \ufffd nul"],
            "\ud800": ["nul \ufffd nul"],
            "nothing": [],
        }
        assert {searched: await contents(sessions, contains=searched) for searched in found} == found
        assert await contents(sessions, contains="100", newest=True, limit=1) == ["100 percent"]

    async def test_sessions_are_listed_by_their_last_use(
        self, sessions: Sessions, ledger: Ledger, clock: Clock
    ) -> None:
        for name in ("b", "a", "c"):
            await sessions.import_messages("default", name, [USER])
            clock.advance(seconds=1)
        await sessions.import_messages("team", "a", [])
        clock.advance(seconds=1)
        first = await task(ledger, "first")
        held = await lock(sessions, first, "b")
        await sessions.pin(held, "first", None, append=True)
        await sessions.append(held, turn(first, of=None))
        await sessions.acquire("default", "b", await task(ledger, "second"))
        listed = await sessions.sessions()
        assert [(status.namespace, status.name, status.messages) for status in listed] == [
            ("default", "b", 3),
            ("team", "a", 0),
            ("default", "c", 1),
            ("default", "a", 1),
        ]
        top = listed[0]
        assert top.identity is not None
        assert top.queue.holder is not None
        assert (top.identity.task, top.queue.holder.task, top.queue.waiting) == ("first", "first", 1)
        assert [status.name for status in await sessions.sessions("default", limit=2)] == ["b", "c"]
        assert await sessions.sessions("none") == []

    async def test_a_session_shows_who_has_it_and_who_waits(self, sessions: Sessions, ledger: Ledger) -> None:
        for claimant in await tasks(ledger, "first", "second", "third"):
            await sessions.acquire("default", "chat", claimant)
        status = await sessions.session("default", "chat")
        assert status.queue == await sessions.queue("default", "chat")
        assert [waiter.task for waiter in status.queue.next] == ["second", "third"]


class TestImport:
    async def test_a_transcript_is_kept_as_it_is_with_its_tools(self, sessions: Sessions, clock: Clock) -> None:
        transcript = [
            USER,
            Message(
                role=Role.ASSISTANT,
                tool_calls=[ToolCall(id="c1", name="clock", arguments='{"zone":"UTC"}'), ToolCall(id="c2", name="x")],
            ),
            Message(role=Role.TOOL, content="12:00", tool_call_id="c1"),
            Message(role=Role.TOOL, content="", tool_call_id="c2"),
            ASSISTANT,
        ]
        status = await sessions.import_messages("default", "chat", transcript)
        assert (status.owner, status.messages, status.identity) == (None, 5, None)
        assert await sessions.session("default", "chat") == status
        records = await sessions.records("default", "chat")
        for record, message in zip(records, transcript, strict=True):
            assert {name: getattr(record, name) for name in Message.model_fields} == dict(message)
            assert (record.task_uid, record.iteration, record.revision) == (None, None, None)

    async def test_a_session_that_exists_is_not_imported_into(self, sessions: Sessions) -> None:
        first = await sessions.import_messages("default", "chat", [USER])
        with pytest.raises(Conflict, match="default/chat exists"):
            await sessions.import_messages("default", "chat", [USER, ASSISTANT])
        assert await sessions.session("default", "chat") == first

    async def test_what_a_tool_has_left_is_made_fit(self, sessions: Sessions) -> None:
        wild = [
            Message(role=Role.ASSISTANT, tool_calls=[ToolCall(id="c\0", name="x", arguments='{"path":"\ud800\0')]),
            Message(role=Role.TOOL, content="\0" + "é" * MAX_CONTENT_BYTES, tool_call_id="c\0"),
        ]
        await sessions.import_messages("default", "chat", wild)
        for record, message in zip(await sessions.records("default", "chat"), wild, strict=True):
            assert {name: getattr(record, name) for name in Message.model_fields} == dict(storable(message))


class TestDelete:
    async def test_nothing_is_left_of_it_and_its_identity_is_gone(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        first = await task(ledger, "first")
        held = await lock(sessions, first)
        await sessions.pin(held, "first", PINNED, append=True)
        await sessions.append(held, turn(first))
        await sessions.acquire("default", "chat", await task(ledger, "second"))
        for name in ("first", "second"):
            await sessions.leave("default", "chat", f"{name}-uid")
        await sessions.delete("default", "chat")
        assert set((await rows(engine)).values()) == {0}
        pinned = await pin(sessions, ledger, "third", revision(generation=2))
        assert pinned is not None
        assert pinned.revision == revision(generation=2)

    async def test_a_conversation_goes_with_its_answered_messages(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        await conversation(engine, "m1")
        first = await task(ledger, "m1")
        await sessions.append(await lock(sessions, first), turn(first))
        await sessions.leave("default", "chat", first.task_uid)
        await sessions.delete("default", "chat")
        assert set((await rows(engine)).values()) == {0}

    async def test_a_session_that_a_task_has_is_not_deleted(self, sessions: Sessions, ledger: Ledger) -> None:
        await lock(sessions, await task(ledger, "first"))
        with pytest.raises(Conflict, match="a Task has it or waits for it"):
            await sessions.delete("default", "chat")
        await sessions.leave("default", "chat", "first-uid")
        await sessions.delete("default", "chat")

    async def test_a_session_that_a_task_waits_for_is_not_deleted(self, sessions: Sessions, ledger: Ledger) -> None:
        for claimant in await tasks(ledger, "first", "second"):
            await sessions.acquire("default", "chat", claimant)
        await sessions.leave("default", "chat", "first-uid")
        with pytest.raises(Conflict, match="a Task has it or waits for it"):
            await sessions.delete("default", "chat")
        assert (await sessions.queue("default", "chat")).waiting == 1

    async def test_tasks_that_are_gone_hold_up_no_deletion(self, sessions: Sessions, ledger: Ledger) -> None:
        claimants = await tasks(ledger, "first", "second")
        for claimant in claimants:
            await sessions.acquire("default", "chat", claimant)
        for claimant in claimants:
            await end(ledger, claimant)
        await sessions.delete("default", "chat")

    async def test_a_conversation_with_a_pending_message_is_not_deleted(
        self, sessions: Sessions, engine: AsyncEngine
    ) -> None:
        await conversation(engine, "m1")
        with pytest.raises(Conflict, match="not answered"):
            await sessions.delete("default", "chat")

    async def test_of_racing_deletions_and_claims_the_session_is_whole_or_new(
        self, sessions: Sessions, other_sessions: Sessions, ledger: Ledger
    ) -> None:
        claimant = await task(ledger, "first")
        for number in range(15):
            old = await sessions.import_messages("default", f"s{number}", [USER])
            place, deleted = await asyncio.gather(
                sessions.acquire("default", f"s{number}", claimant),
                other_sessions.delete("default", f"s{number}"),
                return_exceptions=True,
            )
            assert isinstance(deleted, Conflict | None)
            if isinstance(place, Unavailable):
                place = await sessions.acquire("default", f"s{number}", claimant)
            status = await sessions.session("default", f"s{number}")
            assert (status.uid == old.uid, status.messages) == (deleted is not None, int(deleted is not None))
            assert not isinstance(place, BaseException)
            assert place.lock is not None
            assert place.lock.session_uid == status.uid


@asynccontextmanager
async def statements(engine: AsyncEngine) -> AsyncIterator[list[tuple[str, Any]]]:
    """Collect what is executed, with its parameters."""
    seen: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        seen.append((statement, parameters))

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine.sync_engine, "before_cursor_execute", note)


async def plans(engine: AsyncEngine, executed: Sequence[tuple[str, Any]]) -> list[str]:
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    async with engine.connect() as connection:
        return [
            "\n".join(str(tuple(row)) for row in await connection.exec_driver_sql(f"{explain} {statement}", parameters))
            for statement, parameters in executed
        ]


async def test_the_tail_and_the_count_of_100000_messages_are_read_without_looking_at_the_others(
    sessions: Sessions, engine: AsyncEngine
) -> None:
    status = await sessions.import_messages("default", "chat", [])
    bulk = """
        INSERT INTO session_records (session_uid, sequence, kind, role, content, unbound, created_at)
        WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 100000)
        SELECT uid, n, 'message', 'user', 'Hello?', FALSE, created_at FROM number, sessions
    """
    async with engine.begin() as connection:
        await connection.execute(text(bulk))
        await connection.execute(update(tables.sessions).values(messages=100_000, last_sequence=100_000))
        await connection.execute(text("ANALYZE"))
    async with statements(engine) as executed:
        tail = await sessions.records("default", "chat", limit=3, newest=True)
        page = await sessions.records("default", "chat", after=50_000, limit=2)
        counted = await sessions.session("default", "chat")
    assert [record.sequence for record in tail] == [99_998, 99_999, 100_000]
    assert [record.sequence for record in page] == [50_001, 50_002]
    assert (counted.uid, counted.messages) == (status.uid, 100_000)
    read = [plan for plan in await plans(engine, executed) if "session_records" in plan]
    assert len(read) == 3
    for plan in read:
        for slow in ("SCAN session_records", "Seq Scan on session_records", "TEMP B-TREE", "Sort"):
            assert slow not in plan
