"""The contract of the Conversations port: what users say, and what becomes of it."""

import asyncio
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from anima.model.binding import Revision
from anima.model.conversation import Attestation, PostedMessage
from anima.model.errors import Conflict, NotFound, Refusal
from anima.model.names import message_task
from anima.model.reasons import Reason
from anima.model.session import (
    MAX_CONTENT_BYTES,
    MAX_PENDING,
    Claimant,
    Identity,
    Message,
    Owner,
    Role,
    SessionRecord,
    Turn,
)
from anima.stores.ports import Ledger
from anima.stores.sessions import Conversations, Sessions
from tests.stores.claimants import end, lock, revision, rows, task
from tests.stores.conftest import Clock

SOUL = revision()
LEGACY = [Message(role=Role.USER, content="Before."), Message(role=Role.ASSISTANT, content="Long before.")]


async def post(
    conversations: Conversations, key: str, content: str = "Hello?", agent: str | None = "reviewer"
) -> PostedMessage:
    return await conversations.post("default", "chat", key, content, agent)


async def checked(
    sessions: Sessions, ledger: Ledger, message: PostedMessage, of: Revision | None = SOUL
) -> tuple[Claimant, Identity | None]:
    """Take the Session for the message's Task, and have its revision checked."""
    claimant = await task(ledger, message.task)
    held = await lock(sessions, claimant)
    return claimant, await sessions.pin(held, message.task, of, append=True)


async def answer(sessions: Sessions, ledger: Ledger, message: PostedMessage, of: Revision | None = SOUL) -> None:
    """Let the message's Task answer it."""
    claimant, _ = await checked(sessions, ledger, message, of)
    turn = Turn(task_uid=claimant.task_uid, task=claimant.task, prompt=message.content, answer="Hello.", revision=of)
    await sessions.append(await lock(sessions, claimant), turn)
    await sessions.leave("default", "chat", claimant.task_uid)
    await end(ledger, claimant)


def failure(message: PostedMessage, *, unbound: bool, reason: Reason = Reason.PROVIDER_INVALID) -> Attestation:
    return Attestation(
        task_uid=f"{message.task}-uid",
        task=message.task,
        reason=reason,
        message="the Provider has no key",
        unbound=unbound,
    )


async def fail(
    conversations: Conversations, message: PostedMessage, *, unbound: bool, of: Revision | None = None
) -> None:
    await conversations.project_failure("default", "chat", message.number, failure(message, unbound=unbound), of)


async def identity(sessions: Sessions) -> Identity | None:
    return (await sessions.session("default", "chat")).identity


async def records(sessions: Sessions) -> list[SessionRecord]:
    return list(await sessions.records("default", "chat"))


