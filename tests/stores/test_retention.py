"""Retention: content goes, what a Session is pinned to stays."""

import asyncio
from collections.abc import Sequence

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from anima.model.binding import Revision
from anima.model.conversation import Attestation, PostedMessage
from anima.model.errors import NotFound, Refusal
from anima.model.reasons import Reason
from anima.model.session import Claimant, Identity, Message, Role, Turn
from anima.stores.ports import Ledger
from anima.stores.sessions import Conversations, Sessions
from anima.stores.sql.tables import session_records
from anima.stores.sql.tables import sessions as session_table
from tests.stores.claimants import end, lock, revision, rows, task
from tests.stores.conftest import Clock

SOUL = revision()
ROLES = {"u": Role.USER, "a": Role.ASSISTANT, "t": Role.TOOL}


async def converse(
    sessions: Sessions, ledger: Ledger, *names: str, session: str = "chat", of: Revision | None = SOUL
) -> None:
    """Let Tasks have one turn each."""
    for name in names:
        claimant = await task(ledger, name)
        held = await lock(sessions, claimant, session)
        await sessions.pin(held, name, of, append=True)
        turn = Turn(task_uid=claimant.task_uid, task=name, prompt=f"{name}?", answer=f"{name}.", revision=of)
        await sessions.append(held, turn)
        await sessions.leave("default", session, claimant.task_uid)
        await end(ledger, claimant)


async def imported(sessions: Sessions, roles: str, name: str = "chat") -> None:
    """Import a transcript: a letter for each message's role."""
    messages = [Message(role=ROLES[letter], content=f"{letter}{place}") for place, letter in enumerate(roles, start=1)]
    await sessions.import_messages("default", name, messages)


async def contents(sessions: Sessions, session: str = "chat") -> list[str]:
    return [record.content for record in await sessions.records("default", session)]


async def identity(sessions: Sessions, session: str = "chat") -> Identity | None:
    return (await sessions.session("default", session)).identity


async def refusal(sessions: Sessions, ledger: Ledger, of: Revision | None) -> Reason:
    claimant = await task(ledger, "late")
    with pytest.raises(Refusal) as caught:
        await sessions.pin(await lock(sessions, claimant), "late", of, append=True)
    return caught.value.reason


