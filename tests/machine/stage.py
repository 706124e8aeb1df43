"""The real activities over real stores, where a test plays Temporal."""

import itertools
import shutil
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, cast

from sqlalchemy import event
from temporalio import activity

from activities.assembly import Parts, build_activities, build_orphans
from activities.drivers import Drivers
from anima.model.jobs import JobSpec
from anima.model.manifest import parse_resource
from anima.model.persona import SensitiveText
from anima.model.session import Claimant, Owner
from anima.model.task import Task
from anima.stores.migrations import migrate
from anima.stores.sessions import SessionKey
from anima.stores.sql import SqlCatalog, SqlConversations, SqlLedger, SqlSessions, open_engine, sqlite_url
from tests.doubles.jobs import ScriptedJobs


class Temporal:
    """What activities ask of Temporal, answered by the test."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        """The uids of Tasks whose workflow is open."""
        self.told: set[str] = set()
        self.woken: set[SessionKey] = set()
        self.to_start: list[Task] = []

    async def wake(self, key: SessionKey) -> None:
        self.woken.add(key)

    async def granted(self, holder: Claimant) -> bool:
        self.told.add(holder.task_uid)
        return holder.task_uid in self.open

    async def is_open(self, claimant: Claimant) -> bool:
        return claimant.task_uid in self.open

    async def start_task(self, task: Task) -> None:
        self.to_start.append(task)


class WitnessedJobs(ScriptedJobs):
    """Jobs that note under which identity of their Session they were created."""

    def __init__(self, ledger: SqlLedger, sessions: SqlSessions) -> None:
        super().__init__(ledger)
        self._its_sessions = sessions
        self.faults: list[str] = []

    async def create(self, spec: JobSpec, environment: Mapping[str, SensitiveText]) -> str:
        record = await self._ledger.task(spec.key.task_uid)
        assert record.spec.session_ref is not None
        session = await self._its_sessions.session("default", record.spec.session_ref.name)
        mine = record.binding.revision if record.binding else None
        identity = session.identity
        # A conversation may be without one until its first answer; a Task's Session may not.
        if identity.revision != mine if identity else session.owner != Owner.CONVERSATION:
            self.faults.append(f"a Job of {record.name} under {mine}, its Session pinned to {identity}")
        if session.queue.holder is None or session.queue.holder.task_uid != record.uid:
            self.faults.append(f"a Job of {record.name} without the Session")
        return await super().create(spec, environment)


class Stage:
    """One database, and the activities on it."""

    def __init__(self, directory: Path) -> None:
        shutil.copy(_template(), directory / "anima.db")
        self.engine = open_engine(sqlite_url(directory / "anima.db"))
        # What is tested is what is written, not whether it survives a loss of power.
        event.listen(self.engine.sync_engine, "connect", _without_sync)
        numbers = itertools.count(1)
        new_uid = lambda: f"uid-{next(numbers)}"  # noqa: E731 (a source of names, not a function with one)
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.ledger = SqlLedger(self.engine, self._clock)
        self.sessions = SqlSessions(self.engine, self._clock, new_uid)
        self.conversations = SqlConversations(self.engine, self._clock, new_uid)
        self.catalog = SqlCatalog(self.engine, self._clock, new_uid)
        self.jobs = WitnessedJobs(self.ledger, self.sessions)
        self.temporal = Temporal()
        parts = Parts(
            catalog=self.catalog,
            ledger=self.ledger,
            sessions=self.sessions,
            conversations=self.conversations,
            jobs=self.jobs,
            drivers=cast(Drivers, self.temporal),
            clock=self._clock,
            token=lambda key: "token-of-a-test",
            gateway="http://127.0.0.1:9",
            local_model=None,
            jobs_queue=None,
            check_interval=timedelta(seconds=5),
        )
        self.orphans = build_orphans(parts)
        self.activities: dict[str, Callable[[Any], Any]] = {_name(each): each for each in build_activities(parts)}

    async def apply(self, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        manifest = {"apiVersion": "anima.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}
        await self.catalog.apply(parse_resource(manifest))

    def _clock(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def _name(function: Callable[..., Any]) -> str:
    definition = activity._Definition.must_from_callable(function)
    assert definition.name is not None
    return definition.name


@cache
def _template() -> Path:
    """Migrate a database once, for all that begin empty."""
    import asyncio

    path = Path(tempfile.mkdtemp(prefix="anima-machine-")) / "anima.db"

    async def make() -> None:
        engine = open_engine(sqlite_url(path))
        await migrate(engine)
        await engine.dispose()

    asyncio.run(make())
    return path


def _without_sync(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = OFF")
    cursor.close()
