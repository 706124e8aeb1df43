"""Asking a model until it gives an answer that counts, or a reason why not."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anima.model.attempts import MAX_RESULT_BYTES, ProviderSettings, Usage
from anima.model.errors import Refusal
from anima.model.reasons import Reason
from anima.model.session import Message
from workers.ai.failures import ProviderFailure, provider_failures
from workers.ai.history import conversation, declared_tools
from workers.ai.progress import Progress
from workers.ai.retries import Retries, RetryLimits

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings

_TRIES_FOR_WORDS = 2


@dataclass(slots=True)
class Tally:
    """What the provider has counted so far, over all tries, failed ones too."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""

    def usage(self) -> Usage:
        return Usage(requests=self.requests, input_tokens=self.input_tokens, output_tokens=self.output_tokens)


@dataclass(frozen=True, slots=True)
class _Question:
    messages: "list[ModelMessage]"
    tools: "ModelRequestParameters | None"


@dataclass(slots=True)
class _Reply:
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    finish: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Interview:
    """One question to one model.

    Args:
        model: whom to ask.
        provider: what messages say about it.
        progress: is told of text and retries as they come.
        limits: tries and time for rate limits and failures that may pass.
        tally: counts usage, whatever becomes of the answer.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        model: "Model[Any]",
        provider: ProviderSettings,
        progress: Progress,
        limits: RetryLimits,
        tally: Tally,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._provider = provider
        self._progress = progress
        self._retries = Retries(limits, clock)
        self._tally = tally

    async def answer(self, system_prompt: str, user_prompt: str, earlier: Sequence[Message] = ()) -> str:
        """Return the answer; a blank one is asked for once more.

        Args:
            system_prompt: exactly what the model gets as system text; none if empty.
            user_prompt: exactly what it gets as the user's last words.
            earlier: the conversation before them, from its Session.

        Raises:
            Refusal: `AnswerBlank`, `AnswerRefused`, `AnswerTruncated`,
                `AnswerTooLarge` or `ProviderFailed`.
        """
        question = _Question(
            conversation(system_prompt, earlier, user_prompt), declared_tools(earlier, self._provider.type)
        )
        for attempt in range(_TRIES_FOR_WORDS):
            if attempt:
                self._progress.retry("the answer was blank", 0.0)
            reply = await self._insist(question)
            self._check_finish(reply)
            if reply.text.strip():
                return reply.text
        raise Refusal(Reason.ANSWER_BLANK, f"{self._provider.model} gave a blank answer, twice")

    def _check_finish(self, reply: _Reply) -> None:
        if reply.finish == "content_filter":
            raise Refusal(Reason.ANSWER_REFUSED, f"{self._provider.model} declined to answer")
        if reply.finish == "length":
            limit = self._provider.max_tokens
            allowed = f"model.maxTokens is {limit}" if limit else "model.maxTokens is not set, so it is the provider's"
            raise Refusal(
                Reason.ANSWER_TRUNCATED, f"the answer of {self._provider.model} was cut off at its limit; {allowed}"
            )

    async def _insist(self, question: _Question) -> _Reply:
        while True:
            try:
                return await self._ask(question)
            except ProviderFailure as failure:
                delay = self._retries.next_delay(failure.retry_after) if failure.may_pass else None
                if delay is None:
                    tries = f" (asked {self._tally.requests} times)" if self._tally.requests > 1 else ""
                    raise Refusal(Reason.PROVIDER_FAILED, f"{failure}{tries}") from None
                self._progress.retry(str(failure), delay)
            await asyncio.sleep(delay)

    async def _ask(self, question: _Question) -> _Reply:
        from pydantic_ai.direct import model_request_stream

        self._tally.requests += 1
        with provider_failures(self._provider):
            async with model_request_stream(
                self._model,
                question.messages,
                model_settings=self._settings(question),
                model_request_parameters=question.tools,
            ) as stream:
                try:
                    return await self._read(stream)
                finally:
                    self._count(stream)

    async def _read(self, stream: "StreamedResponse") -> _Reply:
        reply = _Reply()
        async with aclosing(_text_of(stream)) as deltas:
            async for delta in deltas:
                reply.size += len(delta.encode())
                if reply.size > MAX_RESULT_BYTES:
                    raise Refusal(
                        Reason.ANSWER_TOO_LARGE,
                        f"the answer of {self._provider.model} is over {MAX_RESULT_BYTES} bytes",
                    )
                reply.pieces.append(delta)
                self._progress.text(delta)
        if not (stream.finish_reason or (stream.provider_details or {}).get("finish_reason")):
            raise EOFError("the stream ended without a reason")
        reply.finish = stream.finish_reason
        return reply

    def _settings(self, question: _Question) -> "ModelSettings":
        settings: ModelSettings = {"tool_choice": "none"} if question.tools else {}
        if self._provider.temperature is not None:
            settings["temperature"] = self._provider.temperature
        if self._provider.max_tokens is not None:
            settings["max_tokens"] = self._provider.max_tokens
        return settings

    def _count(self, stream: "StreamedResponse") -> None:
        usage = stream.usage
        self._tally.input_tokens += usage.input_tokens
        self._tally.output_tokens += usage.output_tokens
        self._tally.model = stream.model_name


async def _text_of(stream: "StreamedResponse") -> AsyncGenerator[str, None]:
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

    async for event in stream:
        match event:
            case PartStartEvent(part=TextPart(content=content)):
                yield content
            case PartDeltaEvent(delta=TextPartDelta(content_delta=content)):
                yield content
            case _:
                pass
