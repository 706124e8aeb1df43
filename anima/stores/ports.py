"""What Anima needs from the world, as protocols.

Every implementation passes the same contract suite.  Methods raise `NotFound`,
`Conflict` or `Refusal` for what is permanent and `Unavailable` for what may pass.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeVar

from anima.model.attempts import (
    AttemptInput,
    AttemptKey,
    AttemptRecord,
    Outcome,
    ProgressEvent,
    Report,
    Usage,
)
from anima.model.binding import SoulBinding
from anima.model.jobs import JobObservation, JobSpec
from anima.model.persona import SensitiveText
from anima.model.resources import Resource
from anima.model.task import TaskSpec, TaskStatus

T = TypeVar("T", bound=Resource)


class Change(StrEnum):
    """What `Catalog.apply` did."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Applied:
    resource: Resource
    change: Change


class Catalog(Protocol):
    """Agents, Providers, ConfigMaps and Secrets, by kind, namespace and name."""

    async def apply(self, resource: Resource, *, dry_run: bool = False) -> Applied:
        """Create or replace an object; a dry run returns what would be and writes nothing.

        A `metadata.resourceVersion` in it must be the stored one.  The uid is
        kept until deletion; the generation rises when `content()` changes.

        Raises:
            Conflict: a stale resourceVersion, another uid, or changed data of an
                immutable ConfigMap.
        """
        ...

    async def get(self, kind: type[T], namespace: str, name: str) -> T:
        """Return the object as it is now.

        Raises:
            NotFound: there is none.
        """
        ...

    async def list(self, kind: type[T], namespace: str | None = None) -> Sequence[T]:
        """Return the objects of a kind, by namespace and name; all namespaces if none."""
        ...

    async def delete(self, kind: type[Resource], namespace: str, name: str, uid: str | None = None) -> None:
        """Delete an object, but only the one with `uid` if that is given.

        Raises:
            NotFound: there is none.
            Conflict: it has another uid.
        """
        ...


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A Task as the Ledger keeps it."""

    uid: str
    namespace: str
    name: str
    workflow_id: str
    spec: TaskSpec
    spec_digest: str
    """Of the spec as it was submitted; edits do not change it."""
    status: TaskStatus
    closed: bool
    binding: SoulBinding | None = None


class Ledger(Protocol):
    """What outlives a workflow run."""

    async def admit(
        self, namespace: str, name: str, uid: str, workflow_id: str, spec: TaskSpec, submitted_at: datetime
    ) -> TaskRecord:
        """Claim the name for this Task, or return the record that has it.

        The same content joins, whoever asks; the caller sees by `uid` and `closed`
        whose record it is.

        Raises:
            Refusal: `TaskConflict` if the name was taken with other content.
        """
        ...

    async def task(self, uid: str) -> TaskRecord: ...

    async def task_named(self, namespace: str, name: str) -> TaskRecord: ...

    async def tasks(self, namespace: str | None = None, limit: int = 500) -> Sequence[TaskRecord]:
        """Return the newest Tasks first."""
        ...

    async def edit(self, uid: str, spec: TaskSpec) -> TaskRecord:
        """Replace the spec; what is allowed is the caller's to check, in `activities`.

        Raises:
            Conflict: the Task is closed.
        """
        ...

    async def delete_task(self, namespace: str, name: str) -> None:
        """Forget a closed Task with all its attempts and results.

        Raises:
            NotFound: there is none.
            Conflict: it is not closed.
        """
        ...

    async def bind(self, binding: SoulBinding) -> SoulBinding:
        """Write the binding if there is none, and return the one that is stored.

        Raises:
            Conflict: the Task is closed.
        """
        ...

    async def intend(self, key: AttemptKey, job_name: str, attempt_input: AttemptInput) -> AttemptRecord:
        """Record that a Job is about to be created; again is the same.

        Raises:
            Conflict: the Task is closed: a worker that was given up starts nothing.
        """
        ...

    async def started(self, key: AttemptKey) -> AttemptRecord:
        """Record that the Job exists: from now on the attempt counts.

        The mirrored status of an open Task shows it as running.
        """
        ...

    async def attempts(self, task_uid: str) -> Sequence[AttemptRecord]:
        """Return all attempts in order of iteration and attempt."""
        ...

    async def attempt(self, key: AttemptKey) -> AttemptRecord: ...

    async def input(self, key: AttemptKey) -> AttemptInput: ...

    async def decide(self, key: AttemptKey, outcome: Outcome, usage: Usage | None = None) -> Outcome:
        """Set a failure as the outcome unless one is decided; return the one that counts."""
        ...

    async def report(self, key: AttemptKey, report: Report) -> Outcome:
        """Store a worker's report and decide the outcome by it, in one transaction.

        The same report again is the same outcome.

        Raises:
            Conflict: the attempt was decided otherwise before, or its Task is closed
                without it.
        """
        ...

    async def append_event(self, key: AttemptKey, event: ProgressEvent) -> None:
        """Store a progress event once per sequence number."""
        ...

    async def events(self, key: AttemptKey, after: int = -1, limit: int = 500) -> Sequence[ProgressEvent]: ...

    async def result(self, key: AttemptKey) -> str:
        """Return the answer of a succeeded attempt."""
        ...

    async def progress(self, status: TaskStatus) -> None:
        """Mirror the status of an open Task; ignored once the Task is closed."""
        ...

    async def close(self, status: TaskStatus) -> TaskStatus:
        """Store the final status unless there is one; return the one that counts."""
        ...


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A Job that exists, whatever its phase."""

    spec: JobSpec
    uid: str


class Jobs(Protocol):
    """Starts, adopts, observes and deletes the process of one attempt."""

    async def create(self, spec: JobSpec, environment: Mapping[str, SensitiveText]) -> str:
        """Start the Job, or adopt the one of that name with the same digest.

        A Job that was deleted is fenced: it can never be created again.

        Args:
            spec: what the Job is.
            environment: its whole environment, literal; never stored.

        Returns:
            The Job's uid.

        Raises:
            Refusal: `JobIdentityConflict` if the name is another's or fenced,
                `JobFailed` if its environment cannot be set.  A command that cannot be
                started is a Job that ends.
        """
        ...

    async def observe(self, namespace: str, name: str) -> JobObservation:
        """Say how the Job is now; `Absent` if there is none, or it was deleted before its start.

        A Job that was deleted later may stay observable, as `Ended` or `Lost`.
        """
        ...

    async def delete(self, spec_key: AttemptKey, namespace: str, name: str) -> None:
        """Fence the name, end the Job with grace, and return when it is proven gone.

        Raises:
            Refusal: `JobIdentityConflict` if the Job is not that attempt's.
        """
        ...

    async def retire(self, namespace: str, name: str) -> None:
        """The attempt is decided: let the Job end by itself, then stop it; do not wait."""
        ...

    async def log(self, namespace: str, name: str, limit: int = 65536) -> bytes:
        """Return the last `limit` bytes of the Job's output, whatever bytes they are."""
        ...

    async def records(self) -> Sequence[JobRecord]:
        """Return every Job that exists, for the reaper."""
        ...

    def ended(self) -> AsyncIterator[JobSpec]:
        """Yield each Job that ends; some may be missed, none is made up.

        Jobs that had ended before the iteration began are yielded first.
        """
        ...
