"""Reading what a model is given of a Session, from the newest record back."""

import asyncio
from collections.abc import Sequence

from anima.model.attempts import TranscriptReference
from anima.model.errors import Conflict, LockLost
from anima.model.session import SessionLock, SessionRecord
from anima.model.transcript import Tail, Transcript
from anima.stores.sessions import Sessions

_PAGE = 64


class TranscriptReader:
    """Composes transcripts; it reads as much as a budget needs, however long the Session is.

    Args:
        sessions: where the records are.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def reference(self, lock: SessionLock, budget: int) -> TranscriptReference:
        """Return what an attempt is given of its Session, by digest.

        Args:
            lock: the Task's, so that nothing is added meanwhile.
            budget: in bytes; see `anima.model.transcript.Tail`.

        Raises:
            NotFound: there is no such Session.
            LockLost: the Session was deleted and made anew since the lock was given.
        """
        status = await self._sessions.session(lock.namespace, lock.session)
        if status.uid != lock.session_uid:
            raise LockLost(_replaced(lock.namespace, lock.session))
        newest = await self._page(lock.namespace, lock.session, None, 1)
        through = newest[-1].sequence if newest else 0
        transcript = await self._compose(lock.namespace, lock.session, through, status.messages, budget)
        return TranscriptReference(
            session=lock.session,
            session_uid=status.uid,
            through=through,
            messages=status.messages,
            budget=budget,
            digest=await asyncio.to_thread(lambda: transcript.digest),
        )

    async def read(self, namespace: str, reference: TranscriptReference) -> Transcript:
        """Return the transcript that a reference names.

        Raises:
            NotFound: the Session is deleted.
            Conflict: its records are not those any more.
        """
        status = await self._sessions.session(namespace, reference.session)
        if status.uid != reference.session_uid:
            raise Conflict(_replaced(namespace, reference.session))
        transcript = await self._compose(
            namespace, reference.session, reference.through, reference.messages, reference.budget
        )
        digest = await asyncio.to_thread(lambda: transcript.digest)
        if digest != reference.digest:
            raise Conflict(
                f"Session {namespace}/{reference.session} has changed up to record {reference.through}: its transcript "
                f"has digest {digest}, the attempt was created for {reference.digest}"
            )
        return transcript

    async def _compose(self, namespace: str, session: str, through: int, messages: int, budget: int) -> Transcript:
        tail = Tail(budget)
        before = through + 1
        while not tail.full and (page := await self._page(namespace, session, before, _PAGE)):
            await asyncio.to_thread(_add, tail, page)
            before = page[0].sequence
        return tail.transcript(messages)

    async def _page(self, namespace: str, session: str, before: int | None, limit: int) -> Sequence[SessionRecord]:
        return await self._sessions.records(namespace, session, before=before, limit=limit, newest=True)


def _replaced(namespace: str, session: str) -> str:
    return f"Session {namespace}/{session} was deleted, and is another one of the same name by now"


def _add(tail: Tail, page: Sequence[SessionRecord]) -> None:
    for record in reversed(page):
        tail.add(record)
