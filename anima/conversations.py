"""A conversation as its user has it: say something, and follow the answer through outages.

conversation = Conversation(gateway, "default", "talk")
posted = await conversation.post("Hello.", key=str(uuid4()), agent="reviewer")
async for step in conversation.follow(posted.number):
    ...
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from urllib.parse import quote

from anima.gateway import Gateway
from anima.model.api import ANSWER_EVENT, IDEMPOTENCY_HEADER, AttemptProgress
from anima.model.conversation import ConversationStatus, Exchange, PostedMessage, parse_message
from anima.model.errors import Unavailable
from anima.model.session import SessionRecord

TRIES = 15
"""How often a gateway that is away is asked again: for about a minute."""
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0


class Conversation:
    """One conversation.  Making this object asks nobody; its methods do.

    Args:
        gateway: that has it.
        namespace: of the conversation.
        name: of the conversation; the first post begins it.
        away: told each time that the gateway does not answer and will be asked again.
    """

    def __init__(
        self, gateway: Gateway, namespace: str, name: str, away: Callable[[Unavailable], None] = lambda _: None
    ) -> None:
        self._gateway = gateway
        self._path = f"/v1/conversations/{quote(namespace, safe='')}/{quote(name, safe='')}"
        self._away = away

    async def status(self) -> ConversationStatus:
        """Return who answers, what waits, and how the Session stands.

        Raises:
            NotFound: the conversation has not begun.
        """
        return ConversationStatus.model_validate_json((await self._gateway.send("GET", self._path)).content)

    async def message(self, number: int) -> Exchange:
        """Return a message, and its answer once there is one."""
        response = await self._gateway.send("GET", f"{self._path}/messages/{number}")
        return Exchange.model_validate_json(response.content)

    async def post(self, content: str, key: str, agent: str | None = None) -> PostedMessage:
        """Say something; sent again with the same key, it is the same message.

        A gateway that is away is asked again, for about a minute.

        Args:
            content: the user's words.
            key: a new one for each message, such as a UUID.
            agent: who is to answer; none for the Agent of the message before.

        Raises:
            Refusal: `RequestRefused`, `SessionOwned` or `ConversationFull`.
            Unavailable: the gateway stayed away.
        """
        message = parse_message({"content": content, "agentRef": {"name": agent} if agent else None})
        body, headers = message.model_dump_json(exclude_none=True).encode(), {IDEMPOTENCY_HEADER: key}
        tries = 0
        while True:
            try:
                response = await self._gateway.send("POST", f"{self._path}/messages", body=body, headers=headers)
            except Unavailable as error:
                tries = await self._wait(tries, error)
            else:
                return PostedMessage.model_validate_json(response.content)

    async def follow(self, number: int) -> AsyncGenerator[AttemptProgress | SessionRecord]:
        """Yield the progress of every attempt at a message, and then its answer.

        A gateway that is away is asked for the rest, for about a minute each time.

        Raises:
            NotFound: there is no such message.
            Unavailable: the gateway stayed away.
        """
        last, tries = "", 0
        while True:
            events = self._gateway.stream(
                f"{self._path}/messages/{number}/events", headers={"Last-Event-ID": last} if last else {}
            )
            try:
                async with aclosing(events):
                    async for event in events:
                        last, tries = event.id, 0
                        shape = SessionRecord if event.event == ANSWER_EVENT else AttemptProgress
                        yield shape.model_validate_json(event.data)
                return
            except Unavailable as error:
                tries = await self._wait(tries, error)

    async def _wait(self, tries: int, error: Unavailable) -> int:
        if tries == TRIES:
            raise error
        self._away(error)
        await asyncio.sleep(min(_FIRST_PAUSE * 2**tries, _LONGEST_PAUSE))
        return tries + 1
