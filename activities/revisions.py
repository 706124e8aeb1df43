"""Which revisions are in use, and what a Session would say to each Agent's.

Source of the rules: agent-soul, "Revisions, retries, and Sessions".
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from activities.souls import SoulResolver
from anima.model.agent import Agent
from anima.model.api import (
    AgentVerdict,
    RevisionInUse,
    RevisionsInUse,
    SessionExplanation,
    TasksInUse,
    UnresolvedAgent,
)
from anima.model.binding import Revision
from anima.model.errors import Refusal
from anima.model.resources import Reference
from anima.model.session import SessionStatus, check_revision
from anima.model.task import TaskSpec
from anima.stores.ports import Catalog
from anima.stores.revisions import RevisionUses, SessionUse, TaskUse
from anima.stores.sessions import Sessions

U = TypeVar("U", TaskUse, SessionUse)

_PAGE = 16


class RevisionInspector:
    """Compares what Agents are now with what Tasks are bound and Sessions are pinned to.

    Args:
        catalog: where the Agents are.
        souls: the resolver that execution uses.
        sessions: where the transcripts are.
        uses: what is under which revision.
    """

    def __init__(self, catalog: Catalog, souls: SoulResolver, sessions: Sessions, uses: RevisionUses) -> None:
        self._catalog = catalog
        self._souls = souls
        self._sessions = sessions
        self._uses = uses

    async def explain(self, namespace: str, session: str, agent: str | None = None) -> SessionExplanation:
        """Say what a Session is pinned to, and whether it would take a Task of each Agent.

        Args:
            namespace: of the Session, and of the Agents.
            session: its name.
            agent: only of this Agent, whether it exists or not.

        Raises:
            NotFound: there is no such Session.
        """
        # First: history that a Task adds meanwhile comes with an identity.
        has_history = await self._has_history(namespace, session)
        status = await self._sessions.session(namespace, session)
        names = await self._agents(namespace) if agent is None else [agent]
        return SessionExplanation(
            namespace=namespace,
            name=session,
            owner=status.owner,
            messages=status.messages,
            has_history=has_history,
            identity=status.identity,
            revision=status.identity.digest if status.identity else None,
            holder=status.queue.holder,
            waiting=status.queue.waiting,
            agents=[await self._verdict(status, has_history, name) for name in names],
        )

    async def in_use(self, namespace: str) -> RevisionsInUse:
        """Return every revision that an Agent has, a Task is bound to, or a Session is pinned to."""
        groups: dict[Revision | None, _Group] = defaultdict(_Group)
        unresolved = []
        for name in await self._agents(namespace):
            try:
                groups[await self._revision(namespace, name)].agents.append(name)
            except Refusal as refusal:
                unresolved.append(UnresolvedAgent(agent=name, reason=refusal.reason, message=refusal.message))
        async for task in _every(self._uses.tasks, namespace):
            groups[task.revision].add_task(task)
        async for session in _every(self._uses.sessions, namespace):
            groups[session.revision].sessions.append(session.name)
        items = sorted((group.shown(revision) for revision, group in groups.items()), key=_place)
        return RevisionsInUse(items=items, unresolved=unresolved)

    async def _agents(self, namespace: str) -> list[str]:
        return [agent.name for agent in await self._catalog.list(Agent, namespace)]

    async def _revision(self, namespace: str, agent: str) -> Revision | None:
        # The role is the Agent's, as for a Task that brings none; the prompt does not count.
        spec = TaskSpec(type="ai", agent_ref=Reference(name=agent), prompt="-", env=[])
        revision = (await self._souls.resolve(namespace, spec)).revision
        return revision if revision.soul_digest else None

    async def _verdict(self, status: SessionStatus, has_history: bool, agent: str) -> AgentVerdict:
        revision = None
        try:
            revision = await self._revision(status.namespace, agent)
            where = f"{status.namespace}/{status.name}"
            check_revision(where, status.identity, has_history=has_history, revision=revision, append=True)
        except Refusal as refusal:
            return _verdict(agent, revision, refusal)
        return _verdict(agent, revision, None)

    async def _has_history(self, namespace: str, session: str) -> bool:
        after = 0
        while page := await self._sessions.records(namespace, session, after=after, limit=_PAGE):
            if not all(record.unbound for record in page):
                return True
            after = page[-1].sequence
        return False


@dataclass
class _Group:
    """What is under one revision."""

    agents: list[str] = field(default_factory=list)
    open_tasks: list[str] = field(default_factory=list)
    ended_tasks: int = 0
    sessions: list[str] = field(default_factory=list)

    def add_task(self, task: TaskUse) -> None:
        if task.closed:
            self.ended_tasks += 1
        else:
            self.open_tasks.append(task.name)

    def shown(self, revision: Revision | None) -> RevisionInUse:
        return RevisionInUse(
            digest=revision.session_digest if revision else None,
            soul_digest=revision.soul_digest if revision else None,
            agent_uid=revision.agent_uid if revision else None,
            agent_generation=revision.agent_generation if revision else None,
            agents=self.agents,
            tasks=TasksInUse(open=self.open_tasks, ended=self.ended_tasks),
            sessions=self.sessions,
        )


def _place(item: RevisionInUse) -> tuple[bool, bool, list[str], str]:
    """Put what Agents have now first, and what has no soul last."""
    return item.digest is None, not item.agents, item.agents, item.digest or ""


async def _every(read: Callable[[str, str], Awaitable[Sequence[U]]], namespace: str) -> AsyncIterator[U]:
    after = ""
    while page := await read(namespace, after):
        for use in page:
            yield use
        after = page[-1].name


def _verdict(agent: str, revision: Revision | None, refusal: Refusal | None) -> AgentVerdict:
    return AgentVerdict(
        agent=agent,
        revision=revision.session_digest if revision else None,
        soul_digest=revision.soul_digest if revision else None,
        accepted=refusal is None,
        reason=refusal.reason if refusal else None,
        message=refusal.message if refusal else "",
    )
