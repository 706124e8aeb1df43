"""The contract of the SessionQueue port."""

import asyncio
from collections.abc import Sequence

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from anima.model.errors import Conflict, LockLost, NotFound, Refusal
from anima.model.reasons import Reason
from anima.model.session import Claimant, Message, Owner, Place, Queue, Role, Turn
from anima.stores.ports import Ledger
from anima.stores.sessions import SessionKey, Sessions
from tests.stores.claimants import conversation, end, lock, revision, rows, task, tasks
from tests.stores.conftest import Clock


async def places(sessions: Sessions, claimants: Sequence[Claimant]) -> list[int]:
    return [(await sessions.acquire("default", "chat", one)).position for one in claimants]


def names(queue: Queue) -> tuple[str | None, list[str]]:
    return queue.holder.task if queue.holder else None, [waiter.task for waiter in queue.next]


def turn(claimant: Claimant) -> Turn:
    return Turn(task_uid=claimant.task_uid, task=claimant.task, prompt="Hello?", answer="Hello.")


class TestAcquire:
    async def test_a_free_session_is_created_and_given_at_once(self, sessions: Sessions, ledger: Ledger) -> None:
        first = await task(ledger, "first")
        place = await sessions.acquire("default", "chat", first)
        status = await sessions.session("default", "chat")
        assert place.lock is not None
        assert (place.lock.session_uid, place.lock.namespace, place.lock.session) == (status.uid, "default", "chat")
        assert (place.lock.task_uid, place.lock.token) == ("first-uid", 1)
        assert (place.owner, place.position, place.holder) == (Owner.TASKS, 0, None)
        assert (status.owner, status.messages, status.identity) == (Owner.TASKS, 0, None)

    async def test_a_task_that_comes_later_gets_a_place_and_learns_who_has_it(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        first, second, third = await tasks(ledger, "first", "second", "third")
        await lock(sessions, first)
        for claimant, position in ((second, 1), (third, 2)):
            place = await sessions.acquire("default", "chat", claimant)
            assert place == Place(owner=Owner.TASKS, position=position, holder="first")

    async def test_the_holder_that_asks_again_has_the_same_lock(self, sessions: Sessions, ledger: Ledger) -> None:
        first, second = await tasks(ledger, "first", "second")
        held = await lock(sessions, first)
        await sessions.acquire("default", "chat", second)
        assert await lock(sessions, first) == held
        assert names(await sessions.queue("default", "chat")) == ("first", ["second"])

    async def test_a_waiter_that_asks_again_keeps_its_place(self, sessions: Sessions, ledger: Ledger) -> None:
        claimants = await tasks(ledger, "first", "second", "third")
        assert await places(sessions, claimants) == [0, 1, 2]
        assert await places(sessions, claimants[1:2] * 3) == [1, 1, 1]
        assert names(await sessions.queue("default", "chat")) == ("first", ["second", "third"])

    async def test_the_holder_counts_as_told_once_it_has_asked(self, sessions: Sessions, ledger: Ledger) -> None:
        first, second = await tasks(ledger, "first", "second")
        await lock(sessions, first)
        await sessions.acquire("default", "chat", second)
        await sessions.leave("default", "chat", first.task_uid)
        granted = await sessions.grant("default", "chat")
        assert granted.holder is not None
        assert (granted.holder.task, granted.holder.taken) == ("second", False)
        await lock(sessions, second)
        told = await sessions.queue("default", "chat")
        assert told.holder == granted.holder.model_copy(update={"taken": True})

    async def test_a_closed_task_gets_nothing_and_creates_nothing(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        closed = await task(ledger, "closed")
        await end(ledger, closed)
        with pytest.raises(Conflict, match="default/closed is closed"):
            await sessions.acquire("default", "chat", closed)
        assert (await rows(engine))["sessions"] == 0

    async def test_a_task_that_was_never_admitted_gets_nothing(self, sessions: Sessions) -> None:
        with pytest.raises(NotFound, match="no Task with uid unknown-uid"):
            await sessions.acquire("default", "chat", Claimant(task_uid="unknown-uid", task="x", workflow_id="x"))

    async def test_an_imported_session_becomes_the_tasks_by_its_first_use(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        imported = await sessions.import_messages("default", "chat", [Message(role=Role.USER, content="Hello?")])
        assert imported.owner is None
        first = await task(ledger, "first")
        assert (await lock(sessions, first)).session_uid == imported.uid
        assert (await sessions.session("default", "chat")).owner is Owner.TASKS


class TestOrder:
    async def test_first_come_first_served(self, sessions: Sessions, ledger: Ledger) -> None:
        claimants = await tasks(ledger, "d", "a", "c", "b", "e")
        assert await places(sessions, claimants) == [0, 1, 2, 3, 4]
        served = []
        for claimant in claimants:
            queue = await sessions.grant("default", "chat")
            assert queue.holder is not None
            served.append(queue.holder.task)
            await sessions.leave("default", "chat", claimant.task_uid)
        assert served == ["d", "a", "c", "b", "e"]
        assert names(await sessions.grant("default", "chat")) == (None, [])

    async def test_a_newcomer_does_not_pass_who_waits_for_a_free_session(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        first, second, third = await tasks(ledger, "first", "second", "third")
        await places(sessions, [first, second])
        await sessions.leave("default", "chat", first.task_uid)
        place = await sessions.acquire("default", "chat", third)
        assert (place.lock, place.position, place.holder) == (None, 1, "second")

    async def test_a_task_that_left_comes_back_at_the_end(self, sessions: Sessions, ledger: Ledger) -> None:
        claimants = await tasks(ledger, "first", "second", "third")
        await places(sessions, claimants)
        await sessions.leave("default", "chat", "second-uid")
        assert await places(sessions, claimants[1:2]) == [2]
        assert names(await sessions.queue("default", "chat")) == ("first", ["third", "second"])

    async def test_positions_count_only_those_that_are_still_there(self, sessions: Sessions, ledger: Ledger) -> None:
        claimants = await tasks(ledger, "first", "second", "third", "fourth")
        await places(sessions, claimants)
        await end(ledger, claimants[1])
        assert await places(sessions, claimants[2:]) == [1, 2]

    async def test_grant_changes_nothing_while_the_holder_is_there(self, sessions: Sessions, ledger: Ledger) -> None:
        await places(sessions, await tasks(ledger, "first", "second"))
        before = await sessions.queue("default", "chat")
        assert await sessions.grant("default", "chat") == await sessions.grant("default", "chat") == before

    async def test_a_session_that_is_not_there_has_nobody(self, sessions: Sessions) -> None:
        assert await sessions.grant("default", "none") == Queue()
        assert await sessions.leave("default", "none", "first-uid") == Queue()
        with pytest.raises(NotFound, match="no Session none in namespace default"):
            await sessions.queue("default", "none")

    async def test_a_queue_shows_the_first_and_how_many_wait(
        self, sessions: Sessions, ledger: Ledger, clock: Clock
    ) -> None:
        claimants = await tasks(ledger, *(f"t{number}" for number in range(6)))
        for claimant in claimants:
            await sessions.acquire("default", "chat", claimant)
            clock.advance(seconds=1)
        queue = await sessions.queue("default", "chat", limit=2)
        assert (queue.owner, queue.waiting) == (Owner.TASKS, 5)
        assert names(queue) == ("t0", ["t1", "t2"])
        assert [(waiter.task_uid, waiter.workflow_id) for waiter in queue.next] == [
            (one.task_uid, one.workflow_id) for one in claimants[1:3]
        ]
        assert (queue.next[1].asked_at - queue.next[0].asked_at).total_seconds() == 1
        assert (await sessions.queue("default", "chat", limit=0)).waiting == 5


class TestGone:
    async def test_a_holder_whose_task_is_closed_is_replaced_by_the_next(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        first, second = await tasks(ledger, "first", "second")
        await places(sessions, [first, second])
        await end(ledger, first)
        assert names(await sessions.grant("default", "chat")) == ("second", [])

    async def test_a_holder_whose_task_is_deleted_is_replaced_by_who_asks(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        first, second = await tasks(ledger, "first", "second")
        await lock(sessions, first)
        await end(ledger, first)
        await ledger.delete_task("default", "first")
        assert (await lock(sessions, second)).token == 2

    async def test_a_holder_that_is_gone_is_shown_until_somebody_takes_its_place(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        first = await task(ledger, "first")
        await lock(sessions, first)
        await end(ledger, first)
        assert names(await sessions.queue("default", "chat")) == ("first", [])
        assert names(await sessions.grant("default", "chat")) == (None, [])

    async def test_waiters_that_are_gone_are_skipped(self, sessions: Sessions, ledger: Ledger) -> None:
        claimants = await tasks(ledger, "first", "closed", "deleted", "fourth", "fifth")
        await places(sessions, claimants)
        await end(ledger, claimants[1])
        await end(ledger, claimants[2])
        await ledger.delete_task("default", "deleted")
        await sessions.leave("default", "chat", "first-uid")
        assert names(await sessions.grant("default", "chat")) == ("fourth", ["fifth"])

    async def test_a_queue_of_which_all_are_gone_is_empty(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        claimants = await tasks(ledger, "first", "second", "third")
        await places(sessions, claimants)
        for claimant in claimants:
            await end(ledger, claimant)
        assert names(await sessions.grant("default", "chat")) == (None, [])
        assert (await rows(engine))["session_waiters"] == 0


class TestLeave:
    async def test_the_holder_leaves_and_nobody_has_it_until_it_is_granted(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        await places(sessions, await tasks(ledger, "first", "second"))
        assert names(await sessions.leave("default", "chat", "first-uid")) == (None, ["second"])
        assert names(await sessions.grant("default", "chat")) == ("second", [])

    async def test_leaving_twice_is_leaving_once(self, sessions: Sessions, ledger: Ledger) -> None:
        await places(sessions, await tasks(ledger, "first", "second"))
        left = await sessions.leave("default", "chat", "first-uid")
        assert await sessions.leave("default", "chat", "first-uid") == left
        granted = await sessions.grant("default", "chat")
        assert await sessions.leave("default", "chat", "first-uid") == granted

    async def test_a_waiter_leaves_the_queue(self, sessions: Sessions, ledger: Ledger) -> None:
        await places(sessions, await tasks(ledger, "first", "second", "third"))
        assert names(await sessions.leave("default", "chat", "second-uid")) == ("first", ["third"])

    async def test_a_task_that_has_nothing_changes_nothing_by_leaving(self, sessions: Sessions, ledger: Ledger) -> None:
        await places(sessions, await tasks(ledger, "first", "second"))
        before = await sessions.queue("default", "chat")
        assert await sessions.leave("default", "chat", "stranger-uid") == before

    async def test_leaving_one_session_leaves_the_others(self, sessions: Sessions, ledger: Ledger) -> None:
        first = await task(ledger, "first")
        await lock(sessions, first, "chat")
        held = await lock(sessions, first, "other")
        await sessions.leave("default", "chat", first.task_uid)
        assert await lock(sessions, first, "other") == held


class TestTokens:
    async def test_a_token_is_given_once_and_each_is_higher_than_the_last(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        first, second, third = await tasks(ledger, "first", "second", "third")
        tokens = []
        for claimant in (first, second, first, third):
            tokens.append((await lock(sessions, claimant)).token)
            await sessions.acquire("default", "chat", claimant)
            await sessions.leave("default", "chat", claimant.task_uid)
            await sessions.grant("default", "chat")
        assert tokens == [1, 2, 3, 4]

    async def test_a_token_is_not_used_again_after_waiters_and_holders_have_gone(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        claimants = await tasks(ledger, "first", "second", "third", "fourth")
        await places(sessions, claimants[:3])
        for claimant in claimants[:3]:
            await end(ledger, claimant)
            await ledger.delete_task("default", claimant.task)
        assert names(await sessions.grant("default", "chat")) == (None, [])
        assert (await lock(sessions, claimants[3])).token == 2

    async def test_a_task_that_takes_the_session_anew_has_lost_its_old_token(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        first = await task(ledger, "first")
        old = await lock(sessions, first)
        await sessions.leave("default", "chat", first.task_uid)
        new = await lock(sessions, first)
        assert new.token > old.token
        with pytest.raises(LockLost):
            await sessions.append(old, turn(first))
        await sessions.append(new, turn(first))

    async def test_a_session_that_is_deleted_and_begun_again_is_another(
        self, sessions: Sessions, ledger: Ledger
    ) -> None:
        first = await task(ledger, "first")
        old = await lock(sessions, first)
        await sessions.leave("default", "chat", first.task_uid)
        await sessions.delete("default", "chat")
        new = await lock(sessions, first)
        assert new.session_uid != old.session_uid
        with pytest.raises(LockLost):
            await sessions.append(old, turn(first))


class TestRaces:
    async def test_of_two_processes_that_ask_at_once_exactly_one_has_it(
        self, sessions: Sessions, other_sessions: Sessions, ledger: Ledger
    ) -> None:
        for number in range(15):
            claimants = await tasks(ledger, *(f"r{number}-{one}" for one in range(4)))
            racers = zip([sessions, other_sessions] * 2, claimants, strict=True)
            got = await asyncio.gather(*(one.acquire("default", f"s{number}", claimant) for one, claimant in racers))
            assert sorted(place.position for place in got) == [0, 1, 2, 3]
            assert [place.lock.token for place in got if place.lock] == [1]
            queue = await sessions.queue("default", f"s{number}")
            assert queue.holder is not None
            by_place = [claimants[got.index(place)].task for place in sorted(got, key=lambda place: place.position)]
            assert [queue.holder.task, *(waiter.task for waiter in queue.next)] == by_place

    async def test_of_racing_grants_leaves_and_claims_one_hands_it_on(
        self, sessions: Sessions, other_sessions: Sessions, ledger: Ledger
    ) -> None:
        claimants = await tasks(ledger, *(f"t{number}" for number in range(12)))
        await places(sessions, claimants[:2])
        for number, claimant in enumerate(claimants[:-2]):
            done = await asyncio.gather(
                sessions.leave("default", "chat", claimant.task_uid),
                other_sessions.grant("default", "chat"),
                sessions.acquire("default", "chat", claimants[number + 2]),
                other_sessions.leave("default", "chat", claimant.task_uid),
                return_exceptions=True,
            )
            assert [one for one in done if isinstance(one, BaseException)] == []
            queue = await sessions.grant("default", "chat")
            assert queue.holder is not None
            assert (queue.holder.task, queue.holder.token) == (claimants[number + 1].task, number + 2)


class TestConversations:
    async def test_the_task_of_the_first_pending_message_gets_it(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        uid = await conversation(engine, "m1", "m2")
        first = await task(ledger, "m1")
        place = await sessions.acquire("default", "chat", first)
        assert place.owner is Owner.CONVERSATION
        assert place.lock is not None
        assert place.lock.session_uid == uid

    @pytest.mark.parametrize("name", ["m2", "stranger"])
    async def test_any_other_task_is_refused(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine, name: str
    ) -> None:
        await conversation(engine, "m1", "m2")
        with pytest.raises(Refusal, match=f"default/chat is a conversation's, and Task {name} ") as caught:
            await sessions.acquire("default", "chat", await task(ledger, name))
        assert caught.value.reason is Reason.SESSION_OWNED
        assert names(await sessions.queue("default", "chat")) == (None, [])

    async def test_a_conversation_without_pending_messages_is_for_no_task(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        await conversation(engine)
        with pytest.raises(Refusal) as caught:
            await sessions.acquire("default", "chat", await task(ledger, "stranger"))
        assert caught.value.reason is Reason.SESSION_OWNED

    async def test_it_goes_on_once_the_message_is_answered(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        await conversation(engine, "m1", "m2")
        first, second = await tasks(ledger, "m1", "m2")
        await sessions.append(await lock(sessions, first), turn(first))
        assert (await sessions.queue("default", "chat")).owner is Owner.CONVERSATION
        place = await sessions.acquire("default", "chat", second)
        assert (place.position, place.holder) == (1, "m1")
        await sessions.leave("default", "chat", first.task_uid)
        await lock(sessions, second)

    async def test_a_task_that_is_reset_after_its_answer_goes_the_same_way_again(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        await conversation(engine, "m1", "m2")
        first = await task(ledger, "m1")
        await sessions.append(await lock(sessions, first), turn(first))
        await sessions.leave("default", "chat", first.task_uid)
        again = await lock(sessions, first)
        await sessions.append(again, turn(first))
        assert (await sessions.session("default", "chat")).messages == 2


class TestContended:
    async def test_only_sessions_in_which_somebody_waits_are_contended(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        first, second, third = await tasks(ledger, "first", "second", "third")
        await lock(sessions, first, "held")
        await lock(sessions, first, "awaited")
        await sessions.acquire("default", "awaited", second)
        await sessions.acquire("default", "awaited", third)
        await conversation(engine, name="quiet")
        await conversation(engine, "m1", "m2", name="asked")
        assert {(key.name, key.conversation) for key in await sessions.contended()} == {
            ("awaited", False),
            ("asked", True),
        }

    async def test_a_message_is_pending_until_it_is_answered(
        self, sessions: Sessions, ledger: Ledger, engine: AsyncEngine
    ) -> None:
        await conversation(engine, "m1")
        first = await task(ledger, "m1")
        held = await lock(sessions, first)
        assert await sessions.contended() == [SessionKey("default", "chat", True)]
        await sessions.append(held, turn(first))
        assert await sessions.contended() == []

    async def test_the_longest_untouched_come_first_and_whoever_looks_at_one_touches_it(
        self, sessions: Sessions, ledger: Ledger, clock: Clock
    ) -> None:
        first, second = await tasks(ledger, "first", "second")
        for name in ("b", "a", "c"):
            await lock(sessions, first, name)
            await sessions.acquire("default", name, second)
            clock.advance(seconds=1)
        assert [key.name for key in await sessions.contended(limit=2)] == ["b", "a"]
        await sessions.grant("default", "b")
        assert [key.name for key in await sessions.contended()] == ["a", "c", "b"]


async def test_a_pin_under_a_lock_that_was_handed_on_is_refused(sessions: Sessions, ledger: Ledger) -> None:
    first, second = await tasks(ledger, "first", "second")
    held = await lock(sessions, first)
    await sessions.acquire("default", "chat", second)
    await end(ledger, first)
    await sessions.grant("default", "chat")
    with pytest.raises(LockLost, match="lock 1 on Session default/chat"):
        await sessions.pin(held, "first", revision(), append=True)
    assert (await sessions.session("default", "chat")).identity is None
