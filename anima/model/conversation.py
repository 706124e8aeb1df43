"""Conversation: a Session that the gateway owns, fed one user message at a time.

Source of the rules: agent-soul, "Revisions, retries, and Sessions".
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from anima.model.base import Int, Model
from anima.model.errors import Refusal
from anima.model.manifest import parse_task
from anima.model.names import Name
from anima.model.problems import problems_of, summary
from anima.model.reasons import Reason
from anima.model.resources import Reference
from anima.model.session import MAX_MESSAGE_BYTES, SessionRecord, SessionStatus
from anima.model.task import MAX_SPEC_BYTES, Phase, SessionReference, Task, TaskSpec, TaskStatus

# Of a Task that answers a message: all but the message, with the longest names.
_REST_BYTES = 1024


def _content(text: str) -> str:
    if not text.strip():
        raise ValueError("is blank", "write what the Agent is to answer")
    if "\0" in text:
        raise ValueError("has a NUL character", "remove it")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        # Out of the handler: what it would add quotes the text.
        size = -1
    if size < 0:
        raise ValueError("is not valid Unicode: it has a lone surrogate", "write the text as UTF-8")
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(f"has {size} bytes, the limit is {MAX_MESSAGE_BYTES}", "shorten it")
    # Quotes and line feeds are two bytes there, other control characters six.
    size, limit = len(json.dumps(text, ensure_ascii=False).encode()), MAX_SPEC_BYTES - _REST_BYTES
    if size > limit:
        raise ValueError(f"has {size} bytes as JSON, the limit is {limit}", "shorten it")
    return text


class NewMessage(Model):
    """What a user says, and to whom: the body of a post."""

    content: Annotated[str, AfterValidator(_content)]
    agent_ref: Reference | None = None
    """Who is to answer; none for the Agent of the message before."""


def parse_message(data: Any) -> NewMessage:
    """Validate what a user says, from plain data.

    Raises:
        Refusal: `RequestRefused`, with every problem.
    """
    try:
        return NewMessage.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = problems_of(error, NewMessage)
    raise Refusal(Reason.REQUEST_REFUSED, f"the message is not valid: {summary(problems)}", problems)


class PostedMessage(Model):
    """A user's message: it waits, becomes a Task, and is answered once."""

    number: Annotated[Int, Field(ge=1)]
    """In order of arrival."""
    task: Name
    """The Task that answers it, named after the message."""
    agent: Name
    content: str = ""
    """Empty once it is answered: it is in the transcript then."""
    posted_at: Annotated[datetime, Field(strict=False)]
    answer: Int | None = None
    """The sequence of the answer's record; none while it is pending."""
    pending_before: Int = 0
    """How many messages have to be answered first."""


class Exchange(Model):
    """A message and its answer, once there is one; retention may have taken that since."""

    message: PostedMessage
    answer: SessionRecord | None = None


class ConversationStatus(Model):
    """A conversation as people see it: who answers, what waits, and its Session."""

    namespace: Name
    name: Name
    agent: Name | None = None
    """Who is asked if a message names nobody."""
    pending: Annotated[list[PostedMessage], Field(default_factory=list)]
    session: SessionStatus


class Attestation(Model):
    """How a message ended without an answer, and what that establishes."""

    task_uid: Annotated[str | None, Field(alias="taskUID")]
    """None if there never was a Task of this message."""
    task: Name
    reason: Annotated[Reason, Field(strict=False)]
    message: str
    unbound: bool
    """Before binding and before any Job, by evidence that was read uncached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a message's Task that has ended, each part of it read anew.

    Args:
        type: the Task's.
        status: as it was stored at the end.
        bound: the Ledger has a binding of it.
        attempts: rows in the Ledger, of Jobs that exist or were about to.
        jobs: Jobs that belong to its uid, whatever the Ledger says.
    """

    type: str
    status: TaskStatus
    bound: bool
    attempts: int
    jobs: int


def message_task_of(namespace: str, conversation: str, message: PostedMessage) -> Task:
    """Return the Task that answers a message.

    Raises:
        Refusal: `TaskInvalid`; what `NewMessage` accepts is accepted here.
    """
    spec = {
        "type": "ai",
        "agentRef": {"name": message.agent},
        "prompt": message.content,
        "sessionRef": {"name": conversation},
    }
    return parse_task({"spec": spec}, namespace, message.task)


def answers_for(conversation: str, spec: TaskSpec) -> bool:
    """Tell whether a Task that has a message's name is the message's own.

    By its place in the Session, which is frozen from admission on: the rest of a Task
    without a soul may be edited.
    """
    return spec.session_ref == SessionReference(name=conversation)


def attest(evidence: Evidence) -> Attestation:
    """Say how a message's Task ended, and whether that leaves the Session's identity open.

    It does so only if nothing at all speaks for a binding or an execution.
    """
    status = evidence.status
    return Attestation(
        task_uid=status.uid,
        task=status.name,
        reason=status.reason or Reason.JOB_FAILED,
        message=status.message,
        unbound=_is_unbound(evidence),
    )


def attest_never_begun(message: PostedMessage, refusal: Refusal) -> Attestation:
    """Say why a message never became a Task: its spec was refused, or its name is another Task's.

    Nothing of it ran, so it establishes nothing.
    """
    return Attestation(task_uid=None, task=message.task, reason=refusal.reason, message=refusal.message, unbound=True)


def _is_unbound(evidence: Evidence) -> bool:
    status = evidence.status
    signs_of_life = (
        evidence.bound or status.soul_binding,
        evidence.attempts or evidence.jobs,
        status.attempt or status.total_attempts or status.iteration,
        status.start_time,
        status.job_name,
        status.result_ref,
    )
    ended_without = status.phase in (Phase.FAILED, Phase.CANCELLED)
    return evidence.type == "ai" and ended_without and bool(status.uid) and not any(signs_of_life)
