"""The gateway's client: resources, and what Tasks leave behind.

Tasks are started and steered through Temporal, see `anima.client`.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn
from urllib.parse import quote

import httpx2
from pydantic import TypeAdapter, ValidationError

from anima.model.api import DIGEST_HEADER, END_EVENT, EVENT_STREAM, ErrorBody, ErrorDetail, EventPage, RecordedSpec
from anima.model.attempts import ProgressEvent
from anima.model.digests import PREFIX
from anima.model.errors import AnimaError, Conflict, NotFound, Refusal, Unavailable
from anima.model.manifest import KINDS, Kind
from anima.model.problems import Problem
from anima.model.reasons import Reason
from anima.model.resources import Resource
from anima.model.task import TaskStatus

_STATUSES = TypeAdapter(list[TaskStatus])
_TIMEOUT = httpx2.Timeout(30, connect=5)
Params = Mapping[str, str | int | bool | None]


@dataclass(frozen=True, slots=True)
class AppliedResource:
    """What became of an applied object.

    `change` is `created`, `configured`, `unchanged`, or `validated` for a dry run.
    """

    change: str
    resource: dict[str, Any]


class Gateway:
    """An asynchronous client of one gateway; close it, or use it in ``async with``.

    Every method raises `Refusal` for what is permanent, `NotFound`, `Conflict`,
    and `Unavailable` if the gateway does not answer or cannot now.

    Args:
        address: such as ``http://127.0.0.1:8420``.
        token: of the user routes, from `Home.user_token`.
        transport: in place of the network, for a gateway in the same process.
    """

    def __init__(self, address: str, token: str, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._address = address
        try:
            self._http = httpx2.AsyncClient(
                base_url=address,
                headers={"Authorization": f"Bearer {token}"},
                timeout=_TIMEOUT,
                transport=transport,
                # A proxy of the environment has no way to this machine's loopback.
                trust_env=False,
                verify=address.startswith("https:"),
            )
        except httpx2.InvalidURL as error:
            raise Refusal(Reason.SETTING_INVALID, f"{address!r} is no address of a gateway: {error}") from None

    async def __aenter__(self) -> "Gateway":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def version(self) -> str:
        """Return the gateway's version."""
        return str((await self._json("GET", "/v1/version"))["version"])

    async def apply(self, resource: Resource, *, dry_run: bool = False) -> AppliedResource:
        """Create or replace an object; a dry run only tells whether that would be refused."""
        path = _object(KINDS[resource.kind], resource.namespace, resource.name)
        body = resource.model_dump_json(exclude_none=True).encode()
        answer = await self._json("PUT", path, {"dryRun": dry_run or None}, body)
        return AppliedResource(answer["change"], answer["resource"])

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        """Return an object as it is now; an Agent with its status, a Secret without values."""
        answer: dict[str, Any] = await self._json("GET", _object(kind, namespace, name))
        return answer

    async def list(self, kind: Kind, namespace: str | None = None) -> Sequence[dict[str, Any]]:
        """Return the objects of a kind, of all namespaces if none is given."""
        within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        items: Sequence[dict[str, Any]] = (await self._json("GET", f"/v1{within}/{kind.plural}"))["items"]
        return items

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str | None = None) -> None:
        """Delete an object, but only the one with `uid` if that is given."""
        await self._send("DELETE", _object(kind, namespace, name), {"uid": uid})

    async def prompt(self, namespace: str, agent: str, *, text: bool = False) -> dict[str, Any]:
        """Return what a Task of an Agent would be given; its text only if asked for."""
        path = f"{_object(KINDS['Agent'], namespace, agent)}/prompt"
        answer: dict[str, Any] = await self._json("GET", path, {"text": text or None})
        return answer

    async def describe(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        """Return an object with its attempts, or with the digests and sizes of its prompt.

        A Task has attempts; an Agent has a prompt, unless it cannot be composed.
        """
        found = await self.get(kind, namespace, name)
        if kind is KINDS["Task"]:
            return found | {"attempts": (await self._json("GET", f"{_task(namespace, name)}/attempts"))["items"]}
        if kind is not KINDS["Agent"]:
            return found
        try:
            return found | {"prompt": await self.prompt(namespace, name)}
        except Refusal:
            # Its status says what is wrong.
            return found

    async def tasks(self, namespace: str | None = None, limit: int = 100) -> Sequence[TaskStatus]:
        """Return the newest Tasks first."""
        response = await self._send("GET", "/v1/tasks", {"namespace": namespace, "limit": limit})
        return _STATUSES.validate_json(json.dumps(self._decoded(response)["items"]))

    async def task(self, namespace: str, name: str) -> TaskStatus:
        """Return a Task's status as the Ledger has it."""
        return TaskStatus.model_validate_json((await self._send("GET", _task(namespace, name))).content)

    async def spec(self, namespace: str, name: str) -> RecordedSpec:
        """Return a Task's spec as it counts now, and what the Task was bound to."""
        return RecordedSpec.model_validate_json((await self._send("GET", f"{_task(namespace, name)}/spec")).content)

    async def delete_task(self, namespace: str, name: str) -> None:
        """Forget a closed Task with its attempts and its result."""
        await self._send("DELETE", _task(namespace, name))

    async def result(self, namespace: str, name: str) -> bytes:
        """Return the exact bytes of a Task's answer, checked against their digest."""
        response = await self._send("GET", f"{_task(namespace, name)}/result")
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
        return (await self._send("GET", f"{_task(namespace, name)}/logs", params)).content

    async def events(self, namespace: str, name: str, after: int = -1) -> EventPage:
        """Return the latest attempt's progress events that follow sequence `after`."""
        response = await self._send("GET", f"{_task(namespace, name)}/events", {"after": after})
        return EventPage.model_validate_json(response.content)

    async def follow(self, namespace: str, name: str, after: int = -1) -> AsyncIterator[ProgressEvent]:
        """Yield the latest attempt's progress events as they come, until it is decided."""
        request = self._http.build_request(
            "GET",
            f"{_task(namespace, name)}/events",
            params={"after": after},
            headers={"Accept": EVENT_STREAM},
            timeout=httpx2.Timeout(5, read=None),
        )
        try:
            response = await self._http.send(request, stream=True)
            async with aclosing(response):
                if response.is_error:
                    await response.aread()
                    _raise(response)
                async for event in httpx2.EventSource(response):
                    if event.event == END_EVENT:
                        return
                    yield ProgressEvent.model_validate_json(event.data)
        except httpx2.RequestError as error:
            raise self._unreachable(error) from None
        raise Unavailable(f"the gateway at {self._address} ended the stream of events; follow it again")

    async def _json(self, method: str, path: str, params: Params | None = None, body: bytes | None = None) -> Any:
        return self._decoded(await self._send(method, path, params, body))

    def _decoded(self, response: httpx2.Response) -> Any:
        try:
            return response.json()
        except ValueError:
            raise Unavailable(f"what answers at {self._address} is no Anima gateway; check the address") from None

    async def _send(
        self, method: str, path: str, params: Params | None = None, body: bytes | None = None
    ) -> httpx2.Response:
        given = {name: value for name, value in (params or {}).items() if value is not None}
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            response = await self._http.request(method, path, params=given, content=body, headers=headers)
        except httpx2.RequestError as error:
            raise self._unreachable(error) from None
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            said = _detail(response).message
            raise Refusal(Reason.REQUEST_REFUSED, f"{said}; another home's stack may answer at {self._address}")
        if not response.is_success:
            _raise(response)
        return response

    def _unreachable(self, error: httpx2.RequestError) -> Unavailable:
        return Unavailable(
            f"the gateway at {self._address} does not answer ({type(error).__name__}); `anima dev` starts one"
        )


def _object(kind: Kind, namespace: str, name: str) -> str:
    return f"/v1/namespaces/{quote(namespace, safe='')}/{kind.plural}/{quote(name, safe='')}"


def _task(namespace: str, name: str) -> str:
    return _object(KINDS["Task"], namespace, name)


def _raise(response: httpx2.Response) -> NoReturn:
    """Raise the error that the gateway's own code raised, as far as HTTP tells it."""
    raise _error(response.status_code, _detail(response))


def _detail(response: httpx2.Response) -> ErrorDetail:
    try:
        return ErrorBody.model_validate_json(response.content).error
    except ValidationError:
        return ErrorDetail(reason="", message=f"the gateway answered with HTTP status {response.status_code}")


def _error(status: int, error: ErrorDetail) -> AnimaError:
    if status == httpx2.codes.NOT_FOUND:
        return NotFound(error.message)
    if status == httpx2.codes.CONFLICT:
        return Conflict(error.message)
    if status >= httpx2.codes.INTERNAL_SERVER_ERROR:
        return Unavailable(error.message)
    # A newer gateway may know reasons that this client does not.
    known = error.reason in Reason.__members__.values()
    reason = Reason(error.reason) if known else Reason.REQUEST_REFUSED
    problems = [Problem(problem.path, problem.message, problem.remedy) for problem in error.problems]
    return Refusal(reason, error.message, problems)
