"""Rows that everything about Sessions shares: the Session's own, its identity, its records.

Whoever writes locks the Session's row first (`locked`, `claimed`), so that what was read
under it still holds when the transaction ends.  A Task's row, where it is locked too, is
locked before: the order is always the same.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import Field
from sqlalchemy import ColumnElement, Row, and_, exists, insert, not_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from anima.model.base import Model
from anima.model.errors import NotFound, Unavailable
from anima.model.reasons import Reason
from anima.model.session import Identity, Message, Owner, Role, ToolCall
from anima.model.transcript import storable
from anima.stores.sql.tables import (
    conversation_messages,
    insert_if_absent,
    session_records,
    session_waiters,
    sessions,
    tasks,
)

IDENTITY = "identity"
MESSAGE = "message"
IDENTITY_SEQUENCE = 0


class Tools(Model):
    """What a message has to do with tools, as it is stored."""

    tool_calls: list[ToolCall] = Field(default_factory=list)
    tool_call_id: str | None = None


def named(namespace: str, name: str) -> ColumnElement[bool]:
    """Match the row of one Session."""
    return and_(sessions.c.namespace == namespace, sessions.c.name == name)


def no_session(namespace: str, name: str) -> NotFound:
    """Say that there is no such Session."""
    return NotFound(
        f"there is no Session {name} in namespace {namespace}; `anima sessions -n {namespace}` lists those there are"
    )


def open_task(uid: ColumnElement[Any]) -> ColumnElement[bool]:
    """Tell in SQL whether the Task of this uid is in the Ledger and not closed."""
    return exists().where(tasks.c.uid == uid, not_(tasks.c.closed))


def occupied() -> ColumnElement[bool]:
    """Tell in SQL whether a Task that is not closed has the Session or waits for it."""
    waits = and_(session_waiters.c.session_uid == sessions.c.uid, open_task(session_waiters.c.task_uid))
    return or_(open_task(sessions.c.holder), exists().where(waits))


async def locked(connection: AsyncConnection, namespace: str, name: str) -> Row[Any] | None:
    """Lock a Session's row until the transaction ends, and return it; none if there is no such Session."""
    query = select(sessions).where(named(namespace, name)).with_for_update()
    return (await connection.execute(query)).one_or_none()


async def locked_by_uid(connection: AsyncConnection, uid: str) -> Row[Any] | None:
    """Lock as `locked` does."""
    return (await connection.execute(select(sessions).where(sessions.c.uid == uid).with_for_update())).one_or_none()


async def created(
    connection: AsyncConnection, namespace: str, name: str, owner: Owner | None, uid: str, now: datetime
) -> bool:
    """Create a Session unless it is there; tell whether it was absent."""
    row = {
        "uid": uid,
        "namespace": namespace,
        "name": name,
        "owner": owner,
        "created_at": now,
        "updated_at": now,
        "messages": 0,
        "last_sequence": IDENTITY_SEQUENCE,
        "last_token": 0,
        "taken": False,
    }
    return await insert_if_absent(connection, sessions, row)


async def claimed(
    connection: AsyncConnection, namespace: str, name: str, owner: Owner, uid: str, now: datetime
) -> Row[Any]:
    """Lock a Session's row, and return it; create it if need be, and make it the owner's if it is nobody's.

    The caller compares the row's owner with its own.

    Raises:
        Unavailable: the Session was deleted at this moment.
    """
    await created(connection, namespace, name, owner, uid, now)
    found = await locked(connection, namespace, name)
    if found is None:
        raise Unavailable(f"Session {namespace}/{name} was deleted at this moment; it is tried again")
    return found if found.owner else await changed(connection, found.uid, owner=owner)


async def changed(connection: AsyncConnection, uid: str, **values: Any) -> Row[Any]:
    """Set columns of a Session's row that is locked, and return it."""
    statement = update(sessions).where(sessions.c.uid == uid).values(**values).returning(*sessions.c)
    return (await connection.execute(statement)).one()