class TestWhatGoes:
    async def test_by_age_what_is_from_before_goes(self, sessions: Sessions, ledger: Ledger, clock: Clock) -> None:
        await converse(sessions, ledger, "one", "two")
        clock.advance(days=1)
        limit = clock.now
        await converse(sessions, ledger, "three")
        assert await sessions.expire(limit, None) == 4
        assert await contents(sessions) == ["three?", "three."]
        assert await sessions.expire(limit, None) == 0

    async def test_by_count_the_newest_stay(self, sessions: Sessions, ledger: Ledger) -> None:
        await converse(sessions, ledger, "one", "two", "three")
        assert await sessions.expire(None, 2) == 4
        assert await contents(sessions) == ["three?", "three."]
        assert await sessions.expire(None, 2) == 0

    async def test_by_both_what_either_removes_goes(self, sessions: Sessions, ledger: Ledger, clock: Clock) -> None:
        await converse(sessions, ledger, "one")
        clock.advance(days=1)
        limit = clock.now
        await converse(sessions, ledger, "two", "three", session="chat")
        await converse(sessions, ledger, "four", "five", "six", session="other")
        assert await sessions.expire(limit, 4) == 4
        assert await contents(sessions) == ["two?", "two.", "three?", "three."]
        assert await contents(sessions, "other") == ["five?", "five.", "six?", "six."]

    @pytest.mark.parametrize(("before", "keep"), [(None, None), (None, 6), (None, 100), ("yesterday", None)])
    async def test_what_is_neither_too_old_nor_too_much_stays(
        self, sessions: Sessions, ledger: Ledger, clock: Clock, before: str | None, keep: int | None
    ) -> None:
        yesterday = clock.now
        clock.advance(days=1)
        await converse(sessions, ledger, "one", "two", "three")
        assert await sessions.expire(yesterday if before else None, keep) == 0
        assert len(await contents(sessions)) == 6
        assert await identity(sessions) is not None

    @pytest.mark.parametrize(
        ("roles", "keep", "kept"),
        [
            ("uaua", 3, "u1 a2 u3 a4"),
            ("uaua", 2, "u3 a4"),
            ("uaua", 1, "u3 a4"),
            ("uaua", 0, ""),
            ("uatata", 1, "u1 a2 t3 a4 t5 a6"),
            ("uatauatat", 4, "u5 a6 t7 a8 t9"),
            ("uatauatat", 6, "u1 a2 t3 a4 u5 a6 t7 a8 t9"),
            ("auau", 3, "u2 a3 u4"),
            ("aauu", 1, "u4"),
            ("ataa", 2, "a1 t2 a3 a4"),
        ],
    )
    async def test_only_whole_turns_go_by_count(self, sessions: Sessions, roles: str, keep: int, kept: str) -> None:
        await imported(sessions, roles)
        assert await sessions.expire(None, keep) == len(roles) - len(kept.split())
        assert await contents(sessions) == kept.split()
        assert await sessions.expire(None, keep) == 0

    @pytest.mark.parametrize(("young", "kept"), [(2, 7), (4, 7), (5, 3), (6, 3), (7, 1), (8, 0)])
    async def test_only_whole_turns_go_by_age(
        self, sessions: Sessions, engine: AsyncEngine, clock: Clock, young: int, kept: int
    ) -> None:
        await imported(sessions, "uatauau")
        clock.advance(days=1)
        columns = session_records.c
        later = update(session_records).where(columns.sequence >= young).values(created_at=clock.now)
        async with engine.begin() as connection:
            await connection.execute(later)
        assert await sessions.expire(clock.now, None) == 7 - kept
        assert len(await contents(sessions)) == kept
        assert await sessions.expire(clock.now, None) == 0

    async def test_many_sessions_are_shortened_a_few_at_a_time(self, sessions: Sessions) -> None:
        for number in range(7):
            await imported(sessions, "uaua", f"s{number}")
        removed = []
        while count := await sessions.expire(None, 2, limit=3):
            removed.append(count)
        assert removed == [6, 6, 2]

    async def test_sessions_that_cannot_be_shortened_do_not_hide_others(self, sessions: Sessions) -> None:
        for number in range(5):
            await imported(sessions, "uataa", f"long{number}")
        await imported(sessions, "uaua", "short")
        assert await sessions.expire(None, 2, limit=2) == 2
        assert await contents(sessions, "short") == ["u3", "a4"]
        assert await sessions.expire(None, 2, limit=2) == 0


