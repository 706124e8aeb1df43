"""The shapes that the gateway and its clients share, besides the resources."""

from typing import Annotated

from pydantic import Field

from anima.model.attempts import ProgressEvent
from anima.model.base import Int, Model
from anima.model.binding import SoulBinding
from anima.model.digests import Digest
from anima.model.names import Name
from anima.model.reasons import Reason
from anima.model.session import Holder, Identity, Owner, SessionRecord
from anima.model.task import TaskSpec

DIGEST_HEADER = "Anima-Digest"
"""The digest of a result's exact bytes."""
EVENT_STREAM = "text/event-stream"
END_EVENT = "end"
"""The last event of a stream: nothing follows."""
ANSWER_EVENT = "answer"
"""The event of a message's stream that brings its answer, a `SessionRecord`."""
IDEMPOTENCY_HEADER = "Idempotency-Key"
"""Of a message: sent again with the same key, it is the same message."""


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


class AttemptProgress(ProgressEvent):
    """A progress event in the stream of a message, whose Task may need several attempts."""

    iteration: Int
    attempt: Int


class MessagePage(Model):
    """Messages of a Session, in order of their sequence."""

    items: list[SessionRecord]


class AgentVerdict(Model):
    """Whether a Session would take a Task of an Agent, as the Agent is now.

    It is for a Task that brings no system prompt of its own and appends its turn; in a
    conversation, for a message to the Agent.
    """

    agent: Name
    revision: Digest | None = None
    """None without a soul, and for an Agent that cannot be resolved."""
    soul_digest: Digest | None = None
    accepted: bool
    reason: Annotated[Reason | None, Field(strict=False)] = None
    message: str = ""


class SessionExplanation(Model):
    """What a Session is pinned to, by whom, and what it would refuse."""

    namespace: Name
    name: Name
    owner: Annotated[Owner | None, Field(strict=False)] = None
    messages: Int = 0
    has_history: bool
    """It holds messages that are not attested as establishing nothing."""
    identity: Identity | None = None
    revision: Digest | None = None
    """The digest of the identity; none for absence, and without an identity."""
    holder: Holder | None = None
    waiting: Int = 0
    agents: list[AgentVerdict]
    """Of the Session's namespace, by name."""


class TasksInUse(Model):
    """The Tasks of one revision."""

    open: Annotated[list[Name], Field(default_factory=list)]
    ended: Int = 0


class RevisionInUse(Model):
    """One revision, with all that runs, ran or goes on under it; without a digest, no soul."""

    digest: Digest | None = None
    soul_digest: Digest | None = None
    agent_uid: Annotated[str | None, Field(alias="agentUID")] = None
    agent_generation: Int | None = None
    agents: Annotated[list[Name], Field(default_factory=list)]
    """Those that have it now."""
    tasks: TasksInUse
    """Those that are bound to it; without a soul, those that have started."""
    sessions: Annotated[list[Name], Field(default_factory=list)]
    """Those that are pinned to it."""


class UnresolvedAgent(Model):
    """An Agent that has no revision now, and why."""

    agent: Name
    reason: Annotated[Reason, Field(strict=False)]
    message: str


class RevisionsInUse(Model):
    """Every revision in use in a namespace."""

    items: list[RevisionInUse]
    unresolved: Annotated[list[UnresolvedAgent], Field(default_factory=list)]
