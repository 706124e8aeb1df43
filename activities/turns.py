"""What a Task leaves in its Session: its turn, and then its place."""

from activities.drivers import Drivers
from anima.model.attempts import AttemptKey
from anima.model.binding import Revision
from anima.model.session import Claimant, Owner, SessionLock, Turn
from anima.model.task import SessionReference
from anima.stores.ports import Ledger, TaskRecord
from anima.stores.sessions import SessionKey, Sessions


class Turns:
    """Writes turns and hands Sessions on; the Task's own steps and the reaper share it."""

    def __init__(self, ledger: Ledger, sessions: Sessions, drivers: Drivers) -> None:
        self._ledger = ledger
        self._sessions = sessions
        self._drivers = drivers

    async def append(self, record: TaskRecord, key: AttemptKey, lock: SessionLock) -> None:
        """Store the prompt and the accepted answer of an attempt; nothing if the Task does not append.

        Raises:
            LockLost: the lock is another Task's by now.
        """
        if not session_of(record).append:
            return
        given = await self._ledger.input(key)
        turn = Turn(
            task_uid=record.uid,
            task=record.name,
            iteration=key.iteration,
            prompt=given.user_prompt,
            answer=await self._ledger.result(key),
            revision=revision_of(record),
        )
        await self._sessions.append(lock, turn)

    async def leave(self, record: TaskRecord) -> None:
        """Release the Task's Session, or leave its queue, and wake who hands it on."""
        reference = record.spec.session_ref
        if reference is None:
            return
        queue = await self._sessions.leave(record.namespace, reference.name, record.uid)
        conversation = queue.owner is Owner.CONVERSATION
        if queue.waiting or conversation:
            await self._drivers.wake(SessionKey(record.namespace, reference.name, conversation))


def claimant(record: TaskRecord) -> Claimant:
    """Return the Task as one that wants its Session."""
    return Claimant(task_uid=record.uid, task=record.name, workflow_id=record.workflow_id)


def session_of(record: TaskRecord) -> SessionReference:
    """Return the reference of a Task that has one."""
    assert record.spec.session_ref is not None
    return record.spec.session_ref


def revision_of(record: TaskRecord) -> Revision | None:
    """Return the revision that a Task is bound to; none without a soul."""
    return record.binding.revision if record.binding else None
