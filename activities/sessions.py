"""A Task's use of its Session, and handing a Session from Task to Task.

Source of the rules: agent-soul, "Revisions, retries, and Sessions".
"""

from temporalio import activity

from activities.drivers import Drivers
from activities.orphans import Orphans
from activities.turns import Turns, claimant, revision_of, session_of
from anima.model.errors import LockLost, NotFound, Refusal
from anima.model.reasons import Reason
from anima.model.session import Holder, Place, Queue
from anima.model.steps import AcquireSession, AppendTurn, DriveSession, LeaveSession, PinSession, SessionWritten
from anima.model.wire import Step
from anima.stores.ports import Ledger
from anima.stores.sessions import SessionKey, Sessions


class SessionActivities:
    """`session.acquire`, `pin`, `append` and `leave` of a Task; `grant` and `look` of the Session.

    Args:
        ledger: where Tasks are.
        sessions: where transcripts, locks and queues are.
        turns: writes what a Task leaves.
        orphans: ends a holder whose workflow is gone.
        drivers: wakes workflows.
    """

    def __init__(self, ledger: Ledger, sessions: Sessions, turns: Turns, orphans: Orphans, drivers: Drivers) -> None:
        self._ledger = ledger
        self._sessions = sessions
        self._turns = turns
        self._orphans = orphans
        self._drivers = drivers

    @activity.defn(name=Step.ACQUIRE)
    async def acquire(self, request: AcquireSession) -> Place:
        """Take the Task's Session, or a place in its queue.

        Raises:
            Refusal: `SessionOwned` if it is a conversation's.
        """
        record = await self._ledger.task(request.task_uid)
        name = session_of(record).name
        place = await self._sessions.acquire(record.namespace, name, claimant(record))
        if place.lock is None:
            await self._drivers.wake(SessionKey(record.namespace, name, conversation=False))
        return place

    @activity.defn(name=Step.PIN)
    async def pin(self, request: PinSession) -> SessionWritten:
        """Check the Task's revision against its Session, and pin it where that is due.

        Raises:
            Refusal: `SessionSoulMismatch`, `SessionUnpinnedHistory`, `SessionMustAppend`,
                or `FrozenInputDrift` if the Task names another Session by now.
        """
        record = await self._ledger.task(request.task_uid)
        reference = record.spec.session_ref
        if reference is None or reference.name != request.lock.session:
            raise Refusal(
                Reason.FROZEN_INPUT_DRIFT,
                f"Task {record.namespace}/{record.name} has the lock of Session {request.lock.session}, "
                f"and its spec.sessionRef names {reference.name if reference else 'none'} now",
            )
        try:
            await self._sessions.pin(request.lock, record.name, revision_of(record), reference.append)
        except LockLost:
            return SessionWritten(lost=True)
        return SessionWritten()

    @activity.defn(name=Step.APPEND)
    async def append(self, request: AppendTurn) -> SessionWritten:
        """Store the turn of a Task that succeeded; again is the same."""
        record = await self._ledger.task(request.key.task_uid)
        try:
            await self._turns.append(record, request.key, request.lock)
        except LockLost:
            return SessionWritten(lost=True)
        return SessionWritten()

    @activity.defn(name=Step.LEAVE)
    async def leave(self, request: LeaveSession) -> None:
        """Release the Task's Session, or leave its queue."""
        await self._turns.leave(await self._ledger.task(request.task_uid))

    @activity.defn(name=Step.GRANT)
    async def grant(self, request: DriveSession) -> Queue:
        """Hand the Session to the first that waits, and tell it."""
        while True:
            queue = await self._sessions.grant(request.namespace, request.session)
            holder = queue.holder
            if holder is None or holder.taken or await self._drivers.granted(holder):
                return queue
            await self._end(holder)

    @activity.defn(name=Step.LOOK)
    async def look(self, request: DriveSession) -> Queue:
        """End a holder whose workflow is gone, and hand the Session on."""
        queue = await self._sessions.grant(request.namespace, request.session)
        if queue.holder is not None and not await self._drivers.is_open(queue.holder):
            await self._end(queue.holder)
        return await self.grant(request)

    async def _end(self, holder: Holder) -> None:
        try:
            record = await self._ledger.task(holder.task_uid)
        except NotFound:
            # Deleted since: the next grant sees that, too.
            return
        await self._orphans.end(record)
