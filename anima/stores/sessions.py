"""What Anima needs of transcripts, as protocols: Sessions, and the conversations among them.

A Session is the Tasks' or a conversation's from its first use on.  Its row is locked
by every method that writes; what a method decides and what it writes is one transaction.
Methods raise as those in `anima.stores.ports` do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from anima.model.binding import Revision
from anima.model.conversation import Attestation, PostedMessage
from anima.model.session import (
    Claimant,
    Identity,
    Message,
    Place,
    Queue,
    SessionLock,
    SessionRecord,
    SessionStatus,
    Turn,
)


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Which Session, and whether a conversation owns it."""

    namespace: str
    name: str
    conversation: bool


class SessionQueue(Protocol):
    """The lock: first come, first served, fenced by tokens that are given out once."""

    async def acquire(self, namespace: str, name: str, claimant: Claimant) -> Place:
        """Take the Session if nobody has it or waits for it, else a place at the end of the queue.

        Again is the same: the holder gets its own lock, a waiter its present place.  A
        Session that is not there is created.  A holder or a waiter whose Task is closed or
        unknown in the Ledger counts as gone.  A conversation's Session is given to the Task
        of its first pending message only.

        Raises:
            Refusal: `SessionOwned` if the Session is a conversation's and the Task is not
                the one whose turn it is.
            Conflict: the claimant's Task is closed.
        """
        ...

    async def grant(self, namespace: str, name: str) -> Queue:
        """Give the Session to the first that waits, if nobody has it; return how it stands."""
        ...

    async def leave(self, namespace: str, name: str, task_uid: str) -> Queue:
        """Release the Session, or leave its queue; return how it stands.  Again is the same."""
        ...

    async def queue(self, namespace: str, name: str, limit: int = 20) -> Queue:
        """Return holder and waiters as they are.

        Raises:
            NotFound: there is no such Session.
        """
        ...

    async def contended(self, limit: int = 100) -> Sequence[SessionKey]:
        """Return Sessions in which a Task or a message waits, the longest untouched first."""
        ...


class Sessions(SessionQueue, Protocol):
    """Transcripts, each with at most one identity."""

    async def pin(self, lock: SessionLock, task: str, revision: Revision | None, append: bool) -> Identity | None:
        """Check a Task's revision by `check_revision`, and pin it if it establishes the identity.

        A conversation's Session is only checked: there, the answer pins.  Pinned again by
        the same Task, it is the same.

        Args:
            lock: the Task's.
            task: its name, for those who ask later.
            revision: of the Task's binding; none for the explicit absence of a soul.
            append: the Task will append its turn.

        Returns:
            The identity that the Session has now; none in a conversation without one.

        Raises:
            Refusal: by reason, and nothing is written.
            LockLost: the lock is not the Task's any more.
        """
        ...

    async def append(self, lock: SessionLock, turn: Turn) -> None:
        """Store a turn's two messages, once per Task UID and iteration.

        In a conversation it answers the pending message of that Task and pins the turn's
        revision, or absence, if there is no identity yet.

        Raises:
            LockLost: the lock is not the Task's any more, and the turn is not stored.
        """
        ...

    async def session(self, namespace: str, name: str) -> SessionStatus:
        """Return one Session.

        Raises:
            NotFound: there is none.
        """
        ...

    async def sessions(self, namespace: str | None = None, limit: int = 500) -> Sequence[SessionStatus]:
        """Return Sessions, the last used first."""
        ...

    async def records(
        self,
        namespace: str,
        name: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        contains: str | None = None,
        newest: bool = False,
    ) -> Sequence[SessionRecord]:
        """Return messages in order of their sequence; never the identity record.

        Args:
            namespace: of the Session.
            name: of the Session.
            after: only sequences above it.
            before: only sequences below it.
            limit: how many at most.
            contains: only messages that hold this text, letter case aside.
            newest: if there are more than `limit`, the last ones instead of the first.

        Raises:
            NotFound: there is no such Session.
        """
        ...

    async def import_messages(self, namespace: str, name: str, messages: Sequence[Message]) -> SessionStatus:
        """Create a Session from a transcript without an identity.

        Raises:
            Conflict: the Session exists.
        """
        ...

    async def delete(self, namespace: str, name: str) -> None:
        """Delete a Session with its identity, its records and its conversation.

        Raises:
            NotFound: there is none.
            Conflict: a Task has it or waits for it, or a message is pending.
        """
        ...

    async def expire(self, before: datetime | None, keep: int | None, limit: int = 100) -> int:
        """Remove messages that are too old or too many, from Sessions that nobody has or waits for.

        The identity stays.  A Session that loses history without an identity is pinned to
        absence, so that no soul can join what was begun without one; failures attested as
        establishing nothing leave nothing.  Whole turns go.

        Args:
            before: messages of before then go; none keeps them whatever their age.
            keep: of each Session, so many of the newest messages stay; none keeps all.
            limit: how many Sessions to look at in one transaction at most.

        Returns:
            How many messages were removed; 0 once there is nothing left to do.
        """
        ...


class Conversations(Protocol):
    """User messages that wait for their Task, in Sessions that the gateway owns."""

    async def post(
        self, namespace: str, name: str, idempotency_key: str, content: str, agent: str | None
    ) -> PostedMessage:
        """Queue a user's message; the same key again is the same message.

        Args:
            namespace: of the conversation.
            name: of the conversation; it is begun if it is not there.
            idempotency_key: the sender's, at most 200 characters.
            content: the user's words.
            agent: who is to answer; none for the Agent of the message before.

        Raises:
            Refusal: `SessionOwned` if the Session is the Tasks', `ConversationFull` at
                `MAX_PENDING` pending messages, `RequestRefused` if the first message
                names no Agent.
            Conflict: the key was used with other content or another Agent.
        """
        ...

    async def agent(self, namespace: str, name: str) -> str | None:
        """Return the Agent of the newest message: who is asked if the next one names nobody.

        None if there is no message, or none any more.
        """
        ...

    async def first_pending(self, namespace: str, name: str) -> PostedMessage | None:
        """Return the message whose turn it is; none if all are answered."""
        ...

    async def message(self, namespace: str, name: str, number: int) -> PostedMessage:
        """Return one message.

        Raises:
            NotFound: there is none, or it is forgotten.
        """
        ...

    async def pending(self, namespace: str, name: str) -> Sequence[PostedMessage]:
        """Return the messages that are not answered yet, in order."""
        ...

    async def project_failure(
        self, namespace: str, name: str, number: int, attestation: Attestation, revision: Revision | None
    ) -> None:
        """Store a message and that its Task failed as a turn, unless it is answered already.

        If the failure is not attested as unbound, it pins the revision, or absence, as an
        answer would.
        """
        ...
