"""The soul binding of a Task: written once, digests only.

Source of the rules: agent-soul, "Revisions, retries, and Sessions".
"""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from anima.model.base import Int, Model
from anima.model.digests import Digest, digest_json
from anima.model.errors import Refusal, Unavailable
from anima.model.reasons import Reason

if TYPE_CHECKING:
    from anima.model.task import TaskSpec

INPUTS_VERSION = 1

# Each version names its fields and is kept for ever: a field that a later
# release adds must not look like drift to a Task in flight.
_PROJECTIONS = {
    1: frozenset({
        "type", "agentRef", "prompt", "ai", "retryPolicy", "timeout", "deadline", "env", "resources", "priority",
    }),
}  # fmt: skip
CONTROL_FIELDS = frozenset({"suspend"})


class SoulBinding(Model):
    """Which soul a Task runs under, for ever."""

    agent_uid: Annotated[str, Field(min_length=1, max_length=128, alias="agentUID")]
    agent_generation: Annotated[Int, Field(ge=1)]
    task_uid: Annotated[str, Field(min_length=1, max_length=128, alias="taskUID")]
    soul_digest: Digest
    prompt_digest: Digest
    inputs_digest: Digest
    inputs_version: Int = INPUTS_VERSION
    envelope_version: Int
    bound_at: Annotated[datetime, Field(strict=False)]


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


def inputs_digest(spec: "TaskSpec", version: int = INPUTS_VERSION) -> str:
    """Digest a Task's frozen inputs: every field but the control fields.

    Defaults are applied and durations and quantities normalised first, so equal
    meanings have equal digests.

    Args:
        spec: the Task's spec.
        version: the projection that the binding names.

    Raises:
        Refusal: `FrozenInputDrift` if the spec uses fields newer than `version`.
        Unavailable: `version` is newer than this release.
    """
    if version not in _PROJECTIONS:
        raise Unavailable(f"this release does not know inputs version {version}; run the release that bound the Task")
    fields = _PROJECTIONS[version]
    newer = _used_fields(spec) - fields - CONTROL_FIELDS
    if newer:
        raise Refusal(
            Reason.FROZEN_INPUT_DRIFT,
            f"the Task's spec uses {', '.join(sorted(newer))}, which inputs version {version} does not cover",
        )
    body = spec.to_json()
    return digest_json(f"anima.task-inputs/{version}", {key: body[key] for key in sorted(fields & body.keys())})


def _used_fields(spec: "TaskSpec") -> set[str]:
    return {
        field.alias or name
        for name, field in type(spec).model_fields.items()
        if getattr(spec, name) != field.get_default(call_default_factory=True)
    }


def spec_digest(spec: "TaskSpec") -> str:
    """Digest a whole Task spec, control fields too: its content at submission."""
    return digest_json("anima.task-spec/1", spec.to_json())


def changed_fields(before: "TaskSpec", after: "TaskSpec") -> list[str]:
    """Name the frozen fields in which two specs differ."""
    old, new = before.to_json(), after.to_json()
    keys = (old.keys() | new.keys()) - CONTROL_FIELDS
    return sorted(key for key in keys if old.get(key) != new.get(key))


def check_inputs(bound: SoulBinding, spec: "TaskSpec") -> None:
    """Refuse a Task whose frozen inputs are not those that were bound.

    Raises:
        Refusal: `FrozenInputDrift`.
    """
    now = inputs_digest(spec, bound.inputs_version)
    if now != bound.inputs_digest:
        raise Refusal(
            Reason.FROZEN_INPUT_DRIFT,
            f"the Task's spec has inputs digest {now}, it was bound with {bound.inputs_digest}",
        )


def check_binding(bound: SoulBinding, current: Revision, spec: "TaskSpec") -> None:
    """Refuse to go on under anything but the bound revision and inputs.

    Raises:
        Refusal: `SoulRemoved`, `SoulDrift` or `FrozenInputDrift`.
    """
    check_inputs(bound, spec)
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
