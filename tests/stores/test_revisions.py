"""The contract of the RevisionUses port: what is under which revision, page by page."""

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from anima.model.attempts import AttemptInput, AttemptKey, ProviderSettings
from anima.model.binding import SoulBinding
from anima.model.digests import digest_bytes
from anima.stores.ports import Ledger
from anima.stores.revisions import RevisionUses, SessionUse, TaskUse
from anima.stores.sessions import Sessions
from anima.stores.sql import SqlRevisionUses
from tests.stores.claimants import NOW, end, lock, revision, task, tasks

SOUL = digest_bytes(b"You are terse.")
DIGEST = digest_bytes(b"")


@pytest.fixture
def uses(engine: AsyncEngine) -> RevisionUses:
    return SqlRevisionUses(engine)


def binding(name: str) -> SoulBinding:
    return SoulBinding(
        agent_uid="agent-uid",
        agent_generation=1,
        task_uid=f"{name}-uid",
        soul_digest=SOUL,
        prompt_digest=DIGEST,
        inputs_digest=DIGEST,
        inputs_version=1,
        envelope_version=1,
        bound_at=NOW,
    )


async def start(ledger: Ledger, name: str) -> None:
    """Let a Task's first Job exist."""
    key = AttemptKey(task_uid=f"{name}-uid", iteration=0, attempt=1)
    given = AttemptInput(
        namespace="default",
        task=name,
        key=key,
        user_prompt="Say hello.",
        user_prompt_digest=DIGEST,
        system_prompt_digest=DIGEST,
        envelope_version=1,
        provider=ProviderSettings(type="rehearsal", model="rehearsal"),
    )
    await ledger.intend(key, f"{name}-job", given)
    await ledger.started(key)


async def test_bound_tasks_and_those_that_started_without_a_soul_are_in_use(uses: RevisionUses, ledger: Ledger) -> None:
    bound, *_ = await tasks(ledger, "bound", "submitted", "started", "failed-unbound")
    await ledger.bind(binding("bound"))
    await end(ledger, bound)
    await start(ledger, "started")
    assert await uses.tasks("default") == [
        TaskUse("bound", closed=True, revision=binding("bound").revision),
        TaskUse("started", closed=False, revision=None),
    ]
    assert await uses.tasks("elsewhere") == []


async def test_sessions_with_an_identity_are_in_use(uses: RevisionUses, sessions: Sessions, ledger: Ledger) -> None:
    await sessions.acquire("default", "not-pinned", await task(ledger, "first"))
    for name, pinned in (("with-a-soul", revision()), ("without", None)):
        held = await lock(sessions, await task(ledger, name), name)
        await sessions.pin(held, name, pinned, append=True)
    assert await uses.sessions("default") == [SessionUse("with-a-soul", revision()), SessionUse("without", None)]
    assert await uses.sessions("elsewhere") == []


async def test_pages_follow_each_other_by_name(uses: RevisionUses, sessions: Sessions, ledger: Ledger) -> None:
    for name in ("c", "a", "b"):
        claimant = await task(ledger, name)
        await ledger.bind(binding(name))
        await sessions.pin(await lock(sessions, claimant, name), name, None, append=True)
    for read in (uses.tasks, uses.sessions):
        assert [use.name for use in await read("default", limit=2)] == ["a", "b"]
        assert [use.name for use in await read("default", after="b", limit=2)] == ["c"]
