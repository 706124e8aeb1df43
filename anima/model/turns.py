"""The stored records of a turn, made into messages that every provider accepts.

Providers refuse a call without a result, a result without a call, two calls of one id,
names and ids with unusual characters, and messages without a word.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from anima.model.excerpt import arguments_excerpt, excerpt
from anima.model.session import Message, Role, SessionRecord, ToolCall

MESSAGE_BYTES = 32
"""What a message, and a call, counts beyond its text: it stands for role and ids."""
LEAST_EXCERPT = 160
"""No text is cut below so many bytes: the notice of what is missing needs most of them."""
NO_RESULT = "There is no result: the worker ended before the tool gave one."
EMPTY_RESULT = "The tool gave an empty result."

_UNUSUAL = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class Step:
    """What belongs together: one message, or an assistant's calls with their results."""

    messages: tuple[Message, ...]
    records: int
    """How many stored records it was made of."""

    def texts(self) -> list[int]:
        """Return the sizes in bytes of all that can be cut."""
        return [
            *(len(message.content.encode()) for message in self.messages),
            *(len(call.arguments.encode()) for message in self.messages for call in message.tool_calls),
        ]

    def rest(self) -> int:
        """Return what the step costs beside its texts, in bytes."""
        names = [len(call.name) for message in self.messages for call in message.tool_calls]
        return MESSAGE_BYTES * (len(self.messages) + len(names)) + sum(names)

    def cost(self, limit: int | None = None) -> int:
        """Return what the step costs, in bytes, with no text longer than `limit`."""
        return self.rest() + sum(size if limit is None else min(size, limit) for size in self.texts())

    def shortened(self, limit: int) -> "Step":
        """Return the step with every text cut to `limit` bytes."""
        return replace(self, messages=tuple(_shortened(message, limit) for message in self.messages))


def _shortened(message: Message, limit: int) -> Message:
    calls = [
        call.model_copy(update={"arguments": arguments_excerpt(call.arguments, limit)}) for call in message.tool_calls
    ]
    return message.model_copy(update={"content": excerpt(message.content, limit), "tool_calls": calls})


def begins_turn(record: SessionRecord) -> bool:
    """Tell whether a record is a user's message with at least one word."""
    return record.role is Role.USER and bool(record.content.strip())


def steps_of(records: Sequence[SessionRecord]) -> list[Step]:
    """Return what a model is given of a turn's records, oldest first.

    That a turn failed is not for the model: its user message stays without an answer.
    """
    steps = []
    fit = [record for record in records if record.reason is None or record.role is Role.USER]
    for position, record in enumerate(fit):
        if record.role is Role.ASSISTANT and record.tool_calls:
            steps.append(_exchange(record, list(takewhile(_is_result, fit[position + 1 :]))))
        elif record.role is not Role.TOOL and record.content.strip():
            steps.append(Step((Message(role=record.role, content=record.content),), records=1))
    return steps


def _is_result(record: SessionRecord) -> bool:
    return record.role is Role.TOOL


def _exchange(record: SessionRecord, unused: list[SessionRecord]) -> Step:
    calls, results = [], []
    found = 0
    for number, call in enumerate(record.tool_calls):
        call_id = f"call_{record.sequence}_{number}"
        calls.append(ToolCall(id=call_id, name=_UNUSUAL.sub("_", call.name)[:_MAX_NAME], arguments=call.arguments))
        place = next((place for place, result in enumerate(unused) if result.tool_call_id == call.id), None)
        content = NO_RESULT
        if place is not None:
            found += 1
            content = _worded(unused.pop(place).content) or EMPTY_RESULT
        results.append(Message(role=Role.TOOL, content=content, tool_call_id=call_id))
    asked = Message(role=Role.ASSISTANT, content=_worded(record.content), tool_calls=calls)
    return Step((asked, *results), records=1 + found)


def _worded(content: str) -> str:
    return content if content.strip() else ""
