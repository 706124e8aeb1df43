"""Routes of Tasks, for people: status, result, logs and progress, from the Ledger.

Tasks are started and steered through Temporal; these routes outlive its retention.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response, status
from starlette.responses import JSONResponse, StreamingResponse

from anima.model.api import DIGEST_HEADER, EVENT_STREAM, EventPage, RecordedSpec
from anima.model.attempts import AttemptKey, AttemptRecord
from anima.model.base import MAX_INT
from anima.model.digests import digest_bytes
from anima.model.errors import NotFound
from anima.model.inputs import spec_digest
from anima.model.names import Name
from anima.stores.ports import Ledger, TaskRecord
from workers.gateway.security import require_user
from workers.gateway.services import Given, Services
from workers.gateway.streams import Look, server_sent, stream

MAX_TASKS = 500
DEFAULT_TAIL_BYTES = 64 * 1024
MAX_TAIL_BYTES = 4 * 1024 * 1024

router = APIRouter(prefix="/v1", dependencies=[Depends(require_user)])
After = Annotated[int, Query(ge=-1, le=MAX_INT)]


@router.get("/tasks")
async def list_tasks(
    services: Given, namespace: Name | None = None, limit: Annotated[int, Query(ge=1, le=MAX_TASKS)] = 100
) -> Response:
    """Return the newest Tasks first."""
    records = await services.ledger.tasks(namespace, limit)
    return JSONResponse({"items": [record.status.to_json() for record in records]})


@router.get("/namespaces/{namespace}/tasks")
async def list_in_namespace(
    services: Given, namespace: Name, limit: Annotated[int, Query(ge=1, le=MAX_TASKS)] = 100
) -> Response:
    """Return the newest Tasks of a namespace first."""
    return await list_tasks(services, namespace, limit)


async def _named(services: Given, namespace: Name, name: Name) -> TaskRecord:
    return await services.ledger.task_named(namespace, name)


NamedTask = Annotated[TaskRecord, Depends(_named)]


@router.get("/namespaces/{namespace}/tasks/{name}")
async def get_status(record: NamedTask) -> Response:
    """Return a Task's status."""
    return JSONResponse(record.status.to_json())


@router.delete("/namespaces/{namespace}/tasks/{name}", status_code=status.HTTP_204_NO_CONTENT)
async def delete(services: Given, namespace: Name, name: Name) -> None:
    """Forget a closed Task with its attempts and its result."""
    await services.ledger.delete_task(namespace, name)


@router.get("/namespaces/{namespace}/tasks/{name}/spec")
async def get_spec(record: NamedTask) -> Response:
    """Return the spec that counts now, and what the Task was bound to."""
    recorded = RecordedSpec(
        spec=record.spec,
        digest=spec_digest(record.spec),
        submitted_digest=record.spec_digest,
        binding=record.binding,
    )
    return JSONResponse(recorded.to_json())


@router.get("/namespaces/{namespace}/tasks/{name}/attempts")
async def get_attempts(services: Given, record: NamedTask) -> Response:
    """Return every attempt with its outcome, its model and what that counted."""
    return JSONResponse({"items": [attempt.to_json() for attempt in await services.ledger.attempts(record.uid)]})


@router.get("/namespaces/{namespace}/tasks/{name}/result")
async def get_result(services: Given, record: NamedTask) -> Response:
    """Return the exact bytes of the answer."""
    key = await _answered(services, record)
    if key is None:
        where = f"Task {record.namespace}/{record.name}"
        raise NotFound(f"{where} has no result; it is {record.status.phase}")
    answer = (await services.ledger.result(key)).encode()
    return Response(answer, media_type="text/plain; charset=utf-8", headers={DIGEST_HEADER: digest_bytes(answer)})


@router.get("/namespaces/{namespace}/tasks/{name}/logs")
async def get_logs(
    services: Given,
    record: NamedTask,
    iteration: Annotated[int | None, Query(ge=0, le=MAX_INT)] = None,
    attempt: Annotated[int | None, Query(ge=1, le=MAX_INT)] = None,
    tail: Annotated[int, Query(ge=1, le=MAX_TAIL_BYTES)] = DEFAULT_TAIL_BYTES,
) -> Response:
    """Return the end of a Job's output, of the latest attempt that fits."""
    found = [
        item
        for item in await services.ledger.attempts(record.uid)
        if iteration in (None, item.key.iteration) and attempt in (None, item.key.attempt)
    ]
    if not found:
        raise NotFound(f"Task {record.namespace}/{record.name} has no such attempt, so there is no log")
    output = await services.job_log(record.namespace, found[-1].job_name, tail)
    return Response(output, media_type="application/octet-stream")


@router.get("/namespaces/{namespace}/tasks/{name}/events")
async def get_events(request: Request, services: Given, record: NamedTask, after: After = -1) -> Response:
    """Return the latest attempt's progress: a page of JSON, or a stream until it is decided."""
    if EVENT_STREAM in request.headers.get("accept", ""):
        look = _LatestAttempt(services, record, after)
        return StreamingResponse(
            stream(look, services.poll_interval, request.app.state.ending), media_type=EVENT_STREAM
        )
    latest = await _latest(services.ledger, record)
    if latest is None:
        return JSONResponse(EventPage(events=[]).to_json())
    page = EventPage(
        iteration=latest.key.iteration,
        attempt=latest.key.attempt,
        decided=latest.outcome is not None,
        events=list(await services.ledger.events(latest.key, after)),
    )
    return Response(page.model_dump_json(), media_type="application/json")


async def _answered(services: Services, record: TaskRecord) -> AttemptKey | None:
    """Find the attempt whose answer is the Task's, also before the Task is closed."""
    reference = record.status.result_ref
    if reference is not None:
        return AttemptKey(task_uid=record.uid, iteration=reference.iteration, attempt=reference.attempt)
    answered = [item for item in await services.ledger.attempts(record.uid) if item.outcome and item.outcome.result]
    return answered[-1].key if answered else None


async def _latest(ledger: Ledger, record: TaskRecord) -> AttemptRecord | None:
    attempts = await ledger.attempts(record.uid)
    return attempts[-1] if attempts else None


class _LatestAttempt:
    """Looks at the events of the attempt that is the latest when there is one; a Task that ends first ends it, too."""

    def __init__(self, services: Services, record: TaskRecord, after: int) -> None:
        self._ledger = services.ledger
        self._record = record
        self._after = after
        self._key: AttemptKey | None = None

    async def __call__(self) -> Look:
        closed = (await self._ledger.task(self._record.uid)).closed
        current = await (self._ledger.attempt(self._key) if self._key else _latest(self._ledger, self._record))
        if current is None:
            return Look([], last=closed)
        self._key = current.key
        # Read after the outcome: what is not there once it is decided never will be.
        events = await self._ledger.events(current.key, self._after)
        self._after = events[-1].sequence if events else self._after
        sent = [server_sent(event.model_dump_json(), identifier=str(event.sequence)) for event in events]
        return Look(sent, last=not events and current.outcome is not None)
