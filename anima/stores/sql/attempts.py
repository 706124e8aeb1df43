"""Attempts in the Ledger: that they were intended, began, and what they told."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, Table, and_, exists, func, not_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from anima.model.attempts import (
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    AttemptInput,
    AttemptKey,
    AttemptRecord,
    Outcome,
    ProgressEvent,
    Usage,
)
from anima.model.binding import SoulBinding
from anima.model.errors import NotFound, Refusal
from anima.model.reasons import Reason
from anima.model.task import Phase, TaskStatus
from anima.stores.sql.engine import SqlStore, guarded
from anima.stores.sql.tables import attempts, events, insert_if_absent, tasks
from anima.stores.sql.tasks import no_task, require_open

_RECORD = (
    attempts.c.task_uid,
    attempts.c.iteration,
    attempts.c.attempt,
    attempts.c.job_name,
    attempts.c.started_at,
    attempts.c.outcome,
    attempts.c.usage,
    attempts.c.model,
)


class SqlAttempts(SqlStore):
    """Attempts, one row each, and their events."""

    @guarded
    async def intend(self, key: AttemptKey, job_name: str, attempt_input: AttemptInput) -> AttemptRecord:
        """Record that a Job is about to be created; again is the same."""
        row = columns(key) | {"job_name": job_name, "input": attempt_input.model_dump_json()}
        async with self._writes.begin() as connection:
            await require_open(connection, key.task_uid)
            if await insert_if_absent(connection, attempts, row):
                return AttemptRecord(key=key, job_name=job_name)
            return _record(await _required(connection, key))

    @guarded
    async def started(self, key: AttemptKey) -> AttemptRecord:
        """Record that the Job exists: from now on the attempt counts, and the Task runs."""
        statement = (
            update(attempts)
            .where(at(attempts, key))
            .values(started_at=func.coalesce(attempts.c.started_at, self._clock()))
            .returning(*_RECORD)
        )
        its_open_task = and_(tasks.c.uid == key.task_uid, not_(tasks.c.closed))
        async with self._writes.begin() as connection:
            # The Task's row before the attempt's, like everyone who locks both.
            query = select(tasks.c.status, tasks.c.binding).where(its_open_task).with_for_update()
            task = (await connection.execute(query)).one_or_none()
            found = (await connection.execute(statement)).one_or_none()
            if found is None:
                raise no_attempt(key)
            if task is not None:
                await _show_running(connection, key, found.job_name, task)
        return _record(found)

    @guarded
    async def attempts(self, task_uid: str) -> Sequence[AttemptRecord]:
        """Return all attempts in order of iteration and attempt."""
        query = (
            select(*_RECORD).where(attempts.c.task_uid == task_uid).order_by(attempts.c.iteration, attempts.c.attempt)
        )
        async with self._reads.connect() as connection:
            rows = (await connection.execute(query)).all()
            if not rows:
                # No evidence of starting and no such Task are two things.
                await _require_task(connection, task_uid)
        return [_record(row) for row in rows]

    @guarded
    async def attempt(self, key: AttemptKey) -> AttemptRecord:
        """Return one attempt."""
        async with self._reads.connect() as connection:
            return _record(await _required(connection, key))

    @guarded
    async def input(self, key: AttemptKey) -> AttemptInput:
        """Return what the worker of an attempt is to do."""
        async with self._reads.connect() as connection:
            stored = await connection.scalar(select(attempts.c.input).where(at(attempts, key)))
        if stored is None:
            raise no_attempt(key)
        return AttemptInput.model_validate_json(stored)

    @guarded
    async def append_event(self, key: AttemptKey, event: ProgressEvent) -> None:
        """Store a progress event once per sequence number.

        Sequences count from 0; from `MAX_EVENTS` on events are dropped, as no
        reader would want them and no worker should fail over them.

        Raises:
            NotFound: there is no such attempt.
            Refusal: `RequestRefused` if the event has more than `MAX_EVENT_BYTES`.
        """
        body = event.model_dump_json()
        if (size := len(body.encode())) > MAX_EVENT_BYTES:
            raise Refusal(
                Reason.REQUEST_REFUSED,
                f"event {event.sequence} of attempt {key.path} has {size} bytes, the limit is {MAX_EVENT_BYTES}; "
                "send less data in one event",
            )
        async with self._writes.begin() as connection:
            if not await connection.scalar(select(exists().where(at(attempts, key)))):
                raise no_attempt(key)
            if event.sequence < MAX_EVENTS:
                await insert_if_absent(connection, events, columns(key) | {"sequence": event.sequence, "body": body})

    @guarded
    async def events(self, key: AttemptKey, after: int = -1, limit: int = 500) -> Sequence[ProgressEvent]:
        """Return events in order, from the one that follows sequence `after`."""
        query = (
            select(events.c.body)
            .where(at(events, key), events.c.sequence > after)
            .order_by(events.c.sequence)
            .limit(limit)
        )
        async with self._reads.connect() as connection:
            bodies = (await connection.scalars(query)).all()
        return [ProgressEvent.model_validate_json(body) for body in bodies]


def columns(key: AttemptKey) -> dict[str, Any]:
    """Return the key as the columns of `attempts` and `events`."""
    return {"task_uid": key.task_uid, "iteration": key.iteration, "attempt": key.attempt}


def at(table: Table, key: AttemptKey) -> ColumnElement[bool]:
    """Match the rows of one attempt in `attempts` or `events`."""
    return and_(*(table.c[name] == value for name, value in columns(key).items()))


def no_attempt(key: AttemptKey) -> NotFound:
    """Say that the Ledger knows no such attempt."""
    return NotFound(f"there is no attempt {key.path}; it was never intended, or its Task is deleted")


async def _show_running(
    connection: AsyncConnection, key: AttemptKey, job_name: str, task: Row[*tuple[Any, ...]]
) -> None:
    """Mirror in the Task's status how far it has come, for when its workflow is gone."""
    counted = select(func.count(attempts.c.started_at), func.min(attempts.c.started_at))
    total, first = (await connection.execute(counted.where(attempts.c.task_uid == key.task_uid))).one()
    fields = {
        "phase": Phase.RUNNING,
        "attempt": key.attempt,
        "iteration": key.iteration,
        "total_attempts": total,
        "start_time": first,
        "job_name": job_name,
        "soul_binding": SoulBinding.model_validate_json(task.binding) if task.binding else None,
    }
    status = TaskStatus.model_validate_json(task.status).model_copy(update=fields)
    its_row = tasks.c.uid == key.task_uid
    await connection.execute(update(tasks).where(its_row).values(status=status.model_dump_json()))


async def _require_task(connection: AsyncConnection, uid: str) -> None:
    if not await connection.scalar(select(exists().where(tasks.c.uid == uid))):
        raise no_task(uid)


async def _required(connection: AsyncConnection, key: AttemptKey) -> Row[*tuple[Any, ...]]:
    found = (await connection.execute(select(*_RECORD).where(at(attempts, key)))).one_or_none()
    if found is None:
        raise no_attempt(key)
    return found


def _record(row: Row[*tuple[Any, ...]]) -> AttemptRecord:
    return AttemptRecord(
        key=AttemptKey(task_uid=row.task_uid, iteration=row.iteration, attempt=row.attempt),
        job_name=row.job_name,
        started_at=row.started_at,
        outcome=Outcome.model_validate_json(row.outcome) if row.outcome else None,
        usage=Usage.model_validate_json(row.usage) if row.usage else Usage(),
        model=row.model or "",
    )
