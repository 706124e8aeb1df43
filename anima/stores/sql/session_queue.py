"""The lock of a Session in SQL: who has it, who waits, and how it goes from one to the next."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, delete, exists, func, select, union
from sqlalchemy.ext.asyncio import AsyncConnection

from anima.model.errors import Refusal
from anima.model.reasons import Reason
from anima.model.session import Claimant, Holder, Owner, Place, Queue, SessionLock, Waiter
from anima.stores.sessions import SessionKey
from anima.stores.sql.engine import guarded
from anima.stores.sql.session_rows import (
    changed,
    claimed,
    first_pending,
    locked,
    named,
    no_session,
    open_task,
    turns_of,
)
from anima.stores.sql.session_store import SessionStore
from anima.stores.sql.tables import conversation_messages, insert_if_absent, session_waiters, sessions
from anima.stores.sql.tasks import require_open

_SHOWN = 20
"""Waiters, where nobody says how many are wanted."""
_NOBODY = {"holder": None, "holder_task": None, "holder_workflow": None, "held_since": None, "taken": False}


class SqlSessionQueue(SessionStore):
    """The `SessionQueue`: a holder in the Session's row, and a row for each Task that waits."""

    @guarded
    async def acquire(self, namespace: str, name: str, claimant: Claimant) -> Place:
        """Take the Session, or a place at the end of its queue; see `SessionQueue.acquire`."""
        async with self._writes.begin() as connection:
            await require_open(connection, claimant.task_uid)
            session = await claimed(connection, namespace, name, Owner.TASKS, self._new_uid(), self._clock())
            if session.holder != claimant.task_uid:
                await _require_turn(connection, session, claimant)
                await self._enqueue(connection, session, claimant)
                session = await self._hand_on(connection, session)
            if session.holder == claimant.task_uid:
                await changed(connection, session.uid, taken=True)
                return Place(lock=_lock(session), owner=session.owner)
            position = await _position(connection, session, claimant)
        return Place(owner=session.owner, position=position, holder=session.holder_task)

    @guarded
    async def grant(self, namespace: str, name: str) -> Queue:
        """Give the Session to the first that waits, if nobody has it; return how it stands."""
        async with self._writes.begin() as connection:
            session = await locked(connection, namespace, name)
            if session is None:
                return Queue()
            session = await self._hand_on(connection, session)
            # Whoever looks at contended Sessions comes to all of them in turn.
            session = await changed(connection, session.uid, updated_at=self._clock())
            return await read_queue(connection, session)

    @guarded
    async def leave(self, namespace: str, name: str, task_uid: str) -> Queue:
        """Release the Session, or leave its queue; return how it stands.  Again is the same."""
        async with self._writes.begin() as connection:
            session = await locked(connection, namespace, name)
            if session is None:
                return Queue()
            place = and_(_waiting_for(session.uid), session_waiters.c.task_uid == task_uid)
            await connection.execute(delete(session_waiters).where(place))
            if session.holder == task_uid:
                session = await changed(connection, session.uid, updated_at=self._clock(), **_NOBODY)
            return await read_queue(connection, session)

    @guarded
    async def queue(self, namespace: str, name: str, limit: int = _SHOWN) -> Queue:
        """Return holder and waiters as they are; see `SessionQueue.queue`."""
        async with self._reads.connect() as connection:
            session = (await connection.execute(select(sessions).where(named(namespace, name)))).one_or_none()
            if session is None:
                raise no_session(namespace, name)
            return await read_queue(connection, session, limit)

    @guarded
    async def contended(self, limit: int = 100) -> Sequence[SessionKey]:
        """Return Sessions in which a Task or a message waits, the longest untouched first."""
        messages = select(conversation_messages.c.session_uid).where(conversation_messages.c.answer.is_(None))
        wanted = union(select(session_waiters.c.session_uid), messages)
        query = select(sessions).where(sessions.c.uid.in_(wanted)).order_by(sessions.c.updated_at).limit(limit)
        async with self._reads.connect() as connection:
            rows = (await connection.execute(query)).all()
        return [SessionKey(row.namespace, row.name, row.owner == Owner.CONVERSATION) for row in rows]

    async def _enqueue(self, connection: AsyncConnection, session: Row[Any], claimant: Claimant) -> None:
        row = claimant.model_dump(by_alias=False) | {"session_uid": session.uid, "asked_at": self._clock()}
        await insert_if_absent(connection, session_waiters, row)

    async def _hand_on(self, connection: AsyncConnection, session: Row[Any]) -> Row[Any]:
        if await connection.scalar(select(open_task(sessions.c.holder)).where(sessions.c.uid == session.uid)):
            return session
        first = await _first_waiter(connection, session)
        served_or_gone = _waiting_for(session.uid)
        if first is not None:
            served_or_gone = and_(served_or_gone, session_waiters.c.number <= first.number)
        await connection.execute(delete(session_waiters).where(served_or_gone))
        if first is None:
            return await changed(connection, session.uid, **_NOBODY)
        now = self._clock()
        return await changed(
            connection,
            session.uid,
            last_token=session.last_token + 1,
            holder=first.task_uid,
            holder_task=first.task,
            holder_workflow=first.workflow_id,
            held_since=now,
            taken=False,
            updated_at=now,
        )


