"""Routes of conversations, for people: say something, and read or follow its answer."""

import asyncio
import logging
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Header, Path, Request, Response, status
from starlette.responses import JSONResponse, StreamingResponse

from anima.model import plain
from anima.model.api import ANSWER_EVENT, EVENT_STREAM, IDEMPOTENCY_HEADER, AttemptProgress
from anima.model.attempts import AttemptRecord
from anima.model.base import MAX_INT
from anima.model.conversation import ConversationStatus, Exchange, NewMessage, PostedMessage, parse_message
from anima.model.errors import NotFound, Refusal
from anima.model.names import Name
from anima.model.problems import Problem
from anima.model.reasons import Reason
from anima.model.session import MAX_MESSAGE_BYTES, Owner, SessionRecord
from anima.stores.sessions import SessionKey
from workers.gateway.bodies import read_body
from workers.gateway.security import require_user
from workers.gateway.services import Given, Services
from workers.gateway.streams import Look, server_sent, stream

# JSON may write one byte of a message as six.
MAX_BODY_BYTES = 6 * MAX_MESSAGE_BYTES + 4096
_KEY = re.compile(r"[!-~]{1,200}")
_POSITION = re.compile(r"([0-9]{1,15})\.([0-9]{1,15})\.([0-9]{1,15})")
_WAKE_LIMIT = timedelta(seconds=2)
_ANSWERED = "answer"

log = logging.getLogger(__name__)
router = APIRouter(prefix="/v1/conversations/{namespace}/{name}", dependencies=[Depends(require_user)])
Number = Annotated[int, Path(ge=1, le=MAX_INT)]
LastEvent = Annotated[str | None, Header(alias="Last-Event-ID")]


class Position(NamedTuple):
    """How far a reader of a message's stream has come: its attempt, and a sequence in it."""

    iteration: int = 0
    attempt: int = 1
    sequence: int = -1

    def __str__(self) -> str:
        return f"{self.iteration}.{self.attempt}.{self.sequence}"


@router.post("/messages", status_code=status.HTTP_202_ACCEPTED)
async def post(request: Request, services: Given, namespace: Name, name: Name) -> Response:
    """Queue a user's message, once per idempotency key; answer with it, or with the stream of its answer."""
    message = _message(await read_body(request, MAX_BODY_BYTES))
    key = _idempotency_key(request)
    agent = message.agent_ref.name if message.agent_ref else None
    posted = await services.conversations.post(namespace, name, key, message.content, agent)
    await _wake(services, SessionKey(namespace, name, conversation=True))
    where = f"/v1/conversations/{namespace}/{name}/messages/{posted.number}"
    headers = {"Location": where, IDEMPOTENCY_HEADER: key}
    if EVENT_STREAM in request.headers.get("accept", ""):
        return _stream(request, services, namespace, name, posted.number, Position(), headers)
    return JSONResponse(posted.to_json(), status.HTTP_202_ACCEPTED, headers)


@router.get("")
async def get_status(services: Given, namespace: Name, name: Name) -> Response:
    """Return who answers in a conversation, what waits, and how its Session stands."""
    session = await services.sessions.session(namespace, name)
    if session.owner is not Owner.CONVERSATION:
        raise NotFound(f"Session {namespace}/{name} is no conversation; `anima session show {name}` shows it")
    found = ConversationStatus(
        namespace=namespace,
        name=name,
        agent=await services.conversations.agent(namespace, name),
        pending=list(await services.conversations.pending(namespace, name)),
        session=session,
    )
    return JSONResponse(found.to_json())


@router.get("/messages/{number}")
async def get_message(services: Given, namespace: Name, name: Name, number: Number) -> Response:
    """Return a message, and its answer once there is one."""
    message = await services.conversations.message(namespace, name, number)
    answer = await _answer(services, namespace, name, message)
    return JSONResponse(Exchange(message=message, answer=answer).to_json())


@router.get("/messages/{number}/events")
async def get_events(
    request: Request, services: Given, namespace: Name, name: Name, number: Number, last: LastEvent = None
) -> Response:
    """Stream the progress of every attempt at a message, then its answer."""
    after = _position(last)
    await services.conversations.message(namespace, name, number)
    return _stream(request, services, namespace, name, number, after)


def _stream(
    request: Request,
    services: Services,
    namespace: str,
    name: str,
    number: int,
    after: Position | None,
    headers: dict[str, str] | None = None,
) -> Response:
    look = _MessageEvents(services, namespace, name, number, after)
    body = stream(look, services.poll_interval, request.app.state.ending)
    return StreamingResponse(body, media_type=EVENT_STREAM, headers=headers)


