"""Who may ask: bearer tokens for people and for attempts, and known hosts only."""

import hmac
from typing import Annotated

from fastapi import Depends, HTTPException, Request, status

from anima.model.attempts import AttemptKey, AttemptRecord
from anima.model.errors import NotFound
from anima.model.tokens import verified_key
from workers.gateway.services import Given

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def allowed_hosts(configured: str) -> list[str]:
    """Return the Host names that are served; any other may be a rebound DNS name."""
    return [*_LOOPBACK, f"[{configured}]" if ":" in configured else configured]


async def require_user(request: Request, services: Given) -> None:
    """Let nobody pass without the user token."""
    if not hmac.compare_digest(_bearer(request).encode(), services.keys.user_token.encode()):
        raise _unauthorized("the user token is missing or wrong; it is in keys/user.token of the Anima home")


async def _proven_attempt(request: Request, services: Given, task_uid: str, iteration: str, attempt: str) -> AttemptKey:
    proven = verified_key(services.keys.attempt_secret, _bearer(request))
    if proven is None:
        raise _unauthorized("the attempt token is missing or wrong")
    if proven.path != f"{task_uid}/{iteration}/{attempt}":
        raise HTTPException(status.HTTP_403_FORBIDDEN, "the token is another attempt's")
    return proven


ProvenAttempt = Annotated[AttemptKey, Depends(_proven_attempt)]
"""The attempt that the request's token was derived for, decided or not."""


async def _open_attempt(services: Given, key: ProvenAttempt) -> AttemptRecord:
    try:
        record = await services.ledger.attempt(key)
    except NotFound:
        raise gone(key) from None
    if record.outcome is not None:
        outcome = record.outcome.reason or "succeeded"
        raise HTTPException(status.HTTP_410_GONE, f"attempt {key.path} is decided ({outcome}); its token is dead")
    return record


OpenAttempt = Annotated[AttemptRecord, Depends(_open_attempt)]
"""The same, while it is undecided."""


def gone(key: AttemptKey) -> HTTPException:
    """Say that an attempt is not in the Ledger any more."""
    return HTTPException(status.HTTP_410_GONE, f"attempt {key.path} does not exist any more; its token is dead")


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else ""


def _unauthorized(message: str) -> HTTPException:
    return HTTPException(status.HTTP_401_UNAUTHORIZED, message, {"WWW-Authenticate": "Bearer"})
