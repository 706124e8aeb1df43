"""The soul binding of a Task: written once, digests only.

Source of the rules: agent-soul, "Revisions, retries, and Sessions".
"""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from anima.model.base import Int, Model
from anima.model.digests import Digest, digest_json
from anima.model.errors import Refusal
from anima.model.reasons import Reason


class Revision(Model):
    """What one read of the Agent and its sources gives, as identities."""

    agent_uid: str = Field(alias="agentUID")
    agent_generation: Int
    soul_digest: Digest | None = None
    prompt_digest: Digest
    envelope_version: Int

    @property
    def session_digest(self) -> str:
        """The revision a Session is pinned to: neither the Task nor its inputs."""
        return digest_json("anima.session-revision/1", self.to_json())


class SoulBinding(Model):
    """Which soul a Task runs under, for ever."""

    agent_uid: Annotated[str, Field(min_length=1, max_length=128, alias="agentUID")]
    agent_generation: Annotated[Int, Field(ge=1)]
    task_uid: Annotated[str, Field(min_length=1, max_length=128, alias="taskUID")]
    soul_digest: Digest
    prompt_digest: Digest
    inputs_digest: Digest
    inputs_version: Int
    envelope_version: Int
    bound_at: Annotated[datetime, Field(strict=False)]

    @property
    def revision(self) -> Revision:
        """What was bound, without the Task: what a Session is pinned to."""
        return Revision(
            agent_uid=self.agent_uid,
            agent_generation=self.agent_generation,
            soul_digest=self.soul_digest,
            prompt_digest=self.prompt_digest,
            envelope_version=self.envelope_version,
        )


def check_binding(bound: SoulBinding, current: Revision) -> None:
    """Refuse to go on under anything but the bound revision; `check_inputs` is its twin.

    Raises:
        Refusal: `SoulRemoved` or `SoulDrift`.
    """
    if current.soul_digest is None and current.agent_uid == bound.agent_uid:
        raise Refusal(Reason.SOUL_REMOVED, f"the Agent has no soul any more, the Task was bound to {bound.soul_digest}")
    for name, was, now in _identities(bound, current):
        if was != now:
            raise Refusal(Reason.SOUL_DRIFT, f"{name} was {was} when the Task was bound and is {now} now")


def _identities(bound: SoulBinding, current: Revision) -> list[tuple[str, Any, Any]]:
    return [
        ("the Agent's uid", bound.agent_uid, current.agent_uid),
        ("the soul's digest", bound.soul_digest, current.soul_digest),
        ("the prompt's digest", bound.prompt_digest, current.prompt_digest),
        ("the Agent's generation", bound.agent_generation, current.agent_generation),
        ("the envelope's version", bound.envelope_version, current.envelope_version),
    ]
