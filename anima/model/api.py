"""The shapes that the gateway and its clients share, besides the resources."""

from typing import Annotated

from pydantic import Field

from anima.model.attempts import ProgressEvent
from anima.model.base import Int, Model
from anima.model.binding import SoulBinding
from anima.model.digests import Digest
from anima.model.task import TaskSpec

DIGEST_HEADER = "Anima-Digest"
"""The digest of a result's exact bytes."""
EVENT_STREAM = "text/event-stream"
END_EVENT = "end"
"""The last event of a stream: the attempt is decided, and nothing follows."""


class ErrorProblem(Model):
    """One fault: where, what, and the remedy."""

    path: str = ""
    message: str
    remedy: str = ""


class ErrorDetail(Model):
    """Why a request was not served.

    `reason` is a `Reason`, or a word for the HTTP status where none applies.
    """

    reason: str
    message: str
    remedy: str = ""
    problems: Annotated[list[ErrorProblem], Field(default_factory=list)]
    request_id: str = ""


class ErrorBody(Model):
    """The body of every answer with a status from 400 on."""

    error: ErrorDetail


class RecordedSpec(Model):
    """A Task's spec as it counts now, edits and all, and what it was bound to."""

    spec: TaskSpec
    digest: Digest
    submitted_digest: Digest
    """Of the spec as it was submitted."""
    binding: SoulBinding | None = None


class EventPage(Model):
    """Progress events of one attempt; the attempt is none before the first Job."""

    iteration: Int | None = None
    attempt: Int | None = None
    decided: bool = False
    events: list[ProgressEvent]