async def identity_of(connection: AsyncConnection, uid: str) -> Identity | None:
    """Return what a Session is pinned to."""
    at = and_(session_records.c.session_uid == uid, session_records.c.sequence == IDENTITY_SEQUENCE)
    content = await connection.scalar(select(session_records.c.content).where(at))
    return None if content is None else Identity.model_validate_json(content)


async def write_identity(connection: AsyncConnection, uid: str, identity: Identity) -> None:
    """Pin a Session that has no identity."""
    row = {
        "session_uid": uid,
        "sequence": IDENTITY_SEQUENCE,
        "kind": IDENTITY,
        "role": IDENTITY,
        "content": identity.model_dump_json(),
        "task_uid": identity.task_uid,
        "revision": identity.digest,
        "unbound": False,
        "created_at": identity.pinned_at,
    }
    await connection.execute(insert(session_records), row)


async def has_history(connection: AsyncConnection, uid: str) -> bool:
    """Tell whether a Session holds a message that is not attested as establishing nothing."""
    columns = session_records.c
    binding = and_(columns.session_uid == uid, columns.kind == MESSAGE, not_(columns.unbound))
    return bool(await connection.scalar(select(exists().where(binding))))


def turns_of(uid: str, task_uid: str) -> ColumnElement[bool]:
    """Match the messages that a Task has added to a Session."""
    columns = session_records.c
    return and_(columns.session_uid == uid, columns.task_uid == task_uid, columns.kind == MESSAGE)


async def first_pending(connection: AsyncConnection, uid: str) -> Row[Any] | None:
    """Return the row of a conversation's message whose turn it is."""
    columns = conversation_messages.c
    pending = and_(columns.session_uid == uid, columns.answer.is_(None))
    query = select(conversation_messages).where(pending).order_by(columns.number).limit(1)
    return (await connection.execute(query)).one_or_none()


async def mark_answered(connection: AsyncConnection, uid: str, number: int, answer: int) -> None:
    """Note the sequence of the answer to a conversation's message, whose text is a record now."""
    columns = conversation_messages.c
    message = and_(columns.session_uid == uid, columns.number == number)
    await connection.execute(update(conversation_messages).where(message).values(answer=answer, content=""))


async def add_records(
    connection: AsyncConnection,
    session: Row[Any],
    now: datetime,
    messages: Sequence[Message],
    *,
    task_uid: str | None = None,
    iteration: int | None = None,
    revision: str | None = None,
    reason: Reason | None = None,
    unbound: bool = False,
) -> int:
    """Add messages to the end of a Session whose row is locked, made fit for storage.

    Args:
        connection: in the transaction that has locked the row.
        session: that row; its counts are stale afterwards.
        now: the time of the records.
        messages: in order; those of one turn together.
        task_uid: of the Task whose turn it is.
        iteration: of the Task.
        revision: the digest under which the messages were made.
        reason: why there is no answer; kept with the assistant's message.
        unbound: the turn establishes nothing.

    Returns:
        The sequence of the last one.
    """
    last: int = session.last_sequence + len(messages)
    rows = [
        _columns(message)
        | {
            "session_uid": session.uid,
            "sequence": session.last_sequence + place,
            "task_uid": task_uid,
            "iteration": iteration,
            "part": None if task_uid is None else place,
            "revision": revision,
            "reason": reason if message.role is Role.ASSISTANT else None,
            "unbound": unbound,
            "created_at": now,
        }
        for place, message in enumerate(messages, start=1)
    ]
    if rows:
        await connection.execute(insert(session_records), rows)
    counted = sessions.c.messages + len(rows)
    await changed(connection, session.uid, messages=counted, last_sequence=last, updated_at=now)
    return last


def _columns(message: Message) -> dict[str, Any]:
    fit = storable(message)
    tools = Tools(tool_calls=fit.tool_calls, tool_call_id=fit.tool_call_id)
    return {
        "kind": MESSAGE,
        "role": fit.role,
        "content": fit.content,
        "tools": None if tools == Tools() else tools.model_dump_json(exclude_defaults=True),
    }
