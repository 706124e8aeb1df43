"""A Job: the process, or the pod, of one attempt."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from anima.model.attempts import AttemptKey
from anima.model.base import Int, Model
from anima.model.digests import Digest, digest_json
from anima.model.names import Name
from anima.model.units import Duration, Quantity


class JobSpec(Model):
    """All that makes a Job what it is, except its environment.

    The environment holds the persona and tokens, so it is handed over apart and
    stored nowhere; `prompt_digest` stands for it.
    """

    name: Name
    namespace: Name
    task: Name
    key: AttemptKey
    prompt_digest: Digest
    command: list[str] | None = None
    """The program and its arguments; none for the built-in AI worker."""
    timeout: Duration | None = None
    grace: Duration = timedelta(seconds=10)
    """From the polite signal to the kill of the whole group."""
    memory_limit: Quantity | None = None
    """Bytes."""

    @property
    def digest(self) -> str:
        """Identify the Job, so that a retried creation adopts only its own."""
        return digest_json("anima.job/1", self.to_json())


class JobPhase(StrEnum):
    ABSENT = "Absent"
    PENDING = "Pending"
    RUNNING = "Running"
    ENDED = "Ended"
    LOST = "Lost"
    """Its process is gone and left no exit status."""


class JobObservation(Model):
    """What is known of a Job now."""

    phase: Annotated[JobPhase, Field(strict=False)]
    uid: str | None = None
    exit_code: Int | None = None
    """From 0 to 255; a process killed by signal n has 128 + n."""
    timed_out: bool = False
    message: str = ""
    started_at: Annotated[datetime | None, Field(strict=False)] = None
    ended_at: Annotated[datetime | None, Field(strict=False)] = None
