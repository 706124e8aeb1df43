"""Conversations in SQL: user messages in order of arrival, each answered once."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from anima.model.binding import Revision
from anima.model.conversation import Attestation, PostedMessage
from anima.model.digests import digest_bytes
from anima.model.errors import Conflict, NotFound, Refusal
from anima.model.names import message_task
from anima.model.reasons import Reason
from anima.model.session import MAX_PENDING, Identity, Message, Owner, Role
from anima.model.transcript import storable
from anima.stores.sql.engine import guarded
from anima.stores.sql.session_rows import (
    add_records,
    changed,
    claimed,
    first_pending,
    has_history,
    identity_of,
    locked,
    mark_answered,
    named,
    no_session,
    write_identity,
)
from anima.stores.sql.session_store import SessionStore
from anima.stores.sql.tables import conversation_messages, sessions

_COLUMNS = conversation_messages.c


class SqlConversations(SessionStore):
    """The `Conversations`: see there for what each method promises."""

    @guarded
    async def post(
        self, namespace: str, name: str, idempotency_key: str, content: str, agent: str | None
    ) -> PostedMessage:
        """Queue a user's message; see `Conversations.post`."""
        text = storable(Message(role=Role.USER, content=content)).content
        now = self._clock()
        async with self._writes.begin() as connection:
            session = await claimed(connection, namespace, name, Owner.CONVERSATION, self._new_uid(), now)
            _check_owner(session)
            known = _COLUMNS.idempotency_key == idempotency_key
            found = (await connection.execute(_messages(session.uid).where(known))).one_or_none()
            if found is None:
                found = await _queue(connection, session, idempotency_key, text, agent, now)
            elif found.content_digest != _digest(text) or agent not in (None, found.agent):
                raise Conflict(
                    f"message {found.number} of conversation {namespace}/{name} has the idempotency key of this one "
                    "and other content or another Agent; give every new message a key of its own"
                )
            return await _posted(connection, found)

    @guarded
    async def agent(self, namespace: str, name: str) -> str | None:
        """Return the Agent of the newest message; see `Conversations.agent`."""
        async with self._reads.connect() as connection:
            newest = _messages(await _uid(connection, namespace, name)).order_by(_COLUMNS.number.desc()).limit(1)
            found = (await connection.execute(newest)).one_or_none()
        return None if found is None else str(found.agent)

    @guarded
    async def first_pending(self, namespace: str, name: str) -> PostedMessage | None:
        """Return the message whose turn it is; none if all are answered."""
        async with self._reads.connect() as connection:
            found = await first_pending(connection, await _uid(connection, namespace, name))
        return None if found is None else _message(found, 0)

    @guarded
    async def message(self, namespace: str, name: str, number: int) -> PostedMessage:
        """Return one message; see `Conversations.message`."""
        async with self._reads.connect() as connection:
            uid = await _uid(connection, namespace, name)
            found = (await connection.execute(_messages(uid).where(_COLUMNS.number == number))).one_or_none()
            if found is None:
                raise _no_message(namespace, name, number)
            return await _posted(connection, found)

    @guarded
    async def pending(self, namespace: str, name: str) -> Sequence[PostedMessage]:
        """Return the messages that are not answered yet, in order."""
        async with self._reads.connect() as connection:
            uid = await _uid(connection, namespace, name)
            query = select(conversation_messages).where(_pending(uid)).order_by(_COLUMNS.number)
            rows = (await connection.execute(query)).all()
        return [_message(row, place) for place, row in enumerate(rows)]

    @guarded
    async def project_failure(
        self, namespace: str, name: str, number: int, attestation: Attestation, revision: Revision | None
    ) -> None:
        """Store a message and that its Task failed as a turn; see `Conversations.project_failure`."""
        async with self._writes.begin() as connection:
            session = await locked(connection, namespace, name)
            if session is None:
                raise no_session(namespace, name)
            found = (await connection.execute(_messages(session.uid).where(_COLUMNS.number == number))).one_or_none()
            if found is None:
                raise _no_message(namespace, name, number)
            if found.answer is None:
                await self._project(connection, session, found, attestation, revision)

    async def _project(
        self,
        connection: AsyncConnection,
        session: Row[Any],
        message: Row[Any],
        attestation: Attestation,
        revision: Revision | None,
    ) -> None:
        if not attestation.unbound:
            await self._pin(connection, session, attestation, revision)
        answer = await add_records(
            connection,
            session,
            self._clock(),
            [
                Message(role=Role.USER, content=message.content),
                Message(role=Role.ASSISTANT, content=attestation.message),
            ],
            task_uid=attestation.task_uid,
            iteration=None if attestation.task_uid is None else 0,
            revision=revision.session_digest if revision else None,
            reason=attestation.reason,
            unbound=attestation.unbound,
        )
        await mark_answered(connection, session.uid, message.number, answer)

    async def _pin(
        self, connection: AsyncConnection, session: Row[Any], attestation: Attestation, revision: Revision | None
    ) -> None:
        if await identity_of(connection, session.uid) is not None:
            return
        # A Task with a soul that was refused for the history that is there must not lend it its soul.
        revision = None if await has_history(connection, session.uid) else revision
        identity = Identity(
            revision=revision, task_uid=attestation.task_uid, task=attestation.task, pinned_at=self._clock()
        )
        await write_identity(connection, session.uid, identity)


