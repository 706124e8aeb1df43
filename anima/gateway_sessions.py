"""The gateway's client: Sessions, and the revisions in use.

What is said in a conversation goes through `anima.conversations`.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from urllib.parse import quote

from pydantic import TypeAdapter

from anima.model.api import MessagePage, RevisionsInUse, SessionExplanation
from anima.model.session import Queue, SessionRecord, SessionStatus
from anima.transport import Transport

_STATUSES = TypeAdapter(list[SessionStatus])
_LINES_TYPE = "application/x-ndjson"


class SessionGateway(Transport):
    """What a gateway tells of Sessions."""

    async def sessions(self, namespace: str | None = None, limit: int = 100) -> Sequence[SessionStatus]:
        """Return Sessions, the last used first; of all namespaces if none is given."""
        within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        answer = await self.json("GET", f"/v1{within}/sessions", {"limit": limit})
        return _STATUSES.validate_json(json.dumps(answer["items"]))

    async def session(self, namespace: str, name: str) -> SessionStatus:
        """Return how a Session stands; no content."""
        return SessionStatus.model_validate_json((await self.send("GET", _session(namespace, name))).content)

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
        """Return messages in order of their sequence.

        Args:
            namespace: of the Session.
            name: of the Session.
            after: only sequences above it.
            before: only sequences below it.
            limit: how many at most, up to 200.
            contains: only messages that hold this text, letter case aside.
            newest: if there are more than `limit`, the last ones instead of the first.
        """
        params = {"after": after, "before": before, "limit": limit, "contains": contains, "newest": newest or None}
        response = await self.send("GET", f"{_session(namespace, name)}/messages", params)
        return MessagePage.model_validate_json(response.content).items

    async def queue(self, namespace: str, name: str, limit: int = 100) -> Queue:
        """Return who has a Session, how many wait for it, and the first of them in order."""
        response = await self.send("GET", f"{_session(namespace, name)}/queue", {"limit": limit})
        return Queue.model_validate_json(response.content)

    async def explain_session(self, namespace: str, name: str, agent: str | None = None) -> SessionExplanation:
        """Return what a Session is pinned to, and whether it would take a Task of each Agent, or of one."""
        response = await self.send("GET", f"{_session(namespace, name)}/why", {"agent": agent})
        return SessionExplanation.model_validate_json(response.content)

    def export_session(self, namespace: str, name: str) -> AsyncGenerator[bytes]:
        """Yield a Session's messages as lines of JSON, as `import_session` takes them.

        Raises:
            Unavailable: also if it broke off; what was yielded is not the whole Session then.
        """
        return self.download(f"{_session(namespace, name)}/export")

    async def import_session(self, namespace: str, name: str, lines: AsyncIterable[bytes]) -> SessionStatus:
        """Begin a Session with messages of another time and place, without an identity.

        Args:
            namespace: of the Session.
            name: of the Session.
            lines: one message a line, as JSON, in pieces of any size.

        Raises:
            Refusal: `RequestRefused` with every problem, and nothing is imported.
            Conflict: the Session exists.
        """
        response = await self.upload(f"{_session(namespace, name)}/import", lines, _LINES_TYPE)
        return SessionStatus.model_validate_json(response.content)

    async def delete_session(self, namespace: str, name: str) -> None:
        """Delete a Session with all that is in it.

        Raises:
            Conflict: it is in use.
        """
        await self.send("DELETE", _session(namespace, name))

    async def revisions(self, namespace: str) -> RevisionsInUse:
        """Return every revision in use in a namespace."""
        response = await self.send("GET", f"/v1/namespaces/{quote(namespace, safe='')}/revisions")
        return RevisionsInUse.model_validate_json(response.content)


def _session(namespace: str, name: str) -> str:
    return f"/v1/namespaces/{quote(namespace, safe='')}/sessions/{quote(name, safe='')}"
