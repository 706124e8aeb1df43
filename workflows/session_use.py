"""A Task's use of its Session: the lock from before its first binding to its end."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from anima.model.attempts import AttemptKey
    from anima.model.session import Place, SessionLock
    from anima.model.steps import AcquireSession, AppendTurn, LeaveSession, PinSession, SessionWritten
    from anima.model.task import Phase, SessionReference
    from anima.model.wire import Step
    from workflows.status import StatusBoard
    from workflows.steps import Steps
    from workflows.watch import Watch


class SessionUse:
    """Asks for the Session, pins it, writes the turn, and leaves it.

    Without a reference each of these is nothing.  A lock that turns out to be another's
    is asked for again: the Task takes its place at the end of the queue.

    Args:
        reference: the Session that the Task was admitted with.
        steps: runs activities.
        board: shows what the Task waits for.
        watch: waits, and stops the Task when it must end.
    """

    def __init__(self, reference: SessionReference | None, steps: Steps, board: StatusBoard, watch: Watch) -> None:
        self._reference = reference
        self._steps = steps
        self._board = board
        self._watch = watch
        self._granted = False
        self.lock: SessionLock | None = None

    def granted(self) -> None:
        """Ask again, soon."""
        self._granted = True

    async def acquire(self) -> None:
        """Return with the lock; show the Task as queued until then.

        Raises:
            Refusal: `SessionOwned`.
            Stopped: cancel or deadline.
        """
        while self._reference is not None and self.lock is None:
            self._granted = False
            place = await self._steps.local(Step.ACQUIRE, AcquireSession(task_uid=self._task_uid), Place)
            self.lock = place.lock
            if place.lock is None:
                queued = _queued(self._reference.name, place)
                self._board.change(phase=Phase.QUEUED, message=queued, waits_for=queued)
                await self._watch.wait(lambda: self._granted, None)
            else:
                self._board.note(message="")

    async def pin(self) -> None:
        """Check the Task's revision against the Session, and pin it where that is due.

        Raises:
            Refusal: the Session is another revision's, or cannot be this one's.
        """
        while True:
            await self.acquire()
            if self.lock is None:
                return
            request = PinSession(task_uid=self._task_uid, lock=self.lock)
            if not await self._lost(Step.PIN, request):
                return

    async def append(self, key: AttemptKey) -> None:
        """Store the turn of the attempt that answered; nothing of the Task ends before."""
        while True:
            await self.acquire()
            if self.lock is None:
                return
            if not await self._lost(Step.APPEND, AppendTurn(key=key, lock=self.lock)):
                return

    async def leave(self) -> None:
        """Let the next Task have the Session."""
        if self._reference is not None:
            await self._steps.local(Step.LEAVE, LeaveSession(task_uid=self._task_uid), type(None))

    async def _lost(self, step: Step, request: PinSession | AppendTurn) -> bool:
        written = await self._steps.local(step, request, SessionWritten)
        if written.lost:
            self.lock = None
        return written.lost

    @property
    def _task_uid(self) -> str:
        return self._board.status.uid


def _queued(session: str, place: Place) -> str:
    before = f"{place.position} before this one" if place.position != 1 else "this one is next"
    holder = f"held by Task {place.holder}, " if place.holder else ""
    return f"Session {session}: {holder}{before}"
