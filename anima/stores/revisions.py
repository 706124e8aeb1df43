"""Which Tasks and Sessions are under which revision: a view across Ledger and Sessions.

Both lists go page by page, in order of names, so that nothing is left out of a namespace
however much there is.  Methods raise as those in `anima.stores.ports` do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from anima.model.binding import Revision


@dataclass(frozen=True, slots=True)
class TaskUse:
    """A Task, and the revision that it is bound to; none if it has started without a soul."""

    name: str
    closed: bool
    revision: Revision | None


@dataclass(frozen=True, slots=True)
class SessionUse:
    """A Session, and the revision that it is pinned to; none for absence."""

    name: str
    revision: Revision | None


class RevisionUses(Protocol):
    """What is under which revision."""

    async def tasks(self, namespace: str, after: str = "", limit: int = 1000) -> Sequence[TaskUse]:
        """Return Tasks that are bound, or have started without a soul, by name.

        Args:
            namespace: of the Tasks.
            after: only names that follow it.
            limit: how many at most.
        """
        ...

    async def sessions(self, namespace: str, after: str = "", limit: int = 1000) -> Sequence[SessionUse]:
        """Return Sessions that have an identity, by name; the arguments are those of `tasks`."""
        ...