async def read_queue(connection: AsyncConnection, session: Row[Any], limit: int = _SHOWN) -> Queue:
    """Return how a Session stands, with so many waiters at most."""
    waiting = select(func.count()).select_from(session_waiters).where(_waiting_for(session.uid))
    first = select(session_waiters).where(_waiting_for(session.uid)).order_by(session_waiters.c.number).limit(limit)
    waiters = [
        Waiter(task_uid=row.task_uid, task=row.task, workflow_id=row.workflow_id, asked_at=row.asked_at)
        for row in await connection.execute(first)
    ]
    return queue_of(session, await connection.scalar(waiting) or 0, waiters)


def queue_of(session: Row[Any], waiting: int, waiters: Sequence[Waiter] = ()) -> Queue:
    """Return how a Session stands by its row, and by who waits."""
    return Queue(
        session_uid=session.uid,
        owner=session.owner,
        holder=_holder(session),
        waiting=waiting,
        next=list(waiters),
    )


def _holder(session: Row[Any]) -> Holder | None:
    if session.holder is None:
        return None
    return Holder(
        task_uid=session.holder,
        task=session.holder_task,
        workflow_id=session.holder_workflow,
        token=session.last_token,
        since=session.held_since,
        taken=session.taken,
    )


async def _require_turn(connection: AsyncConnection, session: Row[Any], claimant: Claimant) -> None:
    if session.owner != Owner.CONVERSATION:
        return
    first = await first_pending(connection, session.uid)
    if first is not None and first.task == claimant.task:
        return
    # A Task that is reset after its answer was stored goes the same way again.
    if await connection.scalar(select(exists().where(turns_of(session.uid, claimant.task_uid)))):
        return
    raise Refusal(
        Reason.SESSION_OWNED,
        f"Session {session.namespace}/{session.name} is a conversation's, and Task {claimant.task} "
        "is not the one that answers its next message",
    )


async def _first_waiter(connection: AsyncConnection, session: Row[Any]) -> Row[Any] | None:
    present = and_(_waiting_for(session.uid), open_task(session_waiters.c.task_uid))
    query = select(session_waiters).where(present).order_by(session_waiters.c.number).limit(1)
    return (await connection.execute(query)).one_or_none()


async def _position(connection: AsyncConnection, session: Row[Any], claimant: Claimant) -> int:
    columns = session_waiters.c
    mine = select(columns.number).where(_waiting_for(session.uid), columns.task_uid == claimant.task_uid)
    number = await connection.scalar(mine)
    present = and_(_waiting_for(session.uid), columns.number <= number, open_task(columns.task_uid))
    return await connection.scalar(select(func.count()).select_from(session_waiters).where(present)) or 0


def _waiting_for(uid: str) -> ColumnElement[bool]:
    return session_waiters.c.session_uid == uid


def _lock(session: Row[Any]) -> SessionLock:
    return SessionLock(
        session_uid=session.uid,
        namespace=session.namespace,
        session=session.name,
        task_uid=session.holder,
        token=session.last_token,
    )
