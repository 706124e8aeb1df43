"""Exit codes of the `anima` command and of Anima's processes."""

from enum import IntEnum

from anima.model.errors import AnimaError, Conflict, NotFound, Refusal


class Exit(IntEnum):
    """What an exit status means.  Scripts rely on these numbers."""

    OK = 0
    TASK_FAILED = 1
    """The Task ended Failed or Cancelled."""
    INVALID = 2
    """Wrong usage, or input that was refused."""
    NOT_FOUND = 3
    CONFLICT = 4
    UNAVAILABLE = 5
    """Something needed does not answer, or a port is in use; try again later."""
    INTERRUPTED = 130


def exit_of(error: AnimaError) -> Exit:
    """Return the exit status that tells a script which kind of error it was."""
    match error:
        case Refusal():
            return Exit.INVALID
        case NotFound():
            return Exit.NOT_FOUND
        case Conflict():
            return Exit.CONFLICT
        case _:
            return Exit.UNAVAILABLE
