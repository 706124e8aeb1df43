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


def job_name(task: str, task_uid: str, iteration: int, attempt: int) -> str:
    """Name the Job of one attempt after its cause, at most 63 characters.

    The suffix is kept whole; a long Task name is shortened before it.

    Args:
        task: the Task's name.
        task_uid: the Task's uid; eight hex digits of its hash enter the name.
        iteration: from 0.
        attempt: within the iteration, from 1.
    """
    uid8 = hashlib.sha256(task_uid.encode()).hexdigest()[:8]
    suffix = f"-{uid8}-i{iteration}-a{attempt}"
    return task[: MAX_LABEL - len(suffix)].rstrip("-") + suffix
