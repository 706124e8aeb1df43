"""The gateway's client: resources, and what Tasks leave behind.

Tasks are started and steered through Temporal, see `anima.client`.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter

from anima.gateway_sessions import SessionGateway
from anima.model.api import DIGEST_HEADER, EventPage, RecordedSpec
from anima.model.attempts import ProgressEvent
from anima.model.digests import PREFIX
from anima.model.errors import Refusal, Unavailable
from anima.model.manifest import KINDS, Kind
from anima.model.resources import Resource
from anima.model.task import TaskStatus

_STATUSES = TypeAdapter(list[TaskStatus])


@dataclass(frozen=True, slots=True)
class AppliedResource:
    """What became of an applied object.

    `change` is `created`, `configured`, `unchanged`, or `validated` for a dry run.
    """

    change: str
    resource: dict[str, Any]


class Gateway(SessionGateway):
    """An asynchronous client of one gateway; see `anima.transport.Transport` for how it is made and what it raises."""

    async def version(self) -> str:
        """Return the gateway's version."""
        return str((await self.json("GET", "/v1/version"))["version"])

    async def apply(self, resource: Resource, *, dry_run: bool = False) -> AppliedResource:
        """Create or replace an object; a dry run only tells whether that would be refused."""
        path = _object(KINDS[resource.kind], resource.namespace, resource.name)
        body = resource.model_dump_json(exclude_none=True).encode()
        answer = await self.json("PUT", path, {"dryRun": dry_run or None}, body)
        return AppliedResource(answer["change"], answer["resource"])

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        """Return an object as it is now; an Agent with its status, a Secret without values."""
        answer: dict[str, Any] = await self.json("GET", _object(kind, namespace, name))
        return answer

    async def list(self, kind: Kind, namespace: str | None = None) -> Sequence[dict[str, Any]]:
        """Return the objects of a kind, of all namespaces if none is given."""
        within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        items: Sequence[dict[str, Any]] = (await self.json("GET", f"/v1{within}/{kind.plural}"))["items"]
        return items

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str | None = None) -> None:
        """Delete an object, but only the one with `uid` if that is given."""
        await self.send("DELETE", _object(kind, namespace, name), {"uid": uid})

    async def prompt(self, namespace: str, agent: str, *, text: bool = False) -> dict[str, Any]:
        """Return what a Task of an Agent would be given; its text only if asked for."""
        path = f"{_object(KINDS['Agent'], namespace, agent)}/prompt"
        answer: dict[str, Any] = await self.json("GET", path, {"text": text or None})
        return answer

    async def describe(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        """Return an object with its attempts, or with the digests and sizes of its prompt.

        A Task has attempts; an Agent has a prompt, unless it cannot be composed.
        """
        found = await self.get(kind, namespace, name)
        if kind is KINDS["Task"]:
            return found | {"attempts": (await self.json("GET", f"{_task(namespace, name)}/attempts"))["items"]}
        if kind is not KINDS["Agent"]:
            return found
        try:
            return found | {"prompt": await self.prompt(namespace, name)}
        except Refusal:
            # Its status says what is wrong.
            return found

    async def tasks(self, namespace: str | None = None, limit: int = 100) -> Sequence[TaskStatus]:
        """Return the newest Tasks first."""
        answer = await self.json("GET", "/v1/tasks", {"namespace": namespace, "limit": limit})
        return _STATUSES.validate_json(json.dumps(answer["items"]))

    async def task(self, namespace: str, name: str) -> TaskStatus:
        """Return a Task's status as the Ledger has it."""
        return TaskStatus.model_validate_json((await self.send("GET", _task(namespace, name))).content)

    async def spec(self, namespace: str, name: str) -> RecordedSpec:
        """Return a Task's spec as it counts now, and what the Task was bound to."""
        return RecordedSpec.model_validate_json((await self.send("GET", f"{_task(namespace, name)}/spec")).content)

    async def delete_task(self, namespace: str, name: str) -> None:
        """Forget a closed Task with its attempts and its result."""
        await self.send("DELETE", _task(namespace, name))

    async def result(self, namespace: str, name: str) -> bytes:
        """Return the exact bytes of a Task's answer, checked against their digest."""
        response = await self.send("GET", f"{_task(namespace, name)}/result")
        if response.headers.get(DIGEST_HEADER) != PREFIX + hashlib.sha256(response.content).hexdigest():
            raise Unavailable(f"the result of Task {namespace}/{name} did not arrive whole; ask again")
        return response.content

    async def logs(
        self,
        namespace: str,
        name: str,
        *,
        iteration: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
    ) -> bytes:
        """Return the end of what a Job wrote, of the latest attempt by default.

        Args:
            namespace: the Task's.
            name: the Task's.
            iteration: from 0.
            attempt: from 1.
            tail: how much at most, in bytes.
        """
        params = {"iteration": iteration, "attempt": attempt, "tail": tail}
        return (await self.send("GET", f"{_task(namespace, name)}/logs", params)).content

    async def events(self, namespace: str, name: str, after: int = -1) -> EventPage:
        """Return the latest attempt's progress events that follow sequence `after`."""
        response = await self.send("GET", f"{_task(namespace, name)}/events", {"after": after})
        return EventPage.model_validate_json(response.content)

    async def follow(self, namespace: str, name: str, after: int = -1) -> AsyncIterator[ProgressEvent]:
        """Yield the latest attempt's progress events as they come, until it is decided."""
        events = self.stream(f"{_task(namespace, name)}/events", {"after": after})
        async with aclosing(events):
            async for event in events:
                yield ProgressEvent.model_validate_json(event.data)


def _object(kind: Kind, namespace: str, name: str) -> str:
    return f"/v1/namespaces/{quote(namespace, safe='')}/{kind.plural}/{quote(name, safe='')}"


def _task(namespace: str, name: str) -> str:
    return _object(KINDS["Task"], namespace, name)
