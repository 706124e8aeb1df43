"""Retention in SQL: what is too old or too much goes, what a Session is pinned to stays."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, delete, exists, false, func, not_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from anima.model.session import Identity, Role
from anima.stores.sql.engine import guarded
from anima.stores.sql.session_rows import MESSAGE, changed, identity_of, occupied, write_identity
from anima.stores.sql.session_store import SessionStore
from anima.stores.sql.tables import conversation_messages, session_records, sessions

_RECORDS = session_records.c


class SqlRetention(SessionStore):
    """Removes whole turns, the oldest first, so that no transcript gets a hole.

    A turn is a user's message and all up to the next.
    """

    @guarded
    async def expire(self, before: datetime | None, keep: int | None, limit: int = 100) -> int:
        """Remove messages that are too old or too many; see `Sessions.expire`.

        A conversation forgets a message, and with it its idempotency key, once its turn is
        gone and it is from before `before`; the newest one is kept, so that its number
        never comes again.
        """
        after = ""
        while uids := await self._candidates(before, keep, after, limit):
            if removed := await self._shorten(uids, before, keep):
                return removed
            after = uids[-1]
        return 0

    async def _candidates(self, before: datetime | None, keep: int | None, after: str, limit: int) -> Sequence[str]:
        wanted = and_(sessions.c.uid > after, _is_free(), _may_be_too_long(before, keep))
        query = select(sessions.c.uid).where(wanted).order_by(sessions.c.uid).limit(limit)
        async with self._reads.connect() as connection:
            return (await connection.scalars(query)).all()

    async def _shorten(self, uids: Sequence[str], before: datetime | None, keep: int | None) -> int:
        removed = 0
        async with self._writes.begin() as connection:
            # One that somebody writes to at this moment is in use, and nobody should wait for us.
            locking = select(sessions.c.uid).where(sessions.c.uid.in_(uids)).with_for_update(skip_locked=True)
            held = (await connection.scalars(locking)).all()
            # Asked again: under the locks, the answer holds.
            free = select(sessions).where(sessions.c.uid.in_(held), _is_free())
            for session in (await connection.execute(free)).all():
                if end := await _end_of_expired(connection, session, before, keep):
                    removed += await self._remove(connection, session, end, before)
        return removed

    async def _remove(self, connection: AsyncConnection, session: Row[Any], end: int, before: datetime | None) -> int:
        expired = and_(_messages(session.uid), _RECORDS.sequence < end)
        binding = exists().where(expired, not_(_RECORDS.unbound))
        if await connection.scalar(select(binding)) and await identity_of(connection, session.uid) is None:
            await write_identity(connection, session.uid, Identity(pinned_at=self._clock()))
        removed = (await connection.execute(delete(session_records).where(expired))).rowcount
        await changed(connection, session.uid, messages=session.messages - removed)
        if before is not None:
            await _forget(connection, session.uid, end, before)
        return removed


def _is_free() -> ColumnElement[bool]:
    """Tell in SQL that no Task has the Session or waits for it, and no message is pending."""
    messages = conversation_messages.c
    return not_(or_(occupied(), exists().where(messages.session_uid == sessions.c.uid, messages.answer.is_(None))))


def _may_be_too_long(before: datetime | None, keep: int | None) -> ColumnElement[bool]:
    oldest = select(_RECORDS.created_at).where(_messages(sessions.c.uid)).order_by(_RECORDS.sequence).limit(1)
    return or_(
        false() if before is None else oldest.correlate(sessions).scalar_subquery() < before,
        false() if keep is None else sessions.c.messages > keep,
    )


async def _end_of_expired(
    connection: AsyncConnection, session: Row[Any], before: datetime | None, keep: int | None
) -> int:
    """Return the sequence before which all messages go; 0 if all stay."""
    mine = _messages(session.uid)
    ends = []
    if before is not None:
        young = select(func.min(_RECORDS.sequence)).where(mine, _RECORDS.created_at >= before)
        ends.append(await _turn_of(connection, session, await connection.scalar(young)))
    if keep is not None and session.messages > keep:
        newest = select(_RECORDS.sequence).where(mine).order_by(_RECORDS.sequence.desc()).offset(keep - 1).limit(1)
        ends.append(await _turn_of(connection, session, await connection.scalar(newest) if keep else None))
    return max(ends, default=0)


async def _turn_of(connection: AsyncConnection, session: Row[Any], first_kept: int | None) -> int:
    """Return where the turn of the first message that is kept begins; none is kept if that is none."""
    if first_kept is None:
        end: int = session.last_sequence + 1
        return end
    begins = and_(_messages(session.uid), _RECORDS.role == Role.USER, _RECORDS.sequence <= first_kept)
    return await connection.scalar(select(func.max(_RECORDS.sequence)).where(begins)) or 0


async def _forget(connection: AsyncConnection, uid: str, end: int, before: datetime) -> None:
    columns = conversation_messages.c
    newest = select(func.max(columns.number)).where(columns.session_uid == uid).correlate(None).scalar_subquery()
    old = and_(columns.session_uid == uid, columns.answer < end, columns.posted_at < before, columns.number < newest)
    await connection.execute(delete(conversation_messages).where(old))


def _messages(uid: str | ColumnElement[str]) -> ColumnElement[bool]:
    return and_(_RECORDS.session_uid == uid, _RECORDS.kind == MESSAGE)