class TestPost:
    async def test_the_first_message_begins_the_conversation(
        self, conversations: Conversations, sessions: Sessions, clock: Clock
    ) -> None:
        posted = await post(conversations, "k1")
        status = await sessions.session("default", "chat")
        assert (status.owner, status.messages, status.identity) == (Owner.CONVERSATION, 0, None)
        assert posted == PostedMessage(
            number=1,
            task=message_task("chat", status.uid, 1),
            agent="reviewer",
            content="Hello?",
            posted_at=clock.now,
        )

    async def test_messages_are_numbered_in_order_of_arrival(self, conversations: Conversations) -> None:
        posted = [await post(conversations, key) for key in ("c", "a", "b")]
        assert [(one.number, one.pending_before) for one in posted] == [(1, 0), (2, 1), (3, 2)]
        assert await conversations.pending("default", "chat") == posted
        assert await conversations.first_pending("default", "chat") == posted[0]

    async def test_each_conversation_has_its_own_numbers_and_keys(self, conversations: Conversations) -> None:
        await post(conversations, "k1")
        other = await conversations.post("default", "other", "k1", "Hi!", "reviewer")
        elsewhere = await conversations.post("elsewhere", "chat", "k1", "Ho!", "reviewer")
        assert (other.number, elsewhere.number) == (1, 1)
        assert len({other.task, elsewhere.task, (await post(conversations, "k1")).task}) == 3

    @pytest.mark.parametrize("agent", ["reviewer", None])
    async def test_the_same_key_and_content_is_the_same_message(
        self, conversations: Conversations, clock: Clock, agent: str | None
    ) -> None:
        await post(conversations, "k1")
        posted = await post(conversations, "k2")
        clock.advance(hours=1)
        assert await post(conversations, "k2", agent=agent) == posted
        assert len(await conversations.pending("default", "chat")) == 2

    async def test_a_message_that_named_nobody_is_the_same_if_it_names_who_was_meant(
        self, conversations: Conversations
    ) -> None:
        await post(conversations, "k1", agent="writer")
        posted = await post(conversations, "k2", agent=None)
        assert await post(conversations, "k2", agent="writer") == posted

    @pytest.mark.parametrize(("content", "agent"), [("Goodbye?", "reviewer"), ("Hello?", "writer"), ("Hello? ", None)])
    async def test_the_same_key_with_other_content_or_another_agent_is_a_conflict(
        self, conversations: Conversations, content: str, agent: str | None
    ) -> None:
        posted = await post(conversations, "k1")
        with pytest.raises(Conflict, match="message 1 of conversation default/chat") as caught:
            await post(conversations, "k1", content, agent)
        assert "Goodbye" not in str(caught.value)
        assert await conversations.pending("default", "chat") == [posted]

    async def test_a_key_is_known_after_its_message_is_answered(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        await answer(sessions, ledger, await post(conversations, "k1"))
        again = await post(conversations, "k1")
        assert (again.number, again.answer, again.content) == (1, 2, "")
        with pytest.raises(Conflict):
            await post(conversations, "k1", "Goodbye?")
        assert await conversations.pending("default", "chat") == []

    async def test_a_message_that_names_nobody_is_for_the_agent_of_the_one_before(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        first = await post(conversations, "k1", agent="writer")
        await answer(sessions, ledger, first)
        assert (await post(conversations, "k2", agent=None)).agent == "writer"
        assert (await post(conversations, "k3", agent="reviewer")).agent == "reviewer"
        assert (await post(conversations, "k4", agent=None)).agent == "reviewer"

    async def test_the_first_message_has_to_name_an_agent(
        self, conversations: Conversations, engine: AsyncEngine
    ) -> None:
        with pytest.raises(Refusal, match="default/chat names no Agent") as caught:
            await post(conversations, "k1", agent=None)
        assert caught.value.reason is Reason.REQUEST_REFUSED
        assert set((await rows(engine)).values()) == {0}

    async def test_a_session_of_tasks_cannot_become_a_conversation(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        await lock(sessions, await task(ledger, "first"))
        with pytest.raises(Refusal, match="default/chat is the Tasks'") as caught:
            await post(conversations, "k1")
        assert caught.value.reason is Reason.SESSION_OWNED
        assert (await rows(engine))["conversation_messages"] == 0

    async def test_an_imported_session_becomes_the_conversations_by_its_first_message(
        self, conversations: Conversations, sessions: Sessions
    ) -> None:
        imported = await sessions.import_messages("default", "chat", LEGACY)
        await post(conversations, "k1")
        status = await sessions.session("default", "chat")
        assert (status.uid, status.owner, status.messages) == (imported.uid, Owner.CONVERSATION, 2)

    async def test_so_many_messages_may_wait_and_not_one_more(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        posted = [await post(conversations, f"k{number}") for number in range(MAX_PENDING)]
        before = await sessions.session("default", "chat")
        with pytest.raises(Refusal, match=f"has {MAX_PENDING} messages that are not answered yet") as caught:
            await post(conversations, "over")
        assert caught.value.reason is Reason.CONVERSATION_FULL
        assert await conversations.pending("default", "chat") == posted
        assert await sessions.session("default", "chat") == before
        assert await post(conversations, "k7") == posted[7]
        await answer(sessions, ledger, posted[0])
        assert (await post(conversations, "over")).number == MAX_PENDING + 1

    async def test_content_is_stored_whatever_it_holds(self, conversations: Conversations) -> None:
        posted = await post(conversations, "k1", "a\0b \ud800 🦊\r\n")
        assert posted.content == "a\ufffdb \ufffd 🦊\r\n"
        assert await post(conversations, "k1", "a\0b \ud800 🦊\r\n") == posted
        long = await post(conversations, "k2", "é" * MAX_CONTENT_BYTES)
        assert len(long.content.encode()) <= MAX_CONTENT_BYTES
        assert await conversations.pending("default", "chat") == [posted, long]

    async def test_of_racing_messages_each_has_its_own_number(
        self, conversations: Conversations, other_conversations: Conversations
    ) -> None:
        for number in range(10):
            name = f"c{number}"
            racers = enumerate([conversations, other_conversations] * 2)
            posted = await asyncio.gather(
                *(one.post("default", name, f"k{place}", f"{place}", "reviewer") for place, one in racers)
            )
            assert sorted(one.number for one in posted) == [1, 2, 3, 4]
            waiting = await conversations.pending("default", name)
            assert list(waiting) == sorted(posted, key=lambda one: one.number)

    async def test_of_racing_messages_with_one_key_one_is_stored(
        self, conversations: Conversations, other_conversations: Conversations
    ) -> None:
        for number in range(10):
            racers = [conversations, other_conversations] * 2
            posted = await asyncio.gather(
                *(one.post("default", f"c{number}", "k", "Hello?", "reviewer") for one in racers)
            )
            assert len(set(map(repr, posted))) == 1
            assert await conversations.pending("default", f"c{number}") == [posted[0]]

    async def test_of_racing_messages_for_the_last_place_one_gets_it(
        self, conversations: Conversations, other_conversations: Conversations
    ) -> None:
        for number in range(MAX_PENDING - 1):
            await post(conversations, f"k{number}")
        done = await asyncio.gather(
            post(conversations, "one"), post(other_conversations, "other"), return_exceptions=True
        )
        assert sorted(type(one).__name__ for one in done) == ["PostedMessage", "Refusal"]
        assert len(await conversations.pending("default", "chat")) == MAX_PENDING


class TestReading:
    async def test_an_answered_message_is_no_longer_pending(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        first, second = await post(conversations, "k1"), await post(conversations, "k2", "And you?")
        await answer(sessions, ledger, first)
        assert await conversations.first_pending("default", "chat") == second.model_copy(update={"pending_before": 0})
        assert await conversations.message("default", "chat", 1) == first.model_copy(
            update={"answer": 2, "content": ""}
        )
        await answer(sessions, ledger, second)
        assert await conversations.first_pending("default", "chat") is None
        assert [record.content for record in await records(sessions)] == ["Hello?", "Hello.", "And you?", "Hello."]

    async def test_what_is_not_there_is_not_found(self, conversations: Conversations) -> None:
        for call in (
            conversations.first_pending("default", "chat"),
            conversations.pending("default", "chat"),
            conversations.message("default", "chat", 1),
        ):
            with pytest.raises(NotFound, match="no Session chat in namespace default"):
                await call
        posted = await post(conversations, "k1")
        with pytest.raises(NotFound, match="no message 2 in conversation default/chat"):
            await conversations.message("default", "chat", 2)
        with pytest.raises(NotFound, match="no message 2 in conversation default/chat"):
            await fail(conversations, posted.model_copy(update={"number": 2}), unbound=True)

    async def test_a_conversation_that_is_deleted_and_begun_again_has_other_tasks(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        first = await post(conversations, "k1")
        await answer(sessions, ledger, first)
        await sessions.delete("default", "chat")
        again = await post(conversations, "k1")
        assert again.number == 1
        assert again.task != first.task


class TestIdentity:
    """agent-soul: gateway-owned conversations retain the rule through their terminal projection."""

    async def test_queued_user_messages_establish_nothing(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        first = await post(conversations, "k1")
        await post(conversations, "k2")
        assert await identity(sessions) is None
        assert await checked(sessions, ledger, first) == (await task(ledger, first.task), None)
        assert await identity(sessions) is None

    async def test_the_answer_pins_the_revision_whatever_is_queued(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger, clock: Clock
    ) -> None:
        first, second = await post(conversations, "k1"), await post(conversations, "k2")
        await answer(sessions, ledger, first)
        assert await identity(sessions) == Identity(
            revision=SOUL, task_uid=f"{first.task}-uid", task=first.task, pinned_at=clock.now
        )
        assert {record.revision for record in await records(sessions)} == {SOUL.session_digest}
        with pytest.raises(Refusal) as caught:
            await checked(sessions, ledger, second, revision(generation=2))
        assert caught.value.reason is Reason.SESSION_SOUL_MISMATCH

    async def test_an_answer_without_a_soul_pins_absence(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        first, second = await post(conversations, "k1"), await post(conversations, "k2")
        await answer(sessions, ledger, first, of=None)
        pinned = await identity(sessions)
        assert pinned is not None
        assert pinned.digest is None
        with pytest.raises(Refusal) as caught:
            await checked(sessions, ledger, second)
        assert caught.value.reason is Reason.SESSION_SOUL_MISMATCH

    async def test_an_attested_failure_stays_visible(
        self, conversations: Conversations, sessions: Sessions, clock: Clock
    ) -> None:
        posted = await post(conversations, "k1")
        clock.advance(seconds=3)
        await fail(conversations, posted, unbound=True)
        shared: dict[str, Any] = {
            "task_uid": f"{posted.task}-uid",
            "iteration": 0,
            "unbound": True,
            "created_at": clock.now,
        }
        assert await records(sessions) == [
            SessionRecord(sequence=1, role=Role.USER, content="Hello?", **shared),
            SessionRecord(
                sequence=2,
                role=Role.ASSISTANT,
                content="the Provider has no key",
                reason=Reason.PROVIDER_INVALID,
                **shared,
            ),
        ]
        assert (await sessions.session("default", "chat")).messages == 2
        assert (await conversations.message("default", "chat", 1)).answer == 2

    async def test_an_attested_failure_establishes_nothing_and_afterwards_the_first_revision_binds(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        await fail(conversations, await post(conversations, "k1"), unbound=True)
        assert await identity(sessions) is None
        corrected = await post(conversations, "k2")
        await answer(sessions, ledger, corrected)
        pinned = await identity(sessions)
        assert pinned is not None
        assert (pinned.revision, pinned.task) == (SOUL, corrected.task)

    async def test_a_message_that_never_became_a_task_establishes_nothing(
        self, conversations: Conversations, sessions: Sessions
    ) -> None:
        for key in ("k1", "k2"):
            posted = await post(conversations, key)
            never = failure(posted, unbound=True).model_copy(update={"task_uid": None})
            await conversations.project_failure("default", "chat", posted.number, never, None)
        assert await identity(sessions) is None
        assert [(record.task_uid, record.iteration) for record in await records(sessions)] == [(None, None)] * 4

    async def test_an_unattested_failure_without_a_soul_pins_absence(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger, clock: Clock
    ) -> None:
        posted = await post(conversations, "k1")
        await fail(conversations, posted, unbound=False)
        assert await identity(sessions) == Identity(
            task_uid=f"{posted.task}-uid", task=posted.task, pinned_at=clock.now
        )
        with pytest.raises(Refusal) as caught:
            await checked(sessions, ledger, await post(conversations, "k2"))
        assert caught.value.reason is Reason.SESSION_SOUL_MISMATCH

    async def test_an_unattested_failure_with_a_soul_pins_its_revision(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        posted = await post(conversations, "k1")
        await fail(conversations, posted, unbound=False, of=SOUL)
        pinned = await identity(sessions)
        assert pinned is not None
        assert (pinned.revision, pinned.task) == (SOUL, posted.task)
        assert [record.revision for record in await records(sessions)] == [SOUL.session_digest] * 2
        await answer(sessions, ledger, await post(conversations, "k2"))

    async def test_a_failure_changes_no_identity_that_is_there(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        await answer(sessions, ledger, await post(conversations, "k1"))
        pinned = await identity(sessions)
        await fail(conversations, await post(conversations, "k2"), unbound=False, of=revision(generation=2))
        await fail(conversations, await post(conversations, "k3"), unbound=False)
        await fail(conversations, await post(conversations, "k4"), unbound=True)
        assert await identity(sessions) == pinned

    async def test_a_soul_that_was_refused_for_legacy_history_does_not_get_in_by_its_failure(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        await sessions.import_messages("default", "chat", LEGACY)
        posted = await post(conversations, "k1")
        with pytest.raises(Refusal) as caught:
            await checked(sessions, ledger, posted)
        assert caught.value.reason is Reason.SESSION_UNPINNED_HISTORY
        await end(ledger, await task(ledger, posted.task))
        await fail(conversations, posted, unbound=False, of=SOUL)
        with pytest.raises(Refusal) as caught:
            await checked(sessions, ledger, await post(conversations, "k2"))
        assert caught.value.reason is Reason.SESSION_SOUL_MISMATCH


class TestFailure:
    @pytest.mark.parametrize("unbound", [True, False])
    async def test_projected_again_it_is_the_same(
        self, conversations: Conversations, sessions: Sessions, engine: AsyncEngine, unbound: bool
    ) -> None:
        posted = await post(conversations, "k1")
        await fail(conversations, posted, unbound=unbound)
        stored, counted = await records(sessions), await rows(engine)
        await fail(conversations, posted, unbound=unbound)
        await fail(conversations, posted, unbound=not unbound, of=SOUL)
        assert (await records(sessions), await rows(engine)) == (stored, counted)

    async def test_an_answer_that_came_first_counts(
        self, conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        posted = await post(conversations, "k1")
        await answer(sessions, ledger, posted)
        await fail(conversations, posted, unbound=False)
        assert [record.content for record in await records(sessions)] == ["Hello?", "Hello."]

    async def test_racing_projections_store_one_turn(
        self, conversations: Conversations, other_conversations: Conversations, sessions: Sessions
    ) -> None:
        for number in range(1, 11):
            posted = await post(conversations, f"k{number}")
            racers = [conversations, other_conversations] * 2
            await asyncio.gather(*(fail(one, posted, unbound=False, of=SOUL) for one in racers))
            assert (await sessions.session("default", "chat")).messages == 2 * number

    async def test_of_an_answer_and_a_failure_at_once_one_is_stored(
        self, conversations: Conversations, other_conversations: Conversations, sessions: Sessions, ledger: Ledger
    ) -> None:
        for number in range(1, 11):
            posted = await post(conversations, f"k{number}")
            claimant, _ = await checked(sessions, ledger, posted)
            turn = Turn(task_uid=claimant.task_uid, task=posted.task, prompt="Hello?", answer="Hello.", revision=SOUL)
            await asyncio.gather(
                sessions.append(await lock(sessions, claimant), turn),
                fail(other_conversations, posted, unbound=False, of=SOUL),
            )
            await sessions.leave("default", "chat", claimant.task_uid)
            assert (await sessions.session("default", "chat")).messages == 2 * number
            assert (await conversations.message("default", "chat", number)).answer == 2 * number
