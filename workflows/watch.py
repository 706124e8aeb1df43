"""Waiting with an eye on what ends a Task or holds it: cancel, deadline, holds."""

from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from anima.model.reasons import Reason
    from anima.model.task import Phase
    from workflows.holds import Holds
    from workflows.status import StatusBoard


class Stopped(Exception):
    """The Task is to end now, for a reason that is not an outcome."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Watch:
    """Every wait of a Task goes through here, so none outlasts cancel or deadline.

    The whole Task's deadline counts waiting and stands still while suspended.
    """

    def __init__(self, board: StatusBoard) -> None:
        self.holds = Holds()
        self.deadline: timedelta | None = None
        self._board = board
        self._cancelled: str | None = None
        self._submitted_at: datetime | None = None
        self._suspended = timedelta(0)
        self._suspended_since: datetime | None = None
        self._ending = False

    def start(self, submitted_at: datetime) -> None:
        """Start the clock of the deadline."""
        self._submitted_at = submitted_at

    def cancel(self, message: str) -> None:
        """End the Task at its next wait; the first word counts."""
        self._cancelled = self._cancelled or message

    def end(self) -> None:
        """From now on nothing interrupts: the end itself must be stored."""
        self._ending = True

    @property
    def ending(self) -> bool:
        return self._ending

    @property
    def _stopping(self) -> bool:
        return self._cancelled is not None and not self._ending

    async def wait(self, ready: Callable[[], bool], limit: timedelta | None, summary: str | None = None) -> None:
        """Wait until ready, or for `limit`; while ending, nothing else counts.

        Raises:
            Stopped: on `Cancelled` and `DeadlineExceeded`.
        """
        ends_at = self._ends_at()
        left = max(ends_at - workflow.now(), timedelta(0)) if ends_at else None
        bound = min((span for span in (limit, left) if span is not None), default=None)
        try:
            if bound is None or bound > timedelta(0):
                await workflow.wait_condition(lambda: ready() or self._stopping, timeout=bound, timeout_summary=summary)
        except TimeoutError:
            pass
        if self._stopping:
            raise Stopped(Reason.CANCELLED, self._cancelled or "")
        if ends_at and workflow.now() >= ends_at:
            raise Stopped(Reason.DEADLINE_EXCEEDED, f"the Task did not end within {self.deadline} (spec.deadline)")

    async def pause(self, delay: timedelta) -> None:
        """Sleep between tries of a step; while ending, whatever happens."""
        if self._ending:
            await workflow.sleep(delay)
        else:
            await self.wait(lambda: False, delay, "another try")

    async def pass_holds(self) -> None:
        """Return once nothing holds the Task; show it as suspended until then."""
        if not self.holds:
            return
        self._suspended_since = workflow.now()
        while self.holds:
            conditions = self._board.condition("Suspended", True, "Held", str(self.holds))
            self._board.change(phase=Phase.SUSPENDED, conditions=conditions, waits_for=self.holds.release_by())
            held = self.holds.names()
            await self.wait(lambda: self.holds.names() != held, None)  # noqa: B023 (awaited in this turn)
        self._suspended += workflow.now() - self._suspended_since
        self._suspended_since = None
        self._board.change(phase=Phase.PENDING, conditions=self._board.condition("Suspended", False))

    def _ends_at(self) -> datetime | None:
        suspended = self._suspended_since is not None
        if self._ending or suspended or self.deadline is None or self._submitted_at is None:
            return None
        return self._submitted_at + self.deadline + self._suspended
