"""Every failure as one JSON shape; unexpected ones by their type only.

A foreign exception may quote what it was given, and the gateway is given souls
and Secrets: neither its message nor its variables leave the process or reach a log.
"""

import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anima.model.api import ErrorBody, ErrorDetail, ErrorProblem
from anima.model.errors import Conflict, NotFound, Refusal, Unavailable
from anima.model.problems import Problem
from anima.model.reasons import Reason

RETRY_AFTER_SECONDS = 2
_LATER = {"Retry-After": str(RETRY_AFTER_SECONDS)}

# Words for statuses that no `Reason` stands behind.
_WORDS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Gone",
    413: "TooLarge",
    500: "Internal",
    503: "Unavailable",
}

log = logging.getLogger(__name__)


class Boundary:
    """Wraps all routes: an id for each request, no caching, and an end to what nobody caught.

    Args:
        app: what is wrapped.
        new_id: names a request.
    """

    def __init__(self, app: ASGIApp, new_id: Callable[[], str]) -> None:
        self._app = app
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = self._new_id()
        scope.setdefault("state", {})["request_id"] = request_id
        answered = False

        async def send_marked(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                _mark(MutableHeaders(scope=message), request_id)
            await send(message)

        try:
            await self._app(scope, receive, send_marked)
        except ClientDisconnect:
            return
        except Exception as error:
            _log_unexpected(scope, request_id, error)
            if not answered:
                response = _response(request_id, 500, f"the gateway failed with {type(error).__name__}")
                await response(scope, receive, send_marked)


def install_handlers(app: FastAPI) -> None:
    """Map every expected failure to its HTTP status."""
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(NotFound, _failed(404))
    app.add_exception_handler(Conflict, _failed(409))
    app.add_exception_handler(Unavailable, _failed(503, _LATER))
    app.add_exception_handler(RequestValidationError, _invalid_parameters)
    app.add_exception_handler(HTTPException, _http_failure)


def _failed(status: int, headers: Mapping[str, str] | None = None) -> Callable[[Request, Exception], Any]:
    async def handler(request: Request, error: Exception) -> Response:
        return _response(_id(request), status, str(error), headers=headers)

    return handler


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    if error.reason is Reason.CONVERSATION_FULL:
        # The one refusal that time alone mends.
        return _response(_id(request), 429, error.message, error.reason, headers=_LATER)
    return _response(_id(request), 422, error.message, error.reason, error.problems)


async def _invalid_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [_parameter_problem(detail) for detail in error.errors()]
    message = "; ".join(str(problem) for problem in problems)
    return _response(_id(request), 422, message, Reason.REQUEST_REFUSED, problems)


async def _http_failure(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _response(_id(request), error.status_code, error.detail, headers=error.headers)


def _parameter_problem(detail: Any) -> Problem:
    cause = detail.get("ctx", {}).get("error")
    # Our own validators give the fault and the remedy; pydantic's give a message.
    words = cause.args if isinstance(cause, ValueError) else (detail["msg"],)
    return Problem(str(detail["loc"][-1]), *words[:2])


def _response(
    request_id: str,
    status: int,
    message: str,
    reason: Reason | None = None,
    problems: Sequence[Problem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    detail = ErrorDetail(
        reason=reason or _WORDS.get(status, f"Http{status}"),
        message=message,
        remedy=reason.remedy if reason else "",
        problems=[ErrorProblem(path=item.path, message=item.message, remedy=item.remedy) for item in problems],
        request_id=request_id,
    )
    return JSONResponse(ErrorBody(error=detail).to_json(), status, headers)


def _id(request: Request) -> str:
    return str(request.state.request_id)


def _mark(headers: MutableHeaders, request_id: str) -> None:
    headers["X-Request-Id"] = request_id
    headers["Cache-Control"] = "no-store"
    headers["X-Content-Type-Options"] = "nosniff"


def _log_unexpected(scope: Scope, request_id: str, error: Exception) -> None:
    frames = traceback.extract_tb(error.__traceback__)
    stack = " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
    log.error(
        "request %s %s %s failed: %s in %s", request_id, scope["method"], scope["path"], type(error).__name__, stack
    )
