"""Transcript: what a Session holds, made fit for storage and for a model.

Both ends are pure: the worker checks the digest of what it was given against the one
that its attempt was created with.
"""

from itertools import accumulate

from anima.model.base import Int, Model
from anima.model.digests import Digest, digest_json
from anima.model.excerpt import arguments_excerpt, clean, excerpt
from anima.model.provider import ProviderType
from anima.model.session import MAX_CONTENT_BYTES, Message, Role, SessionRecord, ToolCall
from anima.model.turns import LEAST_EXCERPT, Step, begins_turn, steps_of

DEFAULT_BUDGET = 256 * 1024
"""Bytes of content and tool calls that a model is given of a Session."""
# Of its context of 8192 tokens an answer may take 1024, and 8 KiB of English in Markdown
# are 2450 (measured): the longest soul and this leave 2200 to the role and the prompt.
LOCAL_BUDGET = 8 * 1024
"""The same for the small model on this machine."""
MIN_BUDGET = 1024
MAX_BUDGET = 4 * 1024 * 1024

_NOTE_BYTES = 128


class Transcript(Model):
    """What a model is given of a Session, oldest message first."""

    messages: list[Message]
    left_out_messages: Int = 0

    @property
    def digest(self) -> Digest:
        return digest_json("anima.transcript/1", self.to_json())


def budget_of(wanted: int | None, provider: ProviderType) -> int:
    """Return how many bytes of a Session a model is given.

    Args:
        wanted: the Agent's ``spec.model.transcriptBytes``, if it has any.
        provider: the type of the Provider that serves the model.
    """
    return wanted or (LOCAL_BUDGET if provider == "local" else DEFAULT_BUDGET)


def storable(message: Message) -> Message:
    """Make a message fit for every database and every provider, whatever a tool has put in it.

    NUL and lone surrogates become U+FFFD.  Content over `MAX_CONTENT_BYTES` loses its
    middle, which is said in its place with the size and the digest of the whole; so do the
    arguments of calls that are over it together.  Applied again, it changes nothing.
    """
    share = MAX_CONTENT_BYTES // max(1, len(message.tool_calls))
    return Message(
        role=message.role,
        content=excerpt(clean(message.content), MAX_CONTENT_BYTES),
        tool_calls=[
            ToolCall(id=clean(call.id), name=clean(call.name), arguments=arguments_excerpt(call.arguments, share))
            for call in message.tool_calls
        ],
        tool_call_id=None if message.tool_call_id is None else clean(message.tool_call_id),
    )


class Tail:
    """The newest turns of a Session: whole, and as many as a budget allows.

    A turn is a user's message and all up to the next.  The newest one is always there:
    where it alone is over the budget, its texts lose their middles, and if that is not
    enough, the oldest steps between the user's message and the end go.

    Args:
        budget: in bytes, from `MIN_BUDGET`: of content, names and arguments, and
            `MESSAGE_BYTES` for each message and call.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget - _NOTE_BYTES
        self._turns: list[list[Step]] = []
        self._used = 0
        self._records = 0
        self._begun: list[SessionRecord] = []
        self._begun_least = 0
        self._begun_full = False
        self.full = False
        """Nothing older can be in it."""

    def add(self, record: SessionRecord) -> None:
        """Take the next older record."""
        if self.full:
            return
        if begins_turn(record):
            self._close([record, *reversed(self._begun)])
            self._begun, self._begun_least, self._begun_full = [], 0, False
        elif not self._begun_full:
            self._begun.append(record)
            self._begun_least += Step((record,), records=1).cost(LEAST_EXCERPT)
            # Older steps would not fit even if all were cut as far as possible.
            self._begun_full = record.role is Role.ASSISTANT and self._begun_least > self._budget

    def _close(self, records: list[SessionRecord]) -> None:
        turn = steps_of(records)
        self._used += sum(step.cost() for step in turn)
        self.full = self._used > self._budget
        if self.full and self._turns:
            return
        kept = _fitted(turn, self._budget) if self.full else turn
        self._turns.append(kept)
        self._records += len(records) - sum(step.records for step in turn) + sum(step.records for step in kept)

    def transcript(self, total: int) -> Transcript:
        """Return what a model is given.

        Args:
            total: how many messages are stored in the Session.
        """
        messages = [message for turn in reversed(self._turns) for step in turn for message in step.messages]
        left_out = max(0, total - self._records)
        if messages and left_out:
            # Not system text: that is digested, and nothing is ever added to it.
            messages[0] = messages[0].model_copy(update={"content": f"{_note(left_out)}{messages[0].content}"})
        return Transcript(messages=messages, left_out_messages=left_out)


def _note(left_out: int) -> str:
    return f"[Messages left out of this conversation: {left_out}]\n\n"


def _fitted(turn: list[Step], budget: int) -> list[Step]:
    """Cut a turn to a budget: the longest texts first, then the oldest steps after the user's message."""
    least = [step.cost(LEAST_EXCERPT) for step in turn]
    gone = sum(total > budget for total in accumulate([least[0], *reversed(least[1:])]))
    kept = [turn[0], *turn[1 + gone :]]
    limit = _share(sorted(size for step in kept for size in step.texts()), budget - sum(step.rest() for step in kept))
    return [step.shortened(limit) for step in kept]


def _share(sizes: list[int], budget: int) -> int:
    """Return the largest limit under which all sizes, the smallest first, fit a budget together."""
    for place, size in enumerate(sizes):
        share = budget // (len(sizes) - place)
        if size > share:
            return share
        budget -= size
    return sizes[-1]
