"""Transcripts as lines of JSON, one message a line: written by an export, read by an import."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from fastapi import Request
from pydantic import ValidationError

from anima.model.errors import Conflict, Refusal
from anima.model.plain import parse_json
from anima.model.problems import Problem, problems_of
from anima.model.reasons import Reason
from anima.model.session import Message, SessionRecord, SessionStatus
from anima.stores.sessions import Sessions
from workers.gateway.bodies import chunks_of

LINES_TYPE = "application/x-ndjson"
MAX_IMPORT_BYTES = 64 * 1024 * 1024
# JSON may write one byte of a message as six.
MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_IMPORT_MESSAGES = 100_000
MAX_PROBLEMS = 100

_PAGE = 64


async def lines_of(sessions: Sessions, session: SessionStatus) -> AsyncIterator[bytes]:
    """Yield a Session's messages, page by page, as an import takes them.

    Why a turn failed is left out: it is no word of the assistant's.

    Raises:
        Conflict: the Session was deleted and begun anew meanwhile.
    """
    after = 0
    while page := await sessions.records(session.namespace, session.name, after=after, limit=_PAGE):
        after = page[-1].sequence
        yield await asyncio.to_thread(_written, page)
    if (await sessions.session(session.namespace, session.name)).uid != session.uid:
        raise Conflict(f"Session {session.namespace}/{session.name} is another one by now, of the same name")


def _written(page: Sequence[SessionRecord]) -> bytes:
    fields = set(Message.model_fields)
    messages = (record for record in page if record.reason is None)
    return b"".join(
        record.model_dump_json(include=fields, exclude_defaults=True).encode() + b"\n" for record in messages
    )


async def read_messages(request: Request) -> list[Message]:
    """Read a body of lines while it comes, and return its messages; blank lines are none.

    Raises:
        HTTPException: 413 for a longer body.
        Refusal: `RequestRefused`, with every problem and its line.
    """
    lines = MessageLines()
    async for chunk in chunks_of(request, MAX_IMPORT_BYTES):
        await asyncio.to_thread(lines.feed, chunk)
    await asyncio.to_thread(lines.end)
    return lines.messages()


class MessageLines:
    """Reads messages out of lines of JSON, piece by piece, and notes what is wrong with each line."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._problems: list[Problem] = []
        self._number = 1
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> None:
        """Take the next piece, wherever it was cut."""
        *ended, rest = piece.split(b"\n")
        for part in ended:
            self._extend(part)
            self.end()
        self._extend(rest)

    def end(self) -> None:
        """End the line that was begun."""
        if self._size > MAX_LINE_BYTES:
            self._note(Problem("", f"has {self._size} bytes, the limit is {MAX_LINE_BYTES}", "shorten the message"))
        elif len(self._problems) < MAX_PROBLEMS and (line := b"".join(self._pieces)).strip():
            self._read(line)
        self._pieces, self._size = [], 0
        self._number += 1

    def messages(self) -> list[Message]:
        """Return what was read.

        Raises:
            Refusal: `RequestRefused`, with every problem, up to `MAX_PROBLEMS`.
        """
        if not self._messages and not self._problems:
            self._problems.append(Problem("", "there is no message in it", "give one a line"))
        if not self._problems:
            return self._messages
        more = " or more" if len(self._problems) == MAX_PROBLEMS else ""
        raise Refusal(
            Reason.REQUEST_REFUSED,
            f"nothing is imported; problems with the transcript: {len(self._problems)}{more}; "
            f"the first: {self._problems[0]}",
            self._problems,
        )

    def _extend(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= MAX_LINE_BYTES:
            self._pieces.append(part)

    def _read(self, line: bytes) -> None:
        try:
            message = Message.model_validate(parse_json(line, self._number), by_alias=True, by_name=False)
        except ValidationError as error:
            self._note(*problems_of(error, Message, MAX_PROBLEMS))
        except ValueError as error:
            self._note(Problem("", str(error), 'write one message a line, {"role": "user", "content": "Hello."}'))
        else:
            self._take(message)

    def _take(self, message: Message) -> None:
        if self._problems:
            return
        if len(self._messages) < MAX_IMPORT_MESSAGES:
            self._messages.append(message)
        else:
            self._note(Problem("", f"is one message more than {MAX_IMPORT_MESSAGES}, the limit", "import fewer"))

    def _note(self, *problems: Problem) -> None:
        line = f"line {self._number}"
        found = [replace(item, path=f"{line}, {item.path}" if item.path else line) for item in problems]
        self._problems = [*self._problems, *found][:MAX_PROBLEMS]
