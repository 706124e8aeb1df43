"""Session: a conversation that Tasks continue, pinned to one revision for ever.

Source of the rules: agent-soul, "Revisions, retries, and Sessions".
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from anima.model.base import Int, Model
from anima.model.binding import Revision
from anima.model.digests import Digest
from anima.model.errors import Refusal
from anima.model.names import Name
from anima.model.reasons import Reason

MAX_CONTENT_BYTES = 1024 * 1024
"""Of one stored message; `anima.model.transcript.storable` shortens what is longer."""
MAX_PENDING = 100
"""Messages of one conversation that wait for their Task."""
MAX_MESSAGE_BYTES = 128 * 1024
"""Of one user message in a conversation: it becomes the prompt of a Task."""


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Owner(StrEnum):
    """Whose a Session is, from its first use on; an imported one is nobody's yet."""

    TASKS = "tasks"
    CONVERSATION = "conversation"


class ToolCall(Model):
    """What an assistant asked of a tool; `arguments` is JSON text."""

    id: Annotated[str, Field(min_length=1, max_length=256)]
    name: Annotated[str, Field(min_length=1, max_length=256)]
    arguments: str = "{}"


class Message(Model):
    """One message, as a model is given it."""

    role: Annotated[Role, Field(strict=False)]
    content: str = ""
    tool_calls: Annotated[list[ToolCall], Field(default_factory=list)]
    """Of an assistant."""
    tool_call_id: Annotated[str, Field(max_length=256)] | None = None
    """Of a tool: the call that it answers."""


class SessionRecord(Message):
    """A stored message.  The identity record is no message and never shown as one."""

    sequence: Annotated[Int, Field(ge=1)]
    task_uid: Annotated[str | None, Field(alias="taskUID")] = None
    iteration: Int | None = None
    revision: Digest | None = None
    """The revision under which it was made; none without a soul, and for what was imported."""
    reason: Annotated[Reason | None, Field(strict=False)] = None
    """Why there is no answer: set on the assistant's record of a failed turn."""
    unbound: bool = False
    """The failure is attested as before binding and before any Job: it establishes nothing."""
    created_at: Annotated[datetime, Field(strict=False)]


class Identity(Model):
    """What a Session is pinned to: a revision, or the explicit absence of a soul."""

    revision: Revision | None = None
    task_uid: Annotated[str | None, Field(alias="taskUID")] = None
    """The Task that pinned it; none if retention did, for history without identity."""
    task: Name | None = None
    pinned_at: Annotated[datetime, Field(strict=False)]

    @property
    def digest(self) -> str | None:
        """The revision's digest; none for absence."""
        return self.revision.session_digest if self.revision else None


class Claimant(Model):
    """A Task that wants a Session, or has it."""

    task_uid: Annotated[str, Field(alias="taskUID")]
    task: Name
    workflow_id: str


class SessionLock(Model):
    """A granted lock.  Every pin and turn presents it; a token is given out once."""

    session_uid: Annotated[str, Field(alias="sessionUID")]
    namespace: Name
    session: Name
    task_uid: Annotated[str, Field(alias="taskUID")]
    token: Annotated[Int, Field(ge=1)]


class Holder(Claimant):
    """The Task that has the lock."""

    token: Int
    since: Annotated[datetime, Field(strict=False)]
    taken: bool
    """The Task knows: it has asked since the lock is its own."""


class Waiter(Claimant):
    """A Task in the queue."""

    asked_at: Annotated[datetime, Field(strict=False)]


class Queue(Model):
    """Who has a Session, and who is next."""

    session_uid: Annotated[str | None, Field(alias="sessionUID")] = None
    """None if there is no such Session."""
    owner: Annotated[Owner | None, Field(strict=False)] = None
    holder: Holder | None = None
    waiting: Int = 0
    next: Annotated[list[Waiter], Field(default_factory=list)]
    """The first of those that wait, in order."""


class Place(Model):
    """What a Task gets that asks for a Session: the lock, or a place in the queue."""

    lock: SessionLock | None = None
    owner: Annotated[Owner, Field(strict=False)]
    position: Int = 0
    """How many have to go before, the holder included; 0 with the lock."""
    holder: Name | None = None
    """The Task that has it."""


class SessionStatus(Model):
    """A Session as people see it; no content."""

    namespace: Name
    name: Name
    uid: str
    owner: Annotated[Owner | None, Field(strict=False)] = None
    messages: Int = 0
    identity: Identity | None = None
    queue: Queue
    created_at: Annotated[datetime, Field(strict=False)]
    updated_at: Annotated[datetime, Field(strict=False)]


class Turn(Model):
    """A user's message and its answer, stored together or not at all."""

    task_uid: Annotated[str, Field(alias="taskUID")]
    task: Name
    iteration: Int = 0
    prompt: str
    answer: str
    revision: Revision | None = None


def check_revision(
    session: str, identity: Identity | None, *, has_history: bool, revision: Revision | None, append: bool
) -> bool:
    """Decide whether a Task of this revision may use a Session; tell whether it establishes the identity.

    Args:
        session: ``namespace/name``, for messages.
        identity: what the Session is pinned to, if anything.
        has_history: it holds messages that are not attested as establishing nothing.
        revision: the Task's; none without a soul.
        append: the Task will append its turn.

    Raises:
        Refusal: `SessionSoulMismatch`, `SessionUnpinnedHistory` or `SessionMustAppend`.
    """
    if identity is not None:
        _check_same(session, identity, revision)
        return False
    if revision is not None and has_history:
        raise Refusal(
            Reason.SESSION_UNPINNED_HISTORY,
            f"Session {session} has history without an identity, so no soul can join it",
        )
    if revision is not None and not append:
        raise Refusal(
            Reason.SESSION_MUST_APPEND,
            f"Session {session} is new to souls, and a Task with spec.sessionRef.append false cannot begin it",
        )
    return True


def _check_same(session: str, identity: Identity, revision: Revision | None) -> None:
    pinned = identity.digest
    mine = revision.session_digest if revision else None
    if pinned == mine:
        return
    by = f" by Task {identity.task}" if identity.task else ""
    if pinned is None:
        message = f"Session {session} was pinned{by} to having no soul, and this Task's Agent has one"
    elif identity.revision is None or revision is None:
        message = f"Session {session} is pinned{by} to revision {pinned}, and this Task's Agent has no soul"
    else:
        message = (
            f"Session {session} is pinned{by} to revision {pinned}, this Task's is {mine}: "
            f"{difference(identity.revision, revision)}"
        )
    raise Refusal(Reason.SESSION_SOUL_MISMATCH, message)


def difference(pinned: Revision, other: Revision) -> str:
    """Say in what two revisions differ: identities, generations and digests only."""
    names = {
        "agent_uid": "the Agent's uid",
        "agent_generation": "the Agent's generation",
        "soul_digest": "the soul's digest",
        "prompt_digest": "the prompt's digest",
        "envelope_version": "the envelope's version",
    }
    return "; ".join(
        f"{name} was {getattr(pinned, field)} and is {getattr(other, field)}"
        for field, name in names.items()
        if getattr(pinned, field) != getattr(other, field)
    )
