"""Routes of Sessions, for people: how they stand, what they hold, and which revisions are in use.

Tasks and conversations write to Sessions; here they are read, begun by an import, and deleted.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response, status
from starlette.responses import JSONResponse, StreamingResponse

from anima.model.api import MessagePage
from anima.model.base import MAX_INT, Model
from anima.model.names import Name
from workers.gateway.security import require_user
from workers.gateway.services import Given, Services
from workers.gateway.transcripts import LINES_TYPE, lines_of, read_messages

MAX_SESSIONS = 500
MAX_RECORDS = 200
"""In one answer; a message has up to 1 MiB."""
MAX_WAITERS = 1000
MAX_SEARCHED = 1000
"""Characters of a text to search for."""

router = APIRouter(prefix="/v1", dependencies=[Depends(require_user)])
Limit = Annotated[int, Query(ge=1, le=MAX_SESSIONS)]
_SESSION = "/namespaces/{namespace}/sessions/{name}"


@router.get("/sessions")
async def list_all(services: Given, limit: Limit = 100) -> Response:
    """Return Sessions of all namespaces, the last used first."""
    return await _list(services, None, limit)


@router.get("/namespaces/{namespace}/sessions")
async def list_in_namespace(services: Given, namespace: Name, limit: Limit = 100) -> Response:
    """Return Sessions of a namespace, the last used first."""
    return await _list(services, namespace, limit)


@router.get("/namespaces/{namespace}/revisions")
async def list_revisions(services: Given, namespace: Name) -> Response:
    """Return every revision in use, with the Agents, Tasks and Sessions under it."""
    return _written(await services.revisions.in_use(namespace))


@router.get(_SESSION)
async def get_status(services: Given, namespace: Name, name: Name) -> Response:
    """Return how a Session stands; no content."""
    return _written(await services.sessions.session(namespace, name))


@router.get(_SESSION + "/messages")
async def get_messages(
    services: Given,
    namespace: Name,
    name: Name,
    after: Annotated[int, Query(ge=0, le=MAX_INT)] = 0,
    before: Annotated[int | None, Query(ge=1, le=MAX_INT)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_RECORDS)] = 100,
    contains: Annotated[str | None, Query(min_length=1, max_length=MAX_SEARCHED)] = None,
    newest: bool = False,
) -> Response:
    """Return messages in order; `after` and `before` are sequences, `newest` takes the last ones."""
    found = await services.sessions.records(
        namespace, name, after=after, before=before, limit=limit, contains=contains, newest=newest
    )
    return _written(MessagePage(items=list(found)))


@router.get(_SESSION + "/queue")
async def get_queue(
    services: Given, namespace: Name, name: Name, limit: Annotated[int, Query(ge=1, le=MAX_WAITERS)] = 100
) -> Response:
    """Return who has a Session, how many wait for it, and the first of them in order."""
    return _written(await services.sessions.queue(namespace, name, limit))


@router.get(_SESSION + "/why")
async def explain(services: Given, namespace: Name, name: Name, agent: Name | None = None) -> Response:
    """Return what a Session is pinned to, and which Agents' Tasks it would refuse."""
    return _written(await services.revisions.explain(namespace, name, agent))


@router.get(_SESSION + "/export")
async def export(services: Given, namespace: Name, name: Name) -> Response:
    """Return the messages of a Session, one a line, as an import takes them.

    The answer is whole if it ends in order: whatever fails meanwhile breaks it off.
    """
    session = await services.sessions.session(namespace, name)
    return StreamingResponse(lines_of(services.sessions, session), media_type=LINES_TYPE)


@router.post(_SESSION + "/import", status_code=status.HTTP_201_CREATED)
async def import_messages(request: Request, services: Given, namespace: Name, name: Name) -> Response:
    """Begin a Session with the messages of another time and place, one a line, without an identity."""
    messages = await read_messages(request)
    begun = await services.sessions.import_messages(namespace, name, messages)
    return _written(begun, status.HTTP_201_CREATED)


@router.delete(_SESSION, status_code=status.HTTP_204_NO_CONTENT)
async def delete(services: Given, namespace: Name, name: Name) -> None:
    """Delete a Session with all that is in it, unless it is in use."""
    await services.sessions.delete(namespace, name)


async def _list(services: Services, namespace: str | None, limit: int) -> Response:
    found = await services.sessions.sessions(namespace, limit)
    return JSONResponse({"items": [session.to_json() for session in found]})


def _written(model: Model, status_code: int = status.HTTP_200_OK) -> Response:
    # By the model itself: a transcript may have megabytes, and this holds up the others.
    body = model.model_dump_json(by_alias=True, exclude_none=True)
    return Response(body, status_code, media_type="application/json")
