"""Sessions in SQL as people see them: what they hold, how they stand, import and deletion."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from anima.model.errors import Conflict
from anima.model.excerpt import clean
from anima.model.session import Identity, Message, Queue, SessionRecord, SessionStatus
from anima.stores.sql.engine import guarded
from anima.stores.sql.session_queue import queue_of, read_queue
from anima.stores.sql.session_rows import (
    IDENTITY_SEQUENCE,
    MESSAGE,
    Tools,
    add_records,
    created,
    first_pending,
    locked,
    named,
    no_session,
    occupied,
)
from anima.stores.sql.session_store import SessionStore
from anima.stores.sql.tables import session_records, session_waiters, sessions


class SqlSessionRecords(SessionStore):
    """Transcripts.  The identity record is never among the messages."""

    @guarded
    async def session(self, namespace: str, name: str) -> SessionStatus:
        """Return one Session, with the first that wait; see `Sessions.session`."""
        async with self._reads.connect() as connection:
            found = (await connection.execute(_statuses().where(named(namespace, name)))).one_or_none()
            if found is None:
                raise no_session(namespace, name)
            return _status(found, await read_queue(connection, found))

    @guarded
    async def sessions(self, namespace: str | None = None, limit: int = 500) -> Sequence[SessionStatus]:
        """Return Sessions, the last used first; only how many wait, not who."""
        query = _statuses().order_by(sessions.c.updated_at.desc(), sessions.c.uid).limit(limit)
        if namespace is not None:
            query = query.where(sessions.c.namespace == namespace)
        async with self._reads.connect() as connection:
            rows = (await connection.execute(query)).all()
        return [_status(row, queue_of(row, row.waiting)) for row in rows]

    @guarded
    async def records(
        self,
        namespace: str,
        name: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        contains: str | None = None,
        newest: bool = False,
    ) -> Sequence[SessionRecord]:
        """Return messages in order of their sequence; see `Sessions.records`."""
        sequence = session_records.c.sequence
        async with self._reads.connect() as connection:
            uid = await connection.scalar(select(sessions.c.uid).where(named(namespace, name)))
            if uid is None:
                raise no_session(namespace, name)
            query = select(session_records).where(_wanted(uid, after, before, contains)).limit(limit)
            rows = (await connection.execute(query.order_by(sequence.desc() if newest else sequence))).all()
        return [_record(row) for row in (reversed(rows) if newest else rows)]

    @guarded
    async def import_messages(self, namespace: str, name: str, messages: Sequence[Message]) -> SessionStatus:
        """Create a Session, nobody's yet, from a transcript without an identity."""
        now = self._clock()
        async with self._writes.begin() as connection:
            if not await created(connection, namespace, name, None, self._new_uid(), now):
                raise Conflict(f"Session {namespace}/{name} exists; import into another name, or delete it first")
            await add_records(connection, await _required(connection, namespace, name), now, messages)
            found = (await connection.execute(_statuses().where(named(namespace, name)))).one()
        return _status(found, queue_of(found, found.waiting))

    @guarded
    async def delete(self, namespace: str, name: str) -> None:
        """Delete a Session with all that is in it; see `Sessions.delete`."""
        async with self._writes.begin() as connection:
            session = await _required(connection, namespace, name)
            this_one = sessions.c.uid == session.uid
            if await connection.scalar(select(sessions.c.uid).where(this_one, occupied())):
                raise Conflict(
                    f"Session {namespace}/{name} is in use: a Task has it or waits for it; "
                    "wait for its end, or cancel it first"
                )
            if await first_pending(connection, session.uid):
                raise Conflict(f"Session {namespace}/{name} has messages that are not answered yet; wait for them")
            await connection.execute(delete(sessions).where(this_one))


def _wanted(uid: str, after: int, before: int | None, contains: str | None) -> ColumnElement[bool]:
    columns = session_records.c
    wanted = and_(columns.session_uid == uid, columns.sequence > after, columns.kind == MESSAGE)
    if before is not None:
        wanted = and_(wanted, columns.sequence < before)
    if contains is None:
        return wanted
    # What is not fit for storage is searched for as it would have been stored.
    return and_(wanted, columns.content.icontains(clean(contains), autoescape=True))


def _statuses() -> Select[*tuple[Any, ...]]:
    records = session_records.c
    identity = and_(records.session_uid == sessions.c.uid, records.sequence == IDENTITY_SEQUENCE)
    waiting = select(func.count()).select_from(session_waiters).where(session_waiters.c.session_uid == sessions.c.uid)
    return select(
        sessions, records.content.label("identity"), waiting.correlate(sessions).scalar_subquery().label("waiting")
    ).outerjoin(session_records, identity)


def _status(row: Row[Any], queue: Queue) -> SessionStatus:
    return SessionStatus(
        namespace=row.namespace,
        name=row.name,
        uid=row.uid,
        owner=row.owner,
        messages=row.messages,
        identity=None if row.identity is None else Identity.model_validate_json(row.identity),
        queue=queue,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _record(row: Row[Any]) -> SessionRecord:
    tools = Tools() if row.tools is None else Tools.model_validate_json(row.tools)
    return SessionRecord(
        sequence=row.sequence,
        role=row.role,
        content=row.content,
        tool_calls=tools.tool_calls,
        tool_call_id=tools.tool_call_id,
        task_uid=row.task_uid,
        iteration=row.iteration,
        revision=row.revision,
        reason=row.reason,
        unbound=row.unbound,
        created_at=row.created_at,
    )


async def _required(connection: AsyncConnection, namespace: str, name: str) -> Row[Any]:
    found = await locked(connection, namespace, name)
    if found is None:
        raise no_session(namespace, name)
    return found
