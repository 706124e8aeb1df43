"""Names: DNS labels for objects, and names derived from a side effect's cause."""

import hashlib
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

MAX_LABEL = 63
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def check_label(name: str) -> str:
    """Return `name` if it is a DNS label of at most 63 characters.

    Raises:
        ValueError: with the fault and the remedy as its two arguments.
    """
    if not name or len(name) > MAX_LABEL:
        raise ValueError("must have 1 to 63 characters", "choose a shorter name")
    if not set(name) <= _ALLOWED or name[0] == "-" or name[-1] == "-":
        raise ValueError(
            "must be a DNS label",
            "use lowercase letters, digits and hyphens, and begin and end with a letter or digit",
        )
    return name


Name = Annotated[
    str,
    AfterValidator(check_label),
    WithJsonSchema({"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": MAX_LABEL}),
]
"""A DNS label of at most 63 characters: the same rule locally and in a cluster."""


def workflow_id(namespace: str, task: str) -> str:
    """Return the id of the workflow that runs a Task."""
    return f"task/{namespace}/{task}"


def session_workflow_id(namespace: str, session: str) -> str:
    """Return the id of the workflow that hands a Session from Task to Task."""
    return f"session/{namespace}/{session}"


def conversation_workflow_id(namespace: str, conversation: str) -> str:
    """Return the id of the workflow that makes Tasks of a conversation's messages."""
    return f"conversation/{namespace}/{conversation}"


def names_in(workflow_id: str, prefix: str) -> tuple[str, str] | None:
    """Read namespace and name back from a workflow's id; none if it is not ``prefix/namespace/name``."""
    found, _, rest = workflow_id.partition("/")
    namespace, _, name = rest.partition("/")
    try:
        return (check_label(namespace), check_label(name)) if found == prefix else None
    except ValueError:
        return None


def message_task(conversation: str, session_uid: str, number: int) -> str:
    """Name the Task of one message of a conversation, at most 63 characters.

    Args:
        conversation: its name, shortened if need be.
        session_uid: of its Session; a conversation that is deleted and begun again has another.
        number: of the message, from 1.
    """
    return _suffixed(conversation, f"-{_short(session_uid)}-m{number}")


def job_name(task: str, task_uid: str, iteration: int, attempt: int) -> str:
    """Name the Job of one attempt after its cause, at most 63 characters.

    The suffix is kept whole; a long Task name is shortened before it.

    Args:
        task: the Task's name.
        task_uid: the Task's uid; eight hex digits of its hash enter the name.
        iteration: from 0.
        attempt: within the iteration, from 1.
    """
    return _suffixed(task, f"-{_short(task_uid)}-i{iteration}-a{attempt}")


def _short(uid: str) -> str:
    return hashlib.sha256(uid.encode()).hexdigest()[:8]


def _suffixed(name: str, suffix: str) -> str:
    return name[: MAX_LABEL - len(suffix)].rstrip("-") + suffix
