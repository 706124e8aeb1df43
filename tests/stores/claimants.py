"""Tasks that want Sessions, and conversations as the gateway leaves them."""

from datetime import UTC, datetime

from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from anima.model.binding import Revision
from anima.model.digests import digest_bytes
from anima.model.session import Claimant, Owner, SessionLock
from anima.model.task import Phase, TaskSpec, TaskStatus
from anima.stores.ports import Ledger
from anima.stores.sessions import Sessions
from anima.stores.sql.session_rows import created
from anima.stores.sql.tables import conversation_messages, metadata

NOW = datetime(2026, 11, 30, 11, tzinfo=UTC)
SPEC = TaskSpec.model_validate({"type": "ai", "agentRef": {"name": "reviewer"}, "prompt": "Say hello."})
SESSION_TABLES = ("sessions", "session_records", "session_waiters", "conversation_messages")


async def task(ledger: Ledger, name: str) -> Claimant:
    """Admit a Task."""
    record = await ledger.admit("default", name, f"{name}-uid", f"task/default/{name}", SPEC, NOW)
    return Claimant(task_uid=record.uid, task=name, workflow_id=record.workflow_id)


async def tasks(ledger: Ledger, *names: str) -> list[Claimant]:
    return [await task(ledger, name) for name in names]


async def end(ledger: Ledger, claimant: Claimant) -> None:
    """Close a Task's record, as whoever finds its workflow gone does."""
    gone = TaskStatus(namespace="default", name=claimant.task, uid=claimant.task_uid, phase=Phase.FAILED)
    await ledger.close(gone)


async def lock(sessions: Sessions, claimant: Claimant, session: str = "chat") -> SessionLock:
    """Take a Session that is free."""
    place = await sessions.acquire("default", session, claimant)
    assert place.lock is not None
    return place.lock


def revision(generation: int = 1, soul: str | None = "You are terse.") -> Revision:
    return Revision(
        agent_uid="agent-uid",
        agent_generation=generation,
        soul_digest=digest_bytes(soul.encode()) if soul else None,
        prompt_digest=digest_bytes(b"prompt"),
        envelope_version=1,
    )


async def conversation(engine: AsyncEngine, *messages: str, name: str = "chat") -> str:
    """Begin a conversation with pending messages, each named like its Task; return its uid."""
    uid = f"{name}-session"
    async with engine.begin() as connection:
        await created(connection, "default", name, Owner.CONVERSATION, uid, NOW)
        for number, task_name in enumerate(messages, start=1):
            row = {
                "session_uid": uid,
                "number": number,
                "idempotency_key": str(number),
                "content_digest": digest_bytes(b"Hello?"),
                "agent": "reviewer",
                "content": "Hello?",
                "task": task_name,
                "posted_at": NOW,
            }
            await connection.execute(insert(conversation_messages), row)
    return uid


async def rows(engine: AsyncEngine) -> dict[str, int]:
    """Count the rows of every table of Sessions."""
    async with engine.connect() as connection:
        return {
            table: await connection.scalar(select(func.count()).select_from(metadata.tables[table])) or 0
            for table in SESSION_TABLES
        }
