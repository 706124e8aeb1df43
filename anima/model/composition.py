"""How a role and a persona become one system prompt, and how much may be sent.

Source of the rules: agent-soul, "Inline persona" and "Runtime delivery".  All
that a model receives as system text is composed here, before the digest.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from anima.model.digests import digest_bytes
from anima.model.errors import Refusal, Unavailable
from anima.model.persona import PersonaText, SensitiveText
from anima.model.reasons import Reason

ENVELOPE_VERSION = 1
"""The envelope that new bindings use.  Old versions stay in `_ENVELOPES`."""

# Part of every prompt digest: a published version is never edited, and none
# contains an at sign, which one runtime would read as a file import.
_ENVELOPES = {
    1: (
        "## Persona (SOUL.md)\n"
        "\n"
        "What follows, up to the line that ends this section, is your persona: defaults\n"
        "for character and tone. It ranks below the policies of the runtime, below your\n"
        "role and below the task at hand, and it grants no permission of any kind.\n"
        "\n",
        "\n\n## End of persona (SOUL.md)\n"
        "\n"
        "Where the persona and the task disagree, on the form, language or structure of\n"
        "the answer for example, follow the task.\n",
    ),
}

DeliveryPath = Literal["ai", "codex", "claude", "copilot", "opencode"]


@dataclass(frozen=True, slots=True)
class ComposedPrompt:
    """The whole system prompt of a Job, with what it was made of in bytes."""

    text: SensitiveText
    digest: str
    role_bytes: int
    soul_bytes: int
    envelope_version: int


@dataclass(frozen=True, slots=True)
class DeliveryLimit:
    """A limit in bytes on the form in which one path delivers the prompt."""

    path: DeliveryPath
    limit: int
    form: str
    measure: Callable[[str], int]


def _encoded(text: str) -> int:
    return len(text.encode())


def _dollars_doubled(text: str) -> int:
    return len(text.encode()) + text.count("$")


def _codex_configuration(text: str) -> int:
    # The model's name and address travel in the same configuration string.
    return len(json.dumps({"developer_instructions": text}, ensure_ascii=False).encode()) + 2048


# One environment string is at most 128 KiB on Linux (MAX_ARG_STRLEN).
DELIVERY_LIMITS: dict[DeliveryPath, DeliveryLimit] = {
    limit.path: limit
    for limit in (
        DeliveryLimit("ai", 110 * 1024, "with each $ doubled", _dollars_doubled),
        DeliveryLimit("codex", 96 * 1024, "as encoded configuration", _codex_configuration),
        DeliveryLimit("claude", 256 * 1024, "as sent", _encoded),
        DeliveryLimit("copilot", 256 * 1024, "as sent", _encoded),
        DeliveryLimit("opencode", 256 * 1024, "as sent", _encoded),
    )
}


def compose(role: str, persona: PersonaText | None, envelope_version: int = ENVELOPE_VERSION) -> ComposedPrompt:
    """Compose the system prompt: role, blank line, persona in its envelope.

    Without a persona the result is the role, byte for byte.

    Args:
        role: the role text, possibly empty.  A living soul composes its sections
            into this text; the envelope and the digest do not change for it.
        persona: the validated soul, or none.
        envelope_version: the version that the binding names.

    Raises:
        Unavailable: `envelope_version` is newer than this release.
    """
    if not knows_envelope(envelope_version):
        raise Unavailable(
            f"this release does not know envelope version {envelope_version}; run the release that bound the Task"
        )
    text = role
    if persona is not None:
        head, tail = _ENVELOPES[envelope_version]
        text = (f"{role}\n\n" if role else "") + head + persona.reveal() + tail
    data = text.encode()
    return ComposedPrompt(
        text=SensitiveText(text),
        digest=digest_bytes(data),
        role_bytes=len(role.encode()),
        soul_bytes=len(persona.encode()) if persona else 0,
        envelope_version=envelope_version,
    )


def delivered_size(prompt: ComposedPrompt, path: DeliveryPath) -> int:
    """Return the prompt's size in bytes in the form that `path` delivers."""
    return DELIVERY_LIMITS[path].measure(prompt.text.reveal())


def check_delivery(prompt: ComposedPrompt, path: DeliveryPath) -> None:
    """Refuse a prompt that does not fit the way it would be delivered.

    Raises:
        Refusal: `PromptTooLarge`, naming limit, size and path.
    """
    limit = DELIVERY_LIMITS[path]
    size = delivered_size(prompt, path)
    if size > limit.limit:
        raise Refusal(
            Reason.PROMPT_TOO_LARGE,
            f"the composed system prompt has {size} bytes {limit.form}, the limit for {path} is {limit.limit}",
        )


def knows_envelope(version: int) -> bool:
    """Tell whether this release can compose and check that envelope version."""
    return version in _ENVELOPES
