"""What keeps a Task from its next Job: two independent holds."""

from datetime import datetime
from enum import StrEnum
from typing import Any

_HINT_CHARACTERS = 200


class Holder(StrEnum):
    """Who holds: the spec's `suspend`, or an operator's signal."""

    SPEC = "spec"
    OPERATOR = "operator"


class Holds:
    """The holds in force.  `resume` clears the operator's and leaves the spec's."""

    def __init__(self) -> None:
        self._since: dict[Holder, tuple[datetime, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._since)

    def place(self, holder: Holder, now: datetime, hint: Any = None) -> None:
        """Hold; a second hold by the same holder keeps the first one's time."""
        self._since.setdefault(holder, (now, hint_text(hint)))

    def release(self, holder: Holder) -> None:
        """Let go, if this holder holds."""
        self._since.pop(holder, None)

    def names(self) -> list[str]:
        """Name those that hold."""
        return [str(holder) for holder in sorted(self._since)]

    def __str__(self) -> str:
        return "; ".join(
            f"held by {holder} since {since.isoformat(timespec='seconds')}{f' ({hint})' if hint else ''}"
            for holder, (since, hint) in sorted(self._since.items())
        )


def hint_text(hint: Any) -> str:
    """Read the optional ``{by, reason}`` of a signal: a hint, not an identity."""
    if not isinstance(hint, dict):
        return ""
    parts = [hint.get("by"), hint.get("reason")]
    return ": ".join(part for part in parts if isinstance(part, str) and part.isprintable())[:_HINT_CHARACTERS]
