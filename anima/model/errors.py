"""Two kinds of failure, told apart by type and never by message.

    AnimaError
    ├── Refusal       permanent: a Task ends Failed with its reason
    ├── Unavailable   operational: retried without limit, uses up no attempt
    ├── Conflict      a stale or contradicting write (HTTP 409)
    │   └── LockLost  the Session's lock is another's by now; ask for it again
    └── NotFound      no such object (HTTP 404)

Their messages are shown to people, so they never carry persona text.
"""

from collections.abc import Sequence

from anima.model.problems import Problem
from anima.model.reasons import Reason


class AnimaError(Exception):
    """The root of every error that Anima raises on purpose."""


class Refusal(AnimaError):
    """A permanent failure.

    Args:
        reason: the cause, from the one enum.
        message: what happened, to which object and field, and why.
        problems: every single fault, where there are several.
    """

    def __init__(self, reason: Reason, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.problems = tuple(problems)


class Unavailable(AnimaError):
    """Something outside could not be reached or did not answer; try again."""


class Conflict(AnimaError):
    """The object has changed, or exists with other content."""


class LockLost(Conflict):
    """A Session was written to under a lock that is another Task's, or nobody's, by now."""


class NotFound(AnimaError):
    """There is no object of that kind and name."""
