"""Tasks in the Ledger: their names, specs, bindings and statuses."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, case, delete, func, not_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from anima.model.binding import SoulBinding
from anima.model.errors import Conflict, NotFound, Refusal
from anima.model.inputs import spec_digest
from anima.model.reasons import Reason
from anima.model.task import TaskSpec, TaskStatus
from anima.stores.ports import TaskRecord
from anima.stores.sql.engine import SqlStore, guarded
from anima.stores.sql.tables import insert_if_absent, tasks


class SqlTasks(SqlStore):
    """Tasks, one row each."""

    @guarded
    async def admit(
        self, namespace: str, name: str, uid: str, workflow_id: str, spec: TaskSpec, submitted_at: datetime
    ) -> TaskRecord:
        """Claim the name for this Task, or return the record that has it."""
        agent = spec.agent_ref.name
        status = TaskStatus(namespace=namespace, name=name, uid=uid, agent=agent, submission_time=submitted_at)
        row = {
            "uid": uid,
            "namespace": namespace,
            "name": name,
            "workflow_id": workflow_id,
            "spec": spec.model_dump_json(),
            "spec_digest": spec_digest(spec),
            "status": status.model_dump_json(),
            "closed": False,
        }
        async with self._writes.begin() as connection:
            await insert_if_absent(connection, tasks, row)
            found = await _find(connection, _named(namespace, name))
            if found is None:
                raise Conflict(f"uid {uid} belongs to another Task; submit {namespace}/{name} as a new one")
        if found.spec_digest != row["spec_digest"]:
            raise Refusal(
                Reason.TASK_CONFLICT,
                f"Task {namespace}/{name} exists with other content: its spec has digest {found.spec_digest}, "
                f"this one {row['spec_digest']}",
            )
        return _record(found)

    @guarded
    async def task(self, uid: str) -> TaskRecord:
        """Return the Task of this uid."""
        async with self._reads.connect() as connection:
            return _record(await _required(connection, uid))

    @guarded
    async def task_named(self, namespace: str, name: str) -> TaskRecord:
        """Return the Task that has the name."""
        async with self._reads.connect() as connection:
            found = await _find(connection, _named(namespace, name))
        if found is None:
            raise _no_task_named(namespace, name)
        return _record(found)

    @guarded
    async def tasks(self, namespace: str | None = None, limit: int = 500) -> Sequence[TaskRecord]:
        """Return the newest Tasks first."""
        query = select(tasks).order_by(tasks.c.number.desc()).limit(limit)
        if namespace is not None:
            query = query.where(tasks.c.namespace == namespace)
        async with self._reads.connect() as connection:
            rows = (await connection.execute(query)).all()
        return [_record(row) for row in rows]

    @guarded
    async def edit(self, uid: str, spec: TaskSpec) -> TaskRecord:
        """Replace the spec of an open Task."""
        async with self._writes.begin() as connection:
            await connection.execute(update(tasks).where(_open(uid)).values(spec=spec.model_dump_json()))
            return _record(await require_open(connection, uid))

    @guarded
    async def delete_task(self, namespace: str, name: str) -> None:
        """Forget a closed Task with all its attempts and results."""
        async with self._writes.begin() as connection:
            closed = await connection.scalar(select(tasks.c.closed).where(_named(namespace, name)).with_for_update())
            if closed is None:
                raise _no_task_named(namespace, name)
            if not closed:
                raise Conflict(f"Task {namespace}/{name} is not closed; wait for its end, or cancel it first")
            await connection.execute(delete(tasks).where(_named(namespace, name)))

    @guarded
    async def bind(self, binding: SoulBinding) -> SoulBinding:
        """Write the binding if there is none, and return the one that is stored."""
        statement = (
            update(tasks)
            .where(tasks.c.uid == binding.task_uid)
            .values(binding=func.coalesce(tasks.c.binding, binding.model_dump_json()))
            .returning(tasks.c.binding)
        )
        async with self._writes.begin() as connection:
            await require_open(connection, binding.task_uid)
            stored = await connection.scalar(statement)
        return SoulBinding.model_validate_json(stored)

    @guarded
    async def progress(self, status: TaskStatus) -> None:
        """Mirror the status of an open Task."""
        async with self._writes.begin() as connection:
            await connection.execute(update(tasks).where(_open(status.uid)).values(status=status.model_dump_json()))

    @guarded
    async def close(self, status: TaskStatus) -> TaskStatus:
        """Store the final status unless there is one; return the one that counts."""
        statement = (
            update(tasks)
            .where(tasks.c.uid == status.uid)
            .values(status=case((tasks.c.closed, tasks.c.status), else_=status.model_dump_json()), closed=True)
            .returning(tasks.c.status)
        )
        async with self._writes.begin() as connection:
            stored = await connection.scalar(statement)
        if stored is None:
            raise no_task(status.uid)
        return TaskStatus.model_validate_json(stored)


def no_task(uid: str) -> NotFound:
    """Say that the Ledger knows no Task of this uid."""
    return NotFound(f"there is no Task with uid {uid}; it was never admitted, or deleted since")


def _no_task_named(namespace: str, name: str) -> NotFound:
    return NotFound(
        f"there is no Task {name} in namespace {namespace}; `anima tasks -n {namespace}` lists those there are"
    )


def _named(namespace: str, name: str) -> ColumnElement[bool]:
    return and_(tasks.c.namespace == namespace, tasks.c.name == name)


def _open(uid: str) -> ColumnElement[bool]:
    return and_(tasks.c.uid == uid, not_(tasks.c.closed))


async def _find(connection: AsyncConnection, which: ColumnElement[bool]) -> Row[Any] | None:
    return (await connection.execute(select(tasks).where(which))).one_or_none()


async def _required(connection: AsyncConnection, uid: str) -> Row[Any]:
    found = await _find(connection, tasks.c.uid == uid)
    if found is None:
        raise no_task(uid)
    return found


async def require_open(connection: AsyncConnection, uid: str) -> Row[Any]:
    """Return the row of a Task that has not ended, and keep it from ending meanwhile."""
    query = select(tasks).where(tasks.c.uid == uid).with_for_update()
    found = (await connection.execute(query)).one_or_none()
    if found is None:
        raise no_task(uid)
    if found.closed:
        raise Conflict(f"Task {found.namespace}/{found.name} is closed; submit it as a new Task")
    return found


def _record(row: Row[Any]) -> TaskRecord:
    return TaskRecord(
        uid=row.uid,
        namespace=row.namespace,
        name=row.name,
        workflow_id=row.workflow_id,
        spec=TaskSpec.model_validate_json(row.spec),
        spec_digest=row.spec_digest,
        status=TaskStatus.model_validate_json(row.status),
        closed=row.closed,
        binding=None if row.binding is None else SoulBinding.model_validate_json(row.binding),
    )
