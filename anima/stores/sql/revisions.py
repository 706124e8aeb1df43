"""What is under which revision, in SQL: the bindings of Tasks and the identities of Sessions."""

from collections.abc import Sequence

from sqlalchemy import and_, exists, or_, select
from sqlalchemy.ext.asyncio import AsyncEngine

from anima.model.binding import Revision, SoulBinding
from anima.model.session import Identity
from anima.stores.revisions import SessionUse, TaskUse
from anima.stores.sql.engine import guarded
from anima.stores.sql.session_rows import IDENTITY_SEQUENCE
from anima.stores.sql.tables import attempts, session_records, sessions, tasks


class SqlRevisionUses:
    """The `RevisionUses`; it only reads.

    Args:
        engine: from `open_engine`, migrated.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._reads = engine

    @guarded
    async def tasks(self, namespace: str, after: str = "", limit: int = 1000) -> Sequence[TaskUse]:
        """Return Tasks that are bound, or have started without a soul, by name."""
        columns = tasks.c
        started = exists().where(attempts.c.task_uid == columns.uid, attempts.c.started_at.is_not(None))
        query = (
            select(columns.name, columns.closed, columns.binding)
            .where(columns.namespace == namespace, columns.name > after, or_(columns.binding.is_not(None), started))
            .order_by(columns.name)
            .limit(limit)
        )
        async with self._reads.connect() as connection:
            rows = (await connection.execute(query)).all()
        return [TaskUse(row.name, row.closed, _bound(row.binding)) for row in rows]

    @guarded
    async def sessions(self, namespace: str, after: str = "", limit: int = 1000) -> Sequence[SessionUse]:
        """Return Sessions that have an identity, by name."""
        records = session_records.c
        query = (
            select(sessions.c.name, records.content)
            .join(session_records, and_(records.session_uid == sessions.c.uid, records.sequence == IDENTITY_SEQUENCE))
            .where(sessions.c.namespace == namespace, sessions.c.name > after)
            .order_by(sessions.c.name)
            .limit(limit)
        )
        async with self._reads.connect() as connection:
            rows = (await connection.execute(query)).all()
        return [SessionUse(row.name, Identity.model_validate_json(row.content).revision) for row in rows]


def _bound(binding: str | None) -> Revision | None:
    return None if binding is None else SoulBinding.model_validate_json(binding).revision
