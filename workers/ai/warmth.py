"""Everything that costs time once, so that a forked Job need not pay for it."""

import asyncio
import importlib
import io
import json

import httpx2

from anima.model.attempts import AttemptInput, AttemptKey, ProviderSettings
from anima.model.composition import ENVELOPE_VERSION
from anima.model.digests import digest_bytes
from anima.model.persona import SensitiveText
from anima.model.provider import ProviderType
from anima.model.wire import BINDING_SCHEMA
from workers.ai.attempt import ExitCode, Transports, run_attempt
from workers.ai.environment import JobEnvironment
from workers.ai.log import job_log

_KEY = AttemptKey(task_uid="warmth", attempt=1)
_TEXT = "warm"


def preload(*, anthropic: bool = False) -> None:
    """Import and warm what an attempt needs; leaves no thread, socket or event loop.

    One attempt runs in memory, against a gateway and a model that are functions:
    libraries build their validators and schemas at first use, which takes longer
    than everything else in a Job.

    Args:
        anthropic: warm that provider's SDK too, which takes seconds more.
    """
    asyncio.run(_practise("openai-compatible", _CHAT_COMPLETION))
    if anthropic:
        asyncio.run(_practise("anthropic", _ANTHROPIC_MESSAGE))
    # A Job with a collector needs it, and it takes half a second.
    importlib.import_module("anima.telemetry.spans")


async def _practise(provider_type: ProviderType, answer: str) -> None:
    digest = digest_bytes(_TEXT.encode())
    environment = JobEnvironment(
        gateway="http://gateway.invalid",
        key=_KEY,
        token=SensitiveText(_TEXT),
        system_prompt=SensitiveText(_TEXT),
        prompt_digest=digest,
        envelope_version=str(ENVELOPE_VERSION),
        binding_schema=BINDING_SCHEMA,
        provider_key=SensitiveText(_TEXT),
    )
    given = AttemptInput(
        namespace=_TEXT,
        task=_TEXT,
        key=_KEY,
        user_prompt=_TEXT,
        user_prompt_digest=digest,
        system_prompt_digest=digest,
        envelope_version=ENVELOPE_VERSION,
        provider=ProviderSettings(type=provider_type, base_url="http://model.invalid", model=_TEXT),
    )
    transports = Transports(
        gateway=httpx2.MockTransport(lambda _: httpx2.Response(200, content=given.model_dump_json(by_alias=True))),
        provider=httpx2.MockTransport(lambda _: httpx2.Response(200, headers=_EVENT_STREAM, content=answer)),
    )
    log = io.StringIO()
    if await run_attempt(environment, job_log(log), transports=transports) != ExitCode.ANSWERED:
        raise RuntimeError(f"the worker fails at its own practice: {log.getvalue()}")


def _server_sent(*events: dict[str, object]) -> str:
    return "".join(f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n" for event in events)


_EVENT_STREAM = {"Content-Type": "text/event-stream"}
_CHUNK: dict[str, object] = {"id": _TEXT, "object": "chat.completion.chunk", "created": 1, "model": _TEXT}
_CHAT_COMPLETION = _server_sent(
    _CHUNK | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": _TEXT}, "finish_reason": None}]},
    _CHUNK | {"choices": [{"index": 0, "delta": {"content": _TEXT}, "finish_reason": None}]},
    _CHUNK | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    _CHUNK | {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
)
_ANTHROPIC_MESSAGE = _server_sent(
    {
        "type": "message_start",
        "message": {
            "id": _TEXT,
            "type": "message",
            "role": "assistant",
            "model": _TEXT,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": _TEXT}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
)
