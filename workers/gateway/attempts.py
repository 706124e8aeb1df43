"""Routes of one attempt, for the worker in its Job, under the attempt's token."""

import logging

from fastapi import APIRouter, Request, Response, status
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse

from anima.model.attempts import MAX_RESULT_BYTES, AttemptKey, ProgressEvent, Report
from anima.model.errors import NotFound
from workers.gateway.bodies import parse_model, read_body
from workers.gateway.security import OpenAttempt, ProvenAttempt, gone
from workers.gateway.services import Given, Services

MAX_EVENT_BODY_BYTES = 64 * 1024
# JSON may write one byte of an answer as six.
MAX_REPORT_BODY_BYTES = 6 * MAX_RESULT_BYTES + 64 * 1024

log = logging.getLogger(__name__)
router = APIRouter(prefix="/v1/attempts/{task_uid}/{iteration}/{attempt}")


@router.get("/input")
async def get_input(services: Given, record: OpenAttempt) -> Response:
    """Return what the worker is to do, with what its model is given of the Session."""
    given = await services.ledger.input(record.key)
    if given.transcript_ref is not None:
        transcript = await services.transcripts.read(given.namespace, given.transcript_ref)
        given = given.model_copy(update={"transcript": transcript})
    # Written by the model itself: a transcript may have megabytes, and this holds up the others.
    return Response(given.model_dump_json(by_alias=True, exclude_none=True), media_type="application/json")


@router.post("/events", status_code=status.HTTP_204_NO_CONTENT)
async def add_event(request: Request, services: Given, record: OpenAttempt) -> None:
    """Store one progress event; the same sequence number again is ignored."""
    event = parse_model(ProgressEvent, await read_body(request, MAX_EVENT_BODY_BYTES))
    await services.ledger.append_event(record.key, event)


@router.post("/report")
async def report(request: Request, services: Given, key: ProvenAttempt) -> Response:
    """Decide the attempt by the worker's report; the same report again is the same outcome."""
    given = parse_model(Report, await read_body(request, MAX_REPORT_BODY_BYTES))
    try:
        outcome = await services.ledger.report(key, given)
    except NotFound:
        raise gone(key) from None
    # After the answer, so that the Job ends without waiting for Temporal.
    return JSONResponse(outcome.to_json(), background=BackgroundTask(_wake, services, key))


async def _wake(services: Services, key: AttemptKey) -> None:
    try:
        await services.notify(await services.ledger.task(key.task_uid), key)
    except Exception as error:
        # The workflow's slow check finds the outcome, too.
        log.warning("no wake-up for attempt %s: %s", key.path, type(error).__name__)
