"""One attempt of a Task: its key, its input, and the outcome decided once."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, JsonValue

from anima.model.base import Int, Model
from anima.model.digests import Digest
from anima.model.names import Name
from anima.model.provider import ProviderType
from anima.model.reasons import Reason
from anima.model.task import ResultReference
from anima.model.transcript import Transcript

MAX_RESULT_BYTES = 1024 * 1024
MAX_EVENT_BYTES = 16 * 1024
MAX_EVENTS = 10_000

# Trying these again with the same inputs can end differently.
RETRYABLE = frozenset({
    Reason.JOB_FAILED,
    Reason.JOB_LOST,
    Reason.ANSWER_BLANK,
    Reason.ANSWER_TRUNCATED,
    Reason.PROVIDER_FAILED,
})  # fmt: skip


# What a worker can know of its attempt; how a Task stands is not its to say.
REPORTABLE = (RETRYABLE - {Reason.JOB_LOST}) | {
    Reason.ANSWER_REFUSED,
    Reason.ANSWER_TOO_LARGE,
    Reason.PROMPT_DIGEST_MISMATCH,
    Reason.PROVIDER_INVALID,
}


def _reportable(reason: Reason | None) -> Reason | None:
    if reason is not None and reason not in REPORTABLE:
        raise ValueError("is not a worker's to report", f"give one of {', '.join(sorted(REPORTABLE))}")
    return reason


class AttemptKey(Model):
    """Which attempt: the Task's uid, the iteration from 0, the attempt from 1."""

    task_uid: Annotated[str, Field(min_length=1, max_length=128, alias="taskUID")]
    iteration: Annotated[Int, Field(ge=0)] = 0
    attempt: Annotated[Int, Field(ge=1)]

    @property
    def path(self) -> str:
        """The key as it stands in an address: ``uid/iteration/attempt``."""
        return f"{self.task_uid}/{self.iteration}/{self.attempt}"

    @classmethod
    def parse(cls, path: str) -> Self:
        """Read a key back from its `path`."""
        task_uid, iteration, attempt = path.rsplit("/", 2)
        return cls(task_uid=task_uid, iteration=int(iteration), attempt=int(attempt))


class ProviderSettings(Model):
    """Where the model is, without its key."""

    type: ProviderType
    base_url: Annotated[str | None, Field(alias="baseURL")] = None
    model: str
    temperature: float | None = None
    max_tokens: Int | None = None


class TranscriptReference(Model):
    """The part of a Session that an attempt is given, by digest."""

    session: Name
    session_uid: Annotated[str, Field(alias="sessionUID")]
    through: Annotated[Int, Field(ge=0)]
    """The sequence of the last record in it."""
    messages: Annotated[Int, Field(ge=0)]
    """How many were stored up to it."""
    budget: Annotated[Int, Field(ge=1)]
    """In bytes; see `anima.model.transcript.Tail`."""
    digest: Digest


class AttemptInput(Model):
    """What the worker is to do.  It travels through the gateway, not Temporal.

    The Ledger keeps it with the reference to its transcript, the gateway adds the text.
    """

    schema_version: Literal[1] = 1
    namespace: Name
    task: Name
    key: AttemptKey
    user_prompt: str
    user_prompt_digest: Digest
    system_prompt_digest: Digest
    envelope_version: Int
    provider: ProviderSettings
    transcript_ref: TranscriptReference | None = None
    transcript: Transcript | None = None


class Usage(Model):
    """What the model counted, in tokens and requests."""

    input_tokens: Int = 0
    output_tokens: Int = 0
    requests: Int = 0


class Report(Model):
    """What a worker sends once: an answer, or the reason why there is none."""

    answer: str | None = None
    """At most `MAX_RESULT_BYTES` in UTF-8, which the Ledger checks."""
    reason: Annotated[Reason | None, Field(strict=False), AfterValidator(_reportable)] = None
    message: Annotated[str, Field(max_length=4096)] = ""
    usage: Usage = Usage()
    model: Annotated[str, Field(max_length=253)] = ""


class ProgressEvent(Model):
    """One step that a worker tells about: text so far, a retry, a tool call."""

    sequence: Annotated[Int, Field(ge=0)]
    kind: Annotated[str, Field(min_length=1, max_length=64)]
    data: Annotated[dict[str, JsonValue], Field(default_factory=dict)]


class Outcome(Model):
    """How an attempt ended.  Decided once, by compare-and-set in the Ledger."""

    succeeded: bool
    reason: Annotated[Reason | None, Field(strict=False)] = None
    message: str = ""
    exit_code: Int | None = None
    result: ResultReference | None = None
    decided_at: Annotated[datetime | None, Field(strict=False)] = None

    def retryable(self, *, timeouts: bool) -> bool:
        """Tell whether the retry policy may try again after this outcome."""
        return self.reason in RETRYABLE or (timeouts and self.reason is Reason.JOB_TIMEOUT)


class AttemptRecord(Model):
    """An attempt as the Ledger keeps it."""

    key: AttemptKey
    job_name: str
    started_at: Annotated[datetime | None, Field(strict=False)] = None
    outcome: Outcome | None = None
    usage: Usage = Usage()
    model: str = ""
    """The model that answered, as its provider names it."""
