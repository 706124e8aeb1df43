"""The inputs of a Task: what a binding freezes of its spec.

Source of the rules: agent-soul, "Revisions, retries, and Sessions".
"""

from functools import cache
from typing import Any

from anima.model.binding import SoulBinding
from anima.model.digests import digest_json
from anima.model.errors import Refusal, Unavailable
from anima.model.reasons import Reason
from anima.model.task import TaskSpec

INPUTS_VERSION = 2

# Each version names its fields and is kept for ever: a field that a later
# release adds must not look like drift to a Task in flight.
_VERSION_1 = frozenset({
    "type", "agentRef", "prompt", "ai", "retryPolicy", "timeout", "deadline", "env", "resources", "priority",
})  # fmt: skip
_PROJECTIONS = {
    1: _VERSION_1,
    2: _VERSION_1 | {"sessionRef"},
}
CONTROL_FIELDS = frozenset({"suspend"})


def inputs_digest(spec: TaskSpec, version: int = INPUTS_VERSION) -> str:
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


def _used_fields(spec: TaskSpec) -> set[str]:
    return {alias for name, (alias, default) in _defaults(type(spec)).items() if getattr(spec, name) != default}


@cache
def _defaults(model: type[TaskSpec]) -> dict[str, tuple[str, Any]]:
    # Finding a default takes pydantic longer than the digest itself.
    return {
        name: (field.alias or name, field.get_default(call_default_factory=True))
        for name, field in model.model_fields.items()
    }


def spec_digest(spec: TaskSpec) -> str:
    """Digest a whole Task spec, control fields too: its content at submission."""
    return digest_json("anima.task-spec/1", spec.to_json())


def changed_fields(before: TaskSpec, after: TaskSpec) -> list[str]:
    """Name the frozen fields in which two specs differ."""
    old, new = before.to_json(), after.to_json()
    keys = (old.keys() | new.keys()) - CONTROL_FIELDS
    return sorted(key for key in keys if old.get(key) != new.get(key))


def frozen_changes(before: TaskSpec, after: TaskSpec, *, bound: bool) -> list[str]:
    """Name the fields that an edit may not change.

    A Task keeps its place in its Session from admission on, and everything but the
    control fields once it is bound to a soul.
    """
    changed = changed_fields(before, after)
    return changed if bound else [field for field in changed if field == "sessionRef"]


def check_inputs(bound: SoulBinding, spec: TaskSpec) -> None:
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