class _MessageEvents:
    """Looks at a message's Task, attempt by attempt, and at its answer in the end.

    Args:
        services: the stores.
        namespace: of the conversation.
        name: of the conversation.
        number: of the message.
        after: what the reader has seen; none if it has seen the answer.
    """

    def __init__(self, services: Services, namespace: str, name: str, number: int, after: Position | None) -> None:
        self._services = services
        self._namespace = namespace
        self._name = name
        self._number = number
        self._after = after

    async def __call__(self) -> Look:
        message = await self._services.conversations.message(self._namespace, self._name, self._number)
        if self._after is None:
            return Look([], last=True)
        # Read after the message: what is not there once it is answered never will be.
        events = await self._progress(message.task, self._after)
        if events or message.answer is None:
            return Look(events, waits_for=_waits_for(message))
        answer = await _answer(self._services, self._namespace, self._name, message)
        sent = [server_sent(answer.model_dump_json(), event=ANSWER_EVENT, identifier=_ANSWERED)] if answer else []
        return Look(sent, last=True)

    async def _progress(self, task: str, after: Position) -> list[str]:
        try:
            record = await self._services.ledger.task_named(self._namespace, task)
        except NotFound:
            return []
        # An attempt is decided before the next begins, so nothing is added to one that has a successor.
        for attempt in _from(after, await self._services.ledger.attempts(record.uid)):
            where = Position(attempt.key.iteration, attempt.key.attempt)
            start = after.sequence if where[:2] == after[:2] else -1
            events = await self._services.ledger.events(attempt.key, start)
            if events:
                self._after = where._replace(sequence=events[-1].sequence)
                steps = [
                    AttemptProgress(iteration=where.iteration, attempt=where.attempt, **dict(event)) for event in events
                ]
                return [
                    server_sent(step.model_dump_json(), identifier=str(where._replace(sequence=step.sequence)))
                    for step in steps
                ]
        return []


def _from(after: Position, attempts: Sequence[AttemptRecord]) -> list[AttemptRecord]:
    return [item for item in attempts if (item.key.iteration, item.key.attempt) >= after[:2]]


def _waits_for(message: PostedMessage) -> str:
    return f"{message.pending_before} messages before this one" if message.pending_before else "nothing new"


async def _answer(services: Services, namespace: str, name: str, message: PostedMessage) -> SessionRecord | None:
    """Return the record of a message's answer; none before there is one, or once it is forgotten."""
    if message.answer is None:
        return None
    after = message.answer - 1
    found = await services.sessions.records(namespace, name, after=after, before=message.answer + 1, limit=1)
    return found[0] if found else None


async def _wake(services: Services, key: SessionKey) -> None:
    """Have the message become a Task soon.  It is stored: whatever fails here, it will."""
    try:
        async with asyncio.timeout(_WAKE_LIMIT.total_seconds()):
            await services.wake(key)
    except Exception as error:
        # The orchestrator's sweep finds it, too.
        log.warning("no wake-up for conversation %s/%s: %s", key.namespace, key.name, type(error).__name__)


def _message(body: bytes) -> NewMessage:
    try:
        # Python's reader lets a lone surrogate through, and the field that has it is named then.
        data = plain.parse_json(body)
    except ValueError as error:
        raise Refusal(Reason.REQUEST_REFUSED, f"the body {error}") from None
    return parse_message(data)


def _idempotency_key(request: Request) -> str:
    """Return the sender's key; without one, the message is this request's alone."""
    given = request.headers.get(IDEMPOTENCY_HEADER)
    if given is None:
        return str(request.state.request_id)
    if _KEY.fullmatch(given):
        return given
    raise _refused(IDEMPOTENCY_HEADER, "must be 1 to 200 visible ASCII characters", "send a UUID, for example")


def _position(last: str | None) -> Position | None:
    if last is None:
        return Position()
    if last == _ANSWERED:
        return None
    found = _POSITION.fullmatch(last)
    if found is None:
        raise _refused("Last-Event-ID", "is no id of this stream", "leave it out to begin anew")
    return Position(*(int(part) for part in found.groups()))


def _refused(path: str, message: str, remedy: str) -> Refusal:
    problem = Problem(path, message, remedy)
    return Refusal(Reason.REQUEST_REFUSED, str(problem), [problem])