class TestWhatStays:
    async def test_the_identity_is_kept_and_still_checked(
        self, sessions: Sessions, ledger: Ledger, clock: Clock
    ) -> None:
        await converse(sessions, ledger, "one", "two")
        pinned = await identity(sessions)
        clock.advance(days=1)
        assert await sessions.expire(clock.now, 0) == 4
        assert await identity(sessions) == pinned
        assert await contents(sessions) == []
        await converse(sessions, ledger, "three")
        assert await refusal(sessions, ledger, revision(generation=2)) is Reason.SESSION_SOUL_MISMATCH

    async def test_counts_are_right_and_sequences_go_on_rising(self, sessions: Sessions, ledger: Ledger) -> None:
        await converse(sessions, ledger, "one", "two", "three")
        await sessions.expire(None, 2)
        assert (await sessions.session("default", "chat")).messages == 2
        await sessions.expire(None, 0)
        assert (await sessions.session("default", "chat")).messages == 0
        await converse(sessions, ledger, "four")
        assert [record.sequence for record in await sessions.records("default", "chat")] == [7, 8]
        assert (await sessions.session("default", "chat")).messages == 2

    async def test_the_anchor_is_in_no_read_and_goes_with_the_session(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        await converse(sessions, ledger, "one")
        await sessions.expire(None, 0)
        assert await sessions.records("default", "chat", contains="") == []
        assert (await rows(engine))["session_records"] == 1
        await sessions.delete("default", "chat")
        assert (await rows(engine))["session_records"] == 0

    async def test_a_session_is_not_used_by_being_shortened(
        self, sessions: Sessions, ledger: Ledger, clock: Clock
    ) -> None:
        await converse(sessions, ledger, "one")
        used = (await sessions.session("default", "chat")).updated_at
        clock.advance(days=1)
        await sessions.expire(clock.now, None)
        assert (await sessions.session("default", "chat")).updated_at == used

    @pytest.mark.parametrize("keep", [0, 2])
    async def test_imported_history_that_expires_leaves_absence(
        self, sessions: Sessions, ledger: Ledger, clock: Clock, keep: int
    ) -> None:
        await imported(sessions, "uaua")
        assert await identity(sessions) is None
        clock.advance(days=1)
        assert await sessions.expire(None, keep) == 4 - keep
        assert await identity(sessions) == Identity(pinned_at=clock.now)
        assert await refusal(sessions, ledger, SOUL) is Reason.SESSION_SOUL_MISMATCH

    async def test_imported_history_that_stays_is_not_pinned(self, sessions: Sessions, ledger: Ledger) -> None:
        await imported(sessions, "uaua")
        assert await sessions.expire(None, 4) == 0
        assert await identity(sessions) is None
        assert await refusal(sessions, ledger, SOUL) is Reason.SESSION_UNPINNED_HISTORY

    async def test_a_session_without_a_soul_goes_on_without_one_after_its_history_is_gone(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        await imported(sessions, "ua")
        await sessions.expire(None, 0)
        await converse(sessions, ledger, "one", of=None)
        assert await contents(sessions) == ["one?", "one."]


class TestConversations:
    async def post(self, conversations: Conversations, key: str) -> PostedMessage:
        return await conversations.post("default", "chat", key, f"{key}?", "reviewer")

    async def fail(self, conversations: Conversations, key: str, *, unbound: bool) -> PostedMessage:
        posted = await self.post(conversations, key)
        attestation = Attestation(
            task_uid=f"{posted.task}-uid",
            task=posted.task,
            reason=Reason.PROVIDER_INVALID,
            message="no key",
            unbound=unbound,
        )
        await conversations.project_failure("default", "chat", posted.number, attestation, None)
        return posted

    async def answer(self, sessions: Sessions, ledger: Ledger, posted: PostedMessage) -> None:
        claimant = await task(ledger, posted.task)
        held = await lock(sessions, claimant)
        await sessions.pin(held, posted.task, SOUL, append=True)
        turn = Turn(task_uid=claimant.task_uid, task=posted.task, prompt=posted.content, answer="Well.", revision=SOUL)
        await sessions.append(held, turn)
        await end(ledger, claimant)

    async def test_unbound_failures_expire_without_an_anchor(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        await self.fail(conversations, "k1", unbound=True)
        assert await sessions.expire(None, 0) == 2
        assert await identity(sessions) is None
        await self.answer(sessions, ledger, await self.post(conversations, "k2"))
        pinned = await identity(sessions)
        assert pinned is not None
        assert pinned.revision == SOUL

    async def test_unbound_failures_that_expire_with_history_do_not_hide_it(
        self, conversations: Conversations, sessions: Sessions, clock: Clock
    ) -> None:
        await imported(sessions, "ua")
        await self.fail(conversations, "k1", unbound=True)
        assert await identity(sessions) is None
        assert await sessions.expire(None, 0) == 4
        assert await identity(sessions) == Identity(pinned_at=clock.now)

    async def test_a_message_is_forgotten_once_it_is_old_and_its_turn_is_gone(
        self, conversations: Conversations, sessions: Sessions, clock: Clock
    ) -> None:
        for key in ("k1", "k2"):
            await self.fail(conversations, key, unbound=True)
        clock.advance(days=1)
        limit = clock.now
        young = await self.fail(conversations, "k3", unbound=True)
        assert await sessions.expire(limit, 0) == 6
        for number in (1, 2):
            with pytest.raises(NotFound):
                await conversations.message("default", "chat", number)
        assert (await self.post(conversations, "k3")).task == young.task
        assert (await self.post(conversations, "k4")).number == 4

    async def test_a_key_is_not_forgotten_by_count(self, conversations: Conversations, sessions: Sessions) -> None:
        first = await self.fail(conversations, "k1", unbound=True)
        await self.fail(conversations, "k2", unbound=True)
        assert await sessions.expire(None, 0) == 4
        assert (await self.post(conversations, "k1")).task == first.task
        assert await conversations.pending("default", "chat") == []

    async def test_numbers_and_the_agent_are_kept_when_everything_has_expired(
        self, conversations: Conversations, sessions: Sessions, clock: Clock
    ) -> None:
        for key in ("k1", "k2"):
            await self.fail(conversations, key, unbound=True)
        clock.advance(days=1)
        assert await sessions.expire(clock.now, None) == 4
        posted = await conversations.post("default", "chat", "k3", "Still there?", None)
        assert (posted.number, posted.agent) == (3, "reviewer")

    async def test_with_a_pending_message_it_is_left_alone(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        await self.fail(conversations, "k1", unbound=False)
        waiting = await self.post(conversations, "k2")
        assert await sessions.expire(None, 0) == 0
        assert await contents(sessions) == ["k1?", "no key"]
        assert await conversations.pending("default", "chat") == [waiting]


class TestInUse:
    async def prepare(self, sessions: Sessions, ledger: Ledger) -> Claimant:
        await converse(sessions, ledger, "one", "two")
        holder = await task(ledger, "holder")
        await lock(sessions, holder)
        return holder

    async def test_held_by_an_open_task_it_is_left_alone(self, sessions: Sessions, ledger: Ledger) -> None:
        holder = await self.prepare(sessions, ledger)
        assert await sessions.expire(None, 0) == 0
        assert len(await contents(sessions)) == 4
        await sessions.leave("default", "chat", holder.task_uid)
        assert await sessions.expire(None, 0) == 4

    async def test_held_by_a_task_that_is_gone_it_is_free(self, sessions: Sessions, ledger: Ledger) -> None:
        await end(ledger, await self.prepare(sessions, ledger))
        assert await sessions.expire(None, 0) == 4

    async def test_waited_for_it_is_left_alone(self, sessions: Sessions, ledger: Ledger) -> None:
        holder = await self.prepare(sessions, ledger)
        waiter = await task(ledger, "waiter")
        await sessions.acquire("default", "chat", waiter)
        await end(ledger, holder)
        assert await sessions.expire(None, 0) == 0
        await end(ledger, waiter)
        assert await sessions.expire(None, 0) == 4

    async def test_a_session_in_use_does_not_keep_others_from_expiring(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        await self.prepare(sessions, ledger)
        await imported(sessions, "ua", "other")
        assert await sessions.expire(None, 0, limit=1) == 2
        assert await sessions.expire(None, 0, limit=1) == 0

    @pytest.mark.parametrize("url", [pytest.param("postgresql", marks=pytest.mark.verify)], indirect=True)
    async def test_a_session_that_is_written_to_at_this_moment_is_left_alone(
        self, sessions: Sessions, other_engine: AsyncEngine
    ) -> None:
        await imported(sessions, "ua")
        await imported(sessions, "ua", "other")
        async with other_engine.connect() as writer:
            await writer.execute(select(session_table).where(session_table.c.name == "chat").with_for_update())
            assert await sessions.expire(None, 0) == 2
            assert await sessions.expire(None, 0) == 0
        assert await sessions.expire(None, 0) == 2

    async def test_tasks_and_retention_at_once_lose_nothing_and_count_right(
        self, sessions: Sessions, other_sessions: Sessions, ledger: Ledger
    ) -> None:
        async def sweep() -> Sequence[int]:
            return [await other_sessions.expire(None, 4) for _ in range(12)]

        names = [f"t{number}" for number in range(12)]
        removed, _ = await asyncio.gather(sweep(), converse(sessions, ledger, *names))
        left = await contents(sessions)
        status = await sessions.session("default", "chat")
        assert left[-4:] == ["t10?", "t10.", "t11?", "t11."]
        assert len(left) == status.messages == 24 - sum(removed)
        assert status.identity is not None
        assert status.identity.task == "t0"
