"""What a Task writes to its Session in SQL: the pin and its turns, each under the lock."""

from typing import Any

from sqlalchemy import Row, exists, select
from sqlalchemy.ext.asyncio import AsyncConnection

from anima.model.binding import Revision
from anima.model.errors import LockLost
from anima.model.session import Identity, Message, Owner, Role, SessionLock, Turn, check_revision
from anima.stores.sql.engine import guarded
from anima.stores.sql.session_rows import (
    add_records,
    first_pending,
    has_history,
    identity_of,
    locked_by_uid,
    mark_answered,
    turns_of,
    write_identity,
)
from anima.stores.sql.session_store import SessionStore
from anima.stores.sql.tables import session_records, tasks


class SqlSessionTurns(SessionStore):
    """Pins and turns: what is decided and what is written is one transaction."""

    @guarded
    async def pin(self, lock: SessionLock, task: str, revision: Revision | None, append: bool) -> Identity | None:
        """Check a Task's revision, and pin it if it establishes the identity; see `Sessions.pin`."""
        async with self._writes.begin() as connection:
            session = await _held(connection, lock)
            if session is None:
                raise _lost(lock)
            identity = await identity_of(connection, session.uid)
            establishes = check_revision(
                f"{session.namespace}/{session.name}",
                identity,
                has_history=await has_history(connection, session.uid),
                revision=revision,
                append=append,
            )
            if not establishes or session.owner == Owner.CONVERSATION:
                return identity
            return await self._pin(connection, lock, task, revision)

    @guarded
    async def append(self, lock: SessionLock, turn: Turn) -> None:
        """Store a turn's two messages, once per Task UID and iteration; see `Sessions.append`."""
        stored = exists().where(
            turns_of(lock.session_uid, turn.task_uid), session_records.c.iteration == turn.iteration
        )
        async with self._writes.begin() as connection:
            session = await _held(connection, lock)
            if await connection.scalar(select(stored)):
                return
            if session is None or turn.task_uid != lock.task_uid:
                raise _lost(lock)
            if session.owner == Owner.CONVERSATION:
                await self._answer(connection, session, lock, turn)
            else:
                await self._add(connection, session, turn)

    async def _answer(self, connection: AsyncConnection, session: Row[Any], lock: SessionLock, turn: Turn) -> None:
        message = await first_pending(connection, session.uid)
        if message is None or message.task != turn.task:
            # What became of it was stored without the Task, which counted as gone.
            raise _lost(lock)
        answer = await self._add(connection, session, turn)
        await mark_answered(connection, session.uid, message.number, answer)
        if await identity_of(connection, session.uid) is None:
            await self._pin(connection, lock, turn.task, turn.revision)

    async def _add(self, connection: AsyncConnection, session: Row[Any], turn: Turn) -> int:
        return await add_records(
            connection,
            session,
            self._clock(),
            [Message(role=Role.USER, content=turn.prompt), Message(role=Role.ASSISTANT, content=turn.answer)],
            task_uid=turn.task_uid,
            iteration=turn.iteration,
            revision=turn.revision.session_digest if turn.revision else None,
        )

    async def _pin(
        self, connection: AsyncConnection, lock: SessionLock, task: str, revision: Revision | None
    ) -> Identity:
        identity = Identity(revision=revision, task_uid=lock.task_uid, task=task, pinned_at=self._clock())
        await write_identity(connection, lock.session_uid, identity)
        return identity


async def _held(connection: AsyncConnection, lock: SessionLock) -> Row[Any] | None:
    """Lock the Session's row, and return it if the lock is still the Task's, and the Task is not closed."""
    closed = await connection.scalar(select(tasks.c.closed).where(tasks.c.uid == lock.task_uid).with_for_update())
    session = await locked_by_uid(connection, lock.session_uid)
    if closed is not False or session is None:
        return None
    return session if (session.holder, session.last_token) == (lock.task_uid, lock.token) else None


def _lost(lock: SessionLock) -> LockLost:
    return LockLost(
        f"the lock {lock.token} on Session {lock.namespace}/{lock.session} is not that of the Task with uid "
        f"{lock.task_uid} any more, so nothing is written; ask for the Session again"
    )