async def _queue(
    connection: AsyncConnection, session: Row[Any], key: str, text: str, agent: str | None, now: datetime
) -> Row[Any]:
    newest = _messages(session.uid).order_by(_COLUMNS.number.desc()).limit(1)
    before = (await connection.execute(newest)).one_or_none()
    agent = agent or (before.agent if before else None)
    if agent is None:
        raise Refusal(
            Reason.REQUEST_REFUSED,
            f"the first message of conversation {session.namespace}/{session.name} names no Agent; say in agentRef "
            "who is to answer",
        )
    await _check_room(connection, session)
    number = before.number + 1 if before else 1
    row = {
        "session_uid": session.uid,
        "number": number,
        "idempotency_key": key,
        "content_digest": _digest(text),
        "agent": agent,
        "content": text,
        "task": message_task(session.name, session.uid, number),
        "posted_at": now,
    }
    await changed(connection, session.uid, updated_at=now)
    return (await connection.execute(insert(conversation_messages).returning(*_COLUMNS), row)).one()


def _check_owner(session: Row[Any]) -> None:
    if session.owner != Owner.CONVERSATION:
        raise Refusal(
            Reason.SESSION_OWNED,
            f"Session {session.namespace}/{session.name} is the Tasks', and no conversation can take it",
        )


async def _check_room(connection: AsyncConnection, session: Row[Any]) -> None:
    waiting = await connection.scalar(_count(_pending(session.uid))) or 0
    if waiting >= MAX_PENDING:
        raise Refusal(
            Reason.CONVERSATION_FULL,
            f"conversation {session.namespace}/{session.name} has {waiting} messages that are not answered yet, "
            f"the limit is {MAX_PENDING}",
        )


async def _uid(connection: AsyncConnection, namespace: str, name: str) -> str:
    uid: str | None = await connection.scalar(select(sessions.c.uid).where(named(namespace, name)))
    if uid is None:
        raise no_session(namespace, name)
    return uid


def _messages(uid: str) -> Select[*tuple[Any, ...]]:
    return select(conversation_messages).where(_COLUMNS.session_uid == uid)


def _pending(uid: str) -> ColumnElement[bool]:
    return and_(_COLUMNS.session_uid == uid, _COLUMNS.answer.is_(None))


def _count(which: ColumnElement[bool]) -> Select[int]:
    return select(func.count()).select_from(conversation_messages).where(which)


def _digest(text: str) -> str:
    return digest_bytes(text.encode())


async def _posted(connection: AsyncConnection, row: Row[Any]) -> PostedMessage:
    before = _count(and_(_pending(row.session_uid), _COLUMNS.number < row.number))
    return _message(row, await connection.scalar(before) or 0)


def _message(row: Row[Any], pending_before: int) -> PostedMessage:
    return PostedMessage(
        number=row.number,
        task=row.task,
        agent=row.agent,
        content=row.content,
        posted_at=row.posted_at,
        answer=row.answer,
        pending_before=pending_before,
    )


def _no_message(namespace: str, name: str, number: int) -> NotFound:
    return NotFound(f"there is no message {number} in conversation {namespace}/{name}, or it is forgotten by now")
