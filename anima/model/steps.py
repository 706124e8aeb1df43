"""The typed input and output of every activity of the Task workflow."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from anima.model.attempts import AttemptKey, Outcome
from anima.model.base import Int, Model
from anima.model.binding import SoulBinding
from anima.model.digests import Digest
from anima.model.names import Name
from anima.model.reasons import Reason
from anima.model.session import SessionLock
from anima.model.task import RetryPolicy, TaskSpec, TaskStatus
from anima.model.units import Duration


class Admit(Model):
    """Claim (namespace, name) in the Ledger for this spec."""

    namespace: Name
    name: Name
    task_uid: str
    workflow_id: str
    spec: TaskSpec
    now: Annotated[datetime, Field(strict=False)]
    """The workflow's time: the moment of submission, unless one is recorded."""


class Admitted(Model):
    """The Task is in the Ledger; `closed` is set if it already ended."""

    closed: TaskStatus | None = None
    progress: TaskStatus | None = None
    """How far the Task has come, if this is not its first run: after a Reset."""
    jobs_queue: str | None = None
    """The task queue of Job activities; none if they are quick and local."""
    submitted_at: Annotated[datetime, Field(strict=False)]
    check_interval: Duration
    """How often to look at a Job that says nothing."""


class Edit(Model):
    """Replace a Task's spec as far as its binding allows."""

    task_uid: str
    spec: TaskSpec


class Bind(Model):
    """Resolve the Agent for the next attempt, and bind or compare."""

    key: AttemptKey


class AttemptPlan(Model):
    """What the next attempt is to be, from the spec that counts."""

    binding: SoulBinding | None = None
    job_name: Name
    prompt_digest: Digest
    decided: Outcome | None = None
    """Set if this attempt was already decided, before a Reset for example."""
    total_attempts: Int
    """Attempts of this Task that have started, over all iterations."""
    timeout: Duration | None = None
    deadline: Duration | None = None
    retry_policy: RetryPolicy


class CreateJob(Model):
    """Create the Job of an attempt, or adopt the one that is provably its own."""

    key: AttemptKey
    job_name: Name
    prompt_digest: Digest
    lock: SessionLock | None = None
    """Of the Task's Session, if it has one."""


class JobCreated(Model):
    """The Job exists; or, if `stale`, the Agent changed first and it does not."""

    stale: bool = False


class DeleteJob(Model):
    """Fence and delete a Job; return when it is proven gone."""

    key: AttemptKey
    job_name: Name


class Settle(Model):
    """Decide an attempt's outcome if it can be decided now."""

    key: AttemptKey
    job_name: Name
    verdict: Annotated[Reason | None, Field(strict=False)] = None
    """The outcome to set if none was decided yet; none only looks."""
    message: str = ""


class Settled(Model):
    """The decided outcome; none while the Job is still at work."""

    outcome: Outcome | None = None


class Close(Model):
    """Store a Task's final status; the first to do so wins."""

    status: TaskStatus


class AcquireSession(Model):
    """Ask for the Session of a Task; the answer is a `Place`."""

    task_uid: str


class PinSession(Model):
    """Check a Task's revision against its Session, and pin it where that is due."""

    task_uid: str
    lock: SessionLock


class SessionWritten(Model):
    """A pin or a turn is stored; or, if `lost`, the lock is to be asked for again."""

    lost: bool = False


class AppendTurn(Model):
    """Store the turn of a Task's iteration: its prompt and its accepted answer."""

    key: AttemptKey
    lock: SessionLock


class LeaveSession(Model):
    """Release a Task's Session, or leave its queue."""

    task_uid: str


class DriveSession(Model):
    """Hand a Session on (`session.grant`), or look after its holder (`session.look`).

    The answer is the `Queue`.
    """

    namespace: Name
    session: Name


class DriveConversation(Model):
    """Go on with a conversation: what is next, or what became of a message's Task."""

    namespace: Name
    conversation: Name


class MessageState(Model):
    """The message whose turn it is; none if all are answered."""

    number: Int | None = None
    task: Name | None = None
    pending: Int = 0


class ProjectMessage(Model):
    """Store what became of a message, if its Task has ended."""

    namespace: Name
    conversation: Name
    number: Int


class Projected(Model):
    """Whether the message is answered now, or failed and said so; else its Task goes on."""

    done: bool
