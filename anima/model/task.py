"""Task: one piece of work for an Agent, and what became of it."""

from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from anima.model.base import Int, Model
from anima.model.binding import SoulBinding
from anima.model.names import Name
from anima.model.reasons import Reason
from anima.model.resources import (
    EnvironmentVariable,
    Reference,
    Resource,
    ResourceRequirements,
)
from anima.model.units import Duration, PositiveDuration

MAX_SPEC_BYTES = 256 * 1024
_MICROSECOND = timedelta(microseconds=1)


def _named_once(env: list[EnvironmentVariable]) -> list[EnvironmentVariable]:
    names = [variable.name for variable in env]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"gives {', '.join(twice)} twice", "keep one of them")
    return env


Text = Annotated[str, Field(min_length=1, max_length=MAX_SPEC_BYTES)]


class AISettings(Model):
    """What a Task of type `ai` overrides of its Agent."""

    prompt: Text | None = None
    system_prompt: Text | None = None
    provider_ref: Reference | None = None
    model: Annotated[str, Field(min_length=1, max_length=253)] | None = None


class RetryPolicy(Model):
    """Retries of a failed Job.  The delay grows by the multiplier up to its cap."""

    max_retries: Annotated[Int, Field(ge=0, le=1000)] = 0
    initial_delay: Duration = timedelta(seconds=10)
    backoff_multiplier: Annotated[float, Field(ge=1, le=100)] = 2.0
    max_delay: Duration = timedelta(minutes=5)
    retry_timeouts: bool = False

    def delay_after(self, attempt: int) -> timedelta:
        """Return the pause after a failed attempt, counted from 1."""
        # Decimals, because a float overflows where a small multiplier has not reached the cap.
        factor = Decimal(self.backoff_multiplier) ** (attempt - 1)
        seconds = min(self.initial_delay // _MICROSECOND * factor, Decimal(self.max_delay // _MICROSECOND))
        return timedelta(microseconds=round(seconds))


class SessionReference(Model):
    """The Session that a Task continues; without `append` it adds no turn to it."""

    name: Name
    append: bool = True


class TaskSpec(Model):
    """The work.  Once a soul is bound, everything but `suspend` is frozen."""

    type: Literal["ai", "agent"]
    agent_ref: Reference
    prompt: Text | None = None
    ai: AISettings = AISettings()
    session_ref: SessionReference | None = None
    retry_policy: RetryPolicy = RetryPolicy()
    timeout: PositiveDuration | None = None
    deadline: PositiveDuration | None = None
    env: Annotated[list[EnvironmentVariable], Field(default_factory=list, max_length=128), AfterValidator(_named_once)]
    resources: ResourceRequirements | None = None
    priority: Annotated[Int, Field(ge=1, le=5)] = 3
    suspend: bool = False

    @property
    def user_prompt(self) -> str:
        """The user's words: `ai.prompt` if set, else `prompt`."""
        return self.ai.prompt or self.prompt or ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.user_prompt.strip():
            raise ValueError("has no prompt", "give prompt or ai.prompt")
        if self.type == "agent" and self.ai != AISettings():
            raise ValueError("of type agent takes no ai settings", "remove ai, or set type: ai")
        return self


class Task(Resource):
    """A named Task in a namespace."""

    api_version: Literal["anima.dev/v1alpha1"]
    kind: Literal["Task"]
    spec: TaskSpec


class Phase(StrEnum):
    """Where a Task stands.  The last three are final."""

    PENDING = "Pending"
    QUEUED = "Queued"
    RUNNING = "Running"
    WAITING = "Waiting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def final(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)


class Condition(Model):
    """One aspect of a status: `Bound`, `Suspended`, `Retrying`, `Complete`, `Failed`."""

    type: str
    status: Literal["True", "False"]
    reason: str = ""
    message: str = ""
    last_transition_time: Annotated[datetime, Field(strict=False)]


class ResultReference(Model):
    """Where a result is kept; the text itself stays out of Temporal."""

    iteration: Int
    attempt: Int
    digest: str
    size: Int


class TaskStatus(Model):
    """What became of a Task.  Digests, numbers and reasons; never persona text."""

    namespace: Name
    name: Name
    uid: str
    agent: str = ""
    session: Name | None = None
    phase: Annotated[Phase, Field(strict=False)] = Phase.PENDING
    reason: Annotated[Reason | None, Field(strict=False)] = None
    message: str = ""
    attempt: Int = 0
    total_attempts: Int = 0
    iteration: Int = 0
    job_name: str | None = None
    submission_time: Annotated[datetime | None, Field(strict=False)] = None
    start_time: Annotated[datetime | None, Field(strict=False)] = None
    """When the first Job existed."""
    completion_time: Annotated[datetime | None, Field(strict=False)] = None
    soul_binding: SoulBinding | None = None
    result_ref: ResultReference | None = None
    holds: Annotated[list[str], Field(default_factory=list)]
    conditions: Annotated[list[Condition], Field(default_factory=list)]
