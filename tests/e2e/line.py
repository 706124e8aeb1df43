"""Tasks that stand in line for one Session, and all that must be true of it when they are served."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from anima.handle import TaskHandle
from anima.model.errors import Unavailable
from anima.model.session import Identity, Queue, Role, SessionRecord
from anima.model.task import Phase, TaskStatus
from tests.e2e.place import Place, until

# Whoever comes, and whoever is given a token, in the transactions of those who do it: no kill
# comes between, and nothing that happens between two looks is missed.
_RECORDER = """
CREATE TABLE IF NOT EXISTS test_comings (
    number INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT, task TEXT);
CREATE TABLE IF NOT EXISTS test_grants (
    number INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT, token INTEGER, task TEXT);
CREATE TRIGGER IF NOT EXISTS test_coming AFTER INSERT ON session_waiters BEGIN
    INSERT INTO test_comings (session, task)
    SELECT name, NEW.task FROM sessions WHERE uid = NEW.session_uid;
END;
CREATE TRIGGER IF NOT EXISTS test_grant AFTER UPDATE ON sessions
WHEN NEW.holder IS NOT NULL AND (NEW.holder IS NOT OLD.holder OR NEW.last_token <> OLD.last_token) BEGIN
    INSERT INTO test_grants (session, token, task) VALUES (NEW.name, NEW.last_token, NEW.holder_task);
END;
"""
PATIENT = {"retryPolicy": {"maxRetries": 100, "initialDelay": "100ms", "maxDelay": "1s"}}


@dataclass
class Line:
    """The Tasks of one Session, all of one Agent, and what the database has seen of them.

    A Task is named by its word: `first` is the Task ``<session>-first``.
    """

    place: Place
    session: str
    agent: str
    handles: dict[str, TaskHandle] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ask(_RECORDER)

    async def join(self, word: str) -> TaskHandle:
        """Submit a Task whatever is being killed, and wait until it stands in line."""
        name = f"{self.session}-{word}"
        while word not in self.handles:
            with suppress(Unavailable):
                self.handles[word] = await self.place.submit(self.agent, name, **self.spec(name))
            await asyncio.sleep(0.05)
        await until(lambda: word in self.comings(), 120)
        return self.handles[word]

    async def hold(self, word: str) -> TaskStatus:
        """Submit a Task that is the next to be served, and wait for its Job."""
        return await self.place.started(await self.join(word), 1)

    def spec(self, name: str) -> dict[str, Any]:
        """Return what the Task of this name is submitted with."""
        return {"sessionRef": {"name": self.session}, "prompt": f"Question of {name}?", **PATIENT}

    def ask(self, query: str, *values: Any) -> list[Any]:
        """Read the database by the side of those who use it."""
        with closing(sqlite3.connect(self.place.home.database, timeout=30)) as database:
            if values:
                return database.execute(query, values).fetchall()
            database.executescript(query)
            return []

    def comings(self) -> list[str]:
        """Return the Tasks in the order in which they came."""
        rows = self.ask("SELECT task FROM test_comings WHERE session = ? ORDER BY number", self.session)
        return [self._word(task) for (task,) in rows]

    def grants(self) -> list[tuple[str, int]]:
        """Return each Task that was given the Session, with its token, in order."""
        rows = self.ask("SELECT task, token FROM test_grants WHERE session = ? ORDER BY number", self.session)
        return [(self._word(task), token) for task, token in rows]

    def _word(self, task: str) -> str:
        return task.removeprefix(f"{self.session}-")

    async def queue(self) -> Queue:
        """Return how the Session stands."""
        return await self.place.sessions.queue("default", self.session)

    async def identity(self) -> Identity | None:
        """Return what the Session is pinned to."""
        return (await self.place.sessions.session("default", self.session)).identity

    async def served(self, *gone: str) -> list[TaskStatus]:
        """Check that all succeeded in the order of their coming, once, under one identity; return their ends.

        Args:
            gone: Tasks that were taken out of the line; the test has looked at their ends.
        """
        comings = self.comings()
        assert sorted(comings) == sorted(self.handles)
        rest = [name for name in comings if name not in gone]
        ends = [await self.place.end(self.handles[name], 240) for name in rest]
        assert {end.phase for end in ends} == {Phase.SUCCEEDED}, [(end.name, end.reason, end.message) for end in ends]
        self._granted_once(rest, gone)
        self._turns_in_order(ends, await self.place.sessions.records("default", self.session, limit=1000))
        await self._pinned_once(ends)
        await self._free()
        self._no_job_twice(ends)
        return ends

    def _granted_once(self, rest: Sequence[str], gone: Sequence[str]) -> None:
        grants = self.grants()
        assert [task for task, _ in grants if task not in gone] == list(rest)
        assert [token for _, token in grants] == list(range(1, len(grants) + 1))
        ((last,),) = self.ask("SELECT last_token FROM sessions WHERE name = ?", self.session)
        assert last == len(grants)

    def _turns_in_order(self, ends: Sequence[TaskStatus], records: Sequence[SessionRecord]) -> None:
        mine = [record for record in records if record.task_uid in {end.uid for end in ends}]
        assert [record.sequence for record in mine] == sorted({record.sequence for record in mine})
        expected = []
        for end in ends:
            assert end.result_ref is not None
            question = f"Question of {end.name}?"
            answer = f"{end.uid}/0/{end.result_ref.attempt} was asked: {question}"
            expected += [(end.uid, Role.USER, question), (end.uid, Role.ASSISTANT, answer)]
        assert [(record.task_uid, record.role, record.content) for record in mine] == expected

    async def _pinned_once(self, ends: Sequence[TaskStatus]) -> None:
        pins = self.ask(
            "SELECT content FROM session_records JOIN sessions ON uid = session_uid WHERE name = ? AND kind = ?",
            self.session,
            "identity",
        )
        identity = await self.identity()
        assert identity is not None
        assert len(pins) == 1
        assert self._word(identity.task or "") == self.grants()[0][0]
        assert {end.soul_binding.revision.session_digest for end in ends if end.soul_binding} == {identity.digest}

    async def _free(self) -> None:
        # The last one's leave may still be on its way to the database.
        async with asyncio.timeout(60):
            while True:
                queue = await self.queue()
                if queue.holder is None and not queue.waiting:
                    return
                await asyncio.sleep(0.05)

    def _no_job_twice(self, ends: Sequence[TaskStatus]) -> None:
        for end in ends:
            ran = self.place.jobs_of(end.uid)
            assert end.result_ref is not None
            assert f"{end.uid}/0/{end.result_ref.attempt}" in ran
            assert len(ran) == len(set(ran)) <= end.total_attempts
