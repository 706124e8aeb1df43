"""Names that other programs rely on: changing one breaks running Tasks.

Workflow and signal names are typed by operators; activity names and search
attributes are written into histories.
"""

from enum import StrEnum

TASK_QUEUE = "anima"
TASK_WORKFLOW = "Task"
SESSION_WORKFLOW = "Session"
CONVERSATION_WORKFLOW = "Conversation"


class Signal(StrEnum):
    """Signals of our workflows.  The first three are a Task's and need no argument."""

    SUSPEND = "suspend"
    RESUME = "resume"
    CANCEL = "cancel"
    NUDGE = "nudge"
    """Something about the current attempt may have changed; look again."""
    GRANTED = "granted"
    """To a Task: the Session may be yours now; ask for it again."""
    WAKE = "wake"
    """To a Session or a conversation: something in the database may have changed."""


class Query(StrEnum):
    STATUS = "status"
    BINDING = "binding"


class Update(StrEnum):
    EDIT = "edit"


class Step(StrEnum):
    """The activities of our workflows."""

    ADMIT = "task.admit"
    EDIT = "task.edit"
    CLOSE = "task.close"
    BIND = "soul.bind"
    CREATE = "job.create"
    DELETE = "job.delete"
    SETTLE = "attempt.settle"
    ACQUIRE = "session.acquire"
    PIN = "session.pin"
    APPEND = "session.append"
    LEAVE = "session.leave"
    GRANT = "session.grant"
    LOOK = "session.look"
    NEXT_MESSAGE = "conversation.next"
    START_MESSAGE = "conversation.start"
    PROJECT = "conversation.project"


class SearchAttribute(StrEnum):
    """The one product-wide list; a server allows ten Keyword and three Int."""

    NAMESPACE = "AnimaNamespace"
    AGENT = "AnimaAgent"
    PHASE = "AnimaPhase"
    REASON = "AnimaReason"
    SESSION = "AnimaSession"
    SOUL_DIGEST = "AnimaSoulDigest"
    PARENT = "AnimaParent"
    RUNTIME = "AnimaRuntime"
    ATTEMPT = "AnimaAttempt"
    ITERATION = "AnimaIteration"


INT_ATTRIBUTES = frozenset({SearchAttribute.ATTEMPT, SearchAttribute.ITERATION})


class JobVariable(StrEnum):
    """The environment of a Job.  Users cannot set names with this prefix."""

    GATEWAY = "ANIMA_GATEWAY_URL"
    ATTEMPT = "ANIMA_ATTEMPT"
    TOKEN = "ANIMA_ATTEMPT_TOKEN"
    SYSTEM_PROMPT = "ANIMA_SYSTEM_PROMPT"
    PROMPT_DIGEST = "ANIMA_PROMPT_DIGEST"
    ENVELOPE_VERSION = "ANIMA_ENVELOPE_VERSION"
    BINDING_SCHEMA = "ANIMA_BINDING_SCHEMA"
    PROVIDER_KEY = "ANIMA_PROVIDER_KEY"


BINDING_SCHEMA = "1"
"""The contract between orchestrator and worker; a worker refuses any other."""
