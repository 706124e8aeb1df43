"""Request bodies: read up to a limit, and parsed without echoing any of them."""

from collections.abc import AsyncIterator
from typing import Any, TypeVar

from fastapi import HTTPException, Request, status
from pydantic import ValidationError

from anima.model import plain
from anima.model.base import Model
from anima.model.errors import Refusal
from anima.model.problems import problems_of, summary
from anima.model.reasons import Reason

M = TypeVar("M", bound=Model)

_DISCARDED_BYTES = 32 * 1024 * 1024


async def read_body(request: Request, limit: int) -> bytes:
    """Return the whole body; keep no more than `limit` bytes of it at any time.

    Raises:
        HTTPException: 413 for a longer body.
    """
    kept = bytearray()
    async for chunk in chunks_of(request, limit):
        kept += chunk
    return bytes(kept)


async def chunks_of(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yield the first `limit` bytes of a body as they come.

    What goes beyond is read and dropped for a while: an answer to a client that
    is still sending would be lost as its connection breaks.

    Raises:
        HTTPException: 413 for a longer body.
    """
    seen = 0
    async for chunk in request.stream():
        seen += len(chunk)
        if seen <= limit:
            yield chunk
        elif seen > limit + _DISCARDED_BYTES:
            break
    if seen > limit:
        raise HTTPException(
            status.HTTP_413_CONTENT_TOO_LARGE,
            f"the body is larger than {limit} bytes, the limit of {request.method} {request.scope['route'].path}",
        )


def parse_json(body: bytes) -> Any:
    """Parse one JSON value, as `anima.model.manifest` wants it.

    Raises:
        Refusal: `ResourceInvalid` for what is no JSON, or repeats a field.
    """
    try:
        return plain.parse_json(body)
    except ValueError as error:
        raise Refusal(Reason.RESOURCE_INVALID, f"the body {error}") from None


def parse_model(model: type[M], body: bytes) -> M:
    """Parse a body of JSON that is one model.

    Raises:
        Refusal: `RequestRefused`, with every problem.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        problems = problems_of(error, model)
    raise Refusal(
        Reason.REQUEST_REFUSED, f"the body is no valid {model.__name__.lower()}: {summary(problems)}", problems
    )
