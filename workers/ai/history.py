"""The conversation so far, as pydantic-ai sends it to a model, before the user's prompt."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from anima.model.provider import ProviderType
from anima.model.session import Message, Role

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponsePart
    from pydantic_ai.models import ModelRequestParameters


def conversation(system_prompt: str, earlier: Sequence[Message], user_prompt: str) -> "list[ModelMessage]":
    """Return all that a model is sent.

    The sides alternate, as some models demand: user messages without an answer between
    them are the parts of one.  System text is on the last request alone, so it goes out once.

    Args:
        system_prompt: exactly what the model gets as system text; none if empty.
        earlier: what `anima.model.transcript.Tail` gives.
        user_prompt: exactly what it gets as the user's last words.
    """
    from pydantic_ai.messages import ModelRequest, ModelResponse

    names = {call.id: call.name for message in earlier for call in message.tool_calls}
    given = [*earlier, Message(role=Role.USER, content=user_prompt)]
    messages: list[ModelMessage] = []
    for answers, group in groupby(given, lambda message: message.role is Role.ASSISTANT):
        side = [*group]
        messages.append(ModelResponse(_answered(side)) if answers else ModelRequest(_asked(side, names)))
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    last.instructions = system_prompt or None
    return messages


def _answered(side: list[Message]) -> "list[ModelResponsePart]":
    from pydantic_ai.messages import TextPart, ToolCallPart

    parts: list[ModelResponsePart] = []
    for message in side:
        if message.content:
            parts.append(TextPart(message.content))
        parts += [ToolCallPart(call.name, call.arguments, call.id) for call in message.tool_calls]
    return parts


def _asked(side: list[Message], names: dict[str, str]) -> "list[ModelRequestPart]":
    from pydantic_ai.messages import ToolReturnPart, UserPromptPart

    parts: list[ModelRequestPart] = [
        ToolReturnPart(names[message.tool_call_id], message.content, message.tool_call_id)
        for message in side
        if message.tool_call_id is not None
    ]
    words = [message.content for message in side if message.role is Role.USER]
    if words:
        parts.append(UserPromptPart(words[0] if len(words) == 1 else words))
    return parts


def declared_tools(earlier: Sequence[Message], provider: ProviderType) -> "ModelRequestParameters | None":
    """Return the tools that a request has to name, though none may be called; none if there are none.

    What speaks Anthropic's protocol may refuse a history with calls of tools that the
    request does not declare.
    """
    names = {call.name for message in earlier for call in message.tool_calls}
    if provider != "anthropic" or not names:
        return None
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    return ModelRequestParameters(function_tools=[ToolDefinition(name=name) for name in sorted(names)])
