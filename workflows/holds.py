"""What keeps a Task from its next Job: two independent holds."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from anima.model.plain import parse_json

_HINT_CHARACTERS = 200


class Holder(StrEnum):
    """Who holds: the spec's `suspend`, or an operator's signal."""

    SPEC = "spec"
    OPERATOR = "operator"


_RELEASED_BY = {
    Holder.SPEC: "an edit that sets spec.suspend to false",
    Holder.OPERATOR: "resume",
}


class Holds:
    """The holds in force.  `resume` clears the operator's and leaves the spec's."""

    def __init__(self) -> None:
        self._since: dict[Holder, tuple[datetime, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._since)

    def place(self, holder: Holder, now: datetime, hint: RawValue | None = None) -> None:
        """Hold; a second hold by the same holder keeps the first one's time."""
        self._since.setdefault(holder, (now, hint_text(hint)))

    def release(self, holder: Holder) -> None:
        """Let go, if this holder holds."""
        self._since.pop(holder, None)

    def names(self) -> list[str]:
        """Name those that hold."""
        return [str(holder) for holder in sorted(self._since)]

    def release_by(self) -> str:
        """Tell what has to happen before nothing holds."""
        return " and ".join(_RELEASED_BY[holder] for holder in sorted(self._since))

    def __str__(self) -> str:
        return "; ".join(
            f"held by {holder} since {since.isoformat(timespec='seconds')}{f' ({hint})' if hint else ''}"
            for holder, (since, hint) in sorted(self._since.items())
        )


def hint_text(hint: RawValue | None) -> str:
    """Read the optional ``{by, reason}`` of a signal: a hint, not an identity.

    It comes raw, since a hint that cannot be read must not cost the signal.
    """
    said = _json(hint)
    if not isinstance(said, dict):
        return ""
    parts = [said.get("by"), said.get("reason")]
    return ": ".join(part for part in parts if isinstance(part, str) and part.isprintable())[:_HINT_CHARACTERS]


def _json(hint: object) -> Any:
    # The SDK decodes it after all where more than one came.
    if not isinstance(hint, RawValue):
        return hint
    try:
        return parse_json(hint.payload.data)
    except ValueError:
        return None
