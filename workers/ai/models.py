"""pydantic-ai models by type of Provider.

A provider's SDK is imported by the Job that needs it, or by `preload`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2

from anima.model.attempts import ProviderSettings
from anima.model.errors import Refusal
from anima.model.persona import SensitiveText
from anima.model.reasons import Reason
from workers.ai.responses import bound_response
from workers.ai.tls import tls_context

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.profiles import ModelProfile

CONNECT_TIMEOUT = 10.0
"""Seconds to reach a provider."""
READ_TIMEOUT = 120.0
"""Seconds that a provider may say nothing, before its answer or within it."""

# Servers without keys still get an Authorization header, because the SDKs insist.
_NO_KEY = "none"


def host_of(provider: ProviderSettings) -> str:
    """Name the host of a provider, without credentials that its address may hold."""
    return urlsplit(provider.base_url or "").netloc.rpartition("@")[2] or "its default address"


@asynccontextmanager
async def open_model(
    provider: ProviderSettings,
    key: SensitiveText | None,
    *,
    read_timeout: float = READ_TIMEOUT,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> AsyncIterator["Model[Any]"]:
    """Open the model that a Provider names.  Its SDK never retries by itself.

    Args:
        provider: type, address and model; not `rehearsal`.
        key: the Provider's key, if it has one.
        read_timeout: seconds that the provider may say nothing.
        transport: replaces the network, to warm up without one.

    Raises:
        Refusal: `ProviderInvalid` if address or key are missing.
    """
    secret = _key(provider, key)
    timeout = httpx2.Timeout(read_timeout, connect=CONNECT_TIMEOUT)
    async with httpx2.AsyncClient(
        # Without compression the bound on a response holds.
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [bound_response]},
        timeout=timeout,
        transport=transport,
        verify=tls_context(),
    ) as http:
        build = _anthropic if provider.type == "anthropic" else _openai
        yield build(provider, secret, http)


def _key(provider: ProviderSettings, key: SensitiveText | None) -> str:
    if provider.type in ("openai-compatible", "local") and provider.base_url is None:
        raise Refusal(Reason.PROVIDER_INVALID, f"the Provider of type {provider.type} has no baseURL")
    if provider.type in ("openai", "anthropic") and key is None:
        raise Refusal(Reason.PROVIDER_INVALID, f"the Provider of type {provider.type} has no key: set its secretRef")
    secret = key.reveal() if key else _NO_KEY
    if not (secret.isascii() and secret.isprintable() and " " not in secret):
        raise Refusal(
            Reason.PROVIDER_INVALID,
            "the Provider's key has a line break, a blank or another character that no key has: correct its Secret",
        )
    return secret


def _openai(provider: ProviderSettings, key: str, http: httpx2.AsyncClient) -> "Model[Any]":
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles import merge_profile
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    client = AsyncOpenAI(api_key=key, base_url=provider.base_url, http_client=http, timeout=http.timeout, max_retries=0)
    # A stream without a finish reason may have been cut off.
    profile = merge_profile(_literal(), OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True))
    if provider.type == "openai":
        return OpenAIChatModel(provider.model, provider=OpenAIProvider(openai_client=client), profile=profile)
    # The older field is the one that every server knows.
    profile = merge_profile(profile, OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False))
    compatible = OpenAICompatibleProvider(provider.type, openai_client=client)
    return OpenAIChatModel(provider.model, provider=compatible, profile=profile)


def _anthropic(provider: ProviderSettings, key: str, http: httpx2.AsyncClient) -> "Model[Any]":
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(
        api_key=key, base_url=provider.base_url, http_client=http, timeout=http.timeout, max_retries=0
    )
    return AnthropicModel(provider.model, provider=AnthropicProvider(anthropic_client=client), profile=_literal())


def _literal() -> "ModelProfile":
    """Deliver prompts and answers as they are.

    By default pydantic-ai would break special tokens in the user prompt, trim the
    start of an answer, and look up a context window that nobody asks for.
    """
    from pydantic_ai.profiles import ModelProfile

    return ModelProfile(
        context_window=None, may_tokenize_special_tokens_in_content=False, ignore_streamed_leading_whitespace=False
    )
