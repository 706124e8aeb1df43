"""The environment of a Job: read literally, checked, and taken out of reach.

Source of the rules: agent-soul, "Runtime delivery" (AI worker).
"""

import os
from collections.abc import MutableMapping
from dataclasses import dataclass

from anima.model.attempts import AttemptInput, AttemptKey
from anima.model.composition import knows_envelope
from anima.model.digests import digest_bytes
from anima.model.errors import Refusal
from anima.model.persona import SensitiveText
from anima.model.reasons import Reason
from anima.model.resources import RESERVED_ENV_PREFIX
from anima.model.wire import BINDING_SCHEMA, JobVariable


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """What a Job was started with.  Its secrets show themselves only when asked."""

    gateway: str
    key: AttemptKey
    token: SensitiveText
    system_prompt: SensitiveText
    prompt_digest: str
    envelope_version: str
    binding_schema: str
    provider_key: SensitiveText | None = None


def take_environment(environ: MutableMapping[str, str]) -> JobEnvironment:
    """Read Anima's variables and remove them, so that no child inherits them.

    Values are literal: nothing in them is expanded.  On Kubernetes the kubelet has
    already turned ``$$`` back into ``$``.

    Args:
        environ: the process's environment.

    Raises:
        Refusal: `JobFailed` if gateway, attempt or token are missing, so that there
            is nobody to report to.
    """
    values = {name: environ.pop(name, "") for name in [*environ] if name.startswith(RESERVED_ENV_PREFIX)}
    missing = [name for name in (JobVariable.GATEWAY, JobVariable.ATTEMPT, JobVariable.TOKEN) if not values.get(name)]
    if missing:
        raise Refusal(Reason.JOB_FAILED, f"the Job was started without {', '.join(missing)}")
    provider_key = values.get(JobVariable.PROVIDER_KEY)
    return JobEnvironment(
        gateway=values[JobVariable.GATEWAY],
        key=_key(values[JobVariable.ATTEMPT]),
        token=SensitiveText(values[JobVariable.TOKEN]),
        system_prompt=SensitiveText(values.get(JobVariable.SYSTEM_PROMPT, "")),
        prompt_digest=values.get(JobVariable.PROMPT_DIGEST, ""),
        envelope_version=values.get(JobVariable.ENVELOPE_VERSION, ""),
        binding_schema=values.get(JobVariable.BINDING_SCHEMA, ""),
        provider_key=SensitiveText(provider_key) if provider_key else None,
    )


def check_environment(environment: JobEnvironment) -> str:
    """Return the system prompt, if it is the one the Task is bound to.

    Raises:
        Refusal: `PromptDigestMismatch` for another prompt, or for a binding schema
            or envelope version that this release does not know.
    """
    if environment.binding_schema != BINDING_SCHEMA:
        raise _mismatch(
            f"the orchestrator speaks binding schema {_shown(environment.binding_schema)}, "
            f"this worker knows {BINDING_SCHEMA}"
        )
    version = environment.envelope_version
    if not (version.isascii() and version.isdigit() and knows_envelope(int(version))):
        raise _mismatch(f"the prompt has envelope version {_shown(version)}, which this worker does not know")
    # The bytes as the kernel delivered them, whatever the locale.
    received = os.fsencode(environment.system_prompt.reveal())
    if digest_bytes(received) != environment.prompt_digest:
        raise _mismatch(
            f"the system prompt that arrived has digest {digest_bytes(received)}, "
            f"the Job was created for {_shown(environment.prompt_digest)}"
        )
    try:
        return received.decode()
    except UnicodeDecodeError:
        raise _mismatch("the system prompt that arrived is not UTF-8") from None


def check_input(environment: JobEnvironment, given: AttemptInput) -> None:
    """Refuse an input that belongs to another attempt, prompt or release.

    Raises:
        Refusal: `PromptDigestMismatch`.
    """
    if given.key != environment.key:
        raise _mismatch(f"the gateway sent the input of attempt {given.key.path}, this is {environment.key.path}")
    if given.system_prompt_digest != environment.prompt_digest:
        raise _mismatch(
            f"the attempt's input names system prompt {given.system_prompt_digest}, "
            f"the Job was created for {environment.prompt_digest}"
        )
    if str(given.envelope_version) != environment.envelope_version:
        raise _mismatch(
            f"the attempt's input names envelope version {given.envelope_version}, "
            f"the Job was created for {environment.envelope_version}"
        )
    received = digest_bytes(given.user_prompt.encode())
    if received != given.user_prompt_digest:
        raise _mismatch(
            f"the user prompt that arrived has digest {received}, the input announces {given.user_prompt_digest}"
        )
    expected = given.transcript_ref.digest if given.transcript_ref else None
    arrived = given.transcript.digest if given.transcript else None
    if arrived != expected:
        raise _mismatch(
            f"the transcript that arrived has digest {arrived or '(none)'}, "
            f"the attempt was created for {expected or '(none)'}"
        )


def _key(path: str) -> AttemptKey:
    try:
        return AttemptKey.parse(path)
    except ValueError:
        raise Refusal(
            Reason.JOB_FAILED, f"{JobVariable.ATTEMPT} is not an attempt: it has the form uid/iteration/attempt"
        ) from None


def _mismatch(message: str) -> Refusal:
    return Refusal(Reason.PROMPT_DIGEST_MISMATCH, message)


def _shown(value: str) -> str:
    # What should be a version or a digest might be anything, a misplaced prompt too.
    return value if value.isascii() and value.isprintable() and 0 < len(value) <= 71 else "(unreadable)"
