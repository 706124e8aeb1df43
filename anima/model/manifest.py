"""From plain JSON data to a typed resource, with every fault in it at once.

The same rules hold for a file given to `anima apply`, a request to the gateway
and the payload of a Task workflow, so this module is pure and deterministic.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any

from pydantic import ValidationError

from anima.model.agent import Agent
from anima.model.composition import DeliveryPath, check_delivery, compose
from anima.model.errors import Refusal
from anima.model.persona import PersonaText, check_expected, persona_from_text
from anima.model.plain import plain_problems
from anima.model.problems import Problem, child_path, problems_of, summary
from anima.model.provider import Provider
from anima.model.reasons import Reason
from anima.model.resources import API_VERSION, DEFAULT_NAMESPACE, ConfigMap, Resource, Secret
from anima.model.task import MAX_SPEC_BYTES, Task

MAX_PROBLEMS = 100
_ENOUGH = MAX_PROBLEMS + 1
_MAX_PATH = 256


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of resource: its envelope, its plural, and the reason of a refusal."""

    model: type[Resource]
    api_version: str
    plural: str
    reason: Reason

    @property
    def name(self) -> str:
        return self.model.__name__


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(Agent, API_VERSION, "agents", Reason.AGENT_INVALID),
        Kind(Provider, API_VERSION, "providers", Reason.PROVIDER_INVALID),
        Kind(Task, API_VERSION, "tasks", Reason.TASK_INVALID),
        Kind(ConfigMap, "v1", "configmaps", Reason.RESOURCE_INVALID),
        Kind(Secret, "v1", "secrets", Reason.RESOURCE_INVALID),
    )
}


@dataclass(frozen=True, slots=True)
class _Fault:
    """A problem with the reason that it alone would give."""

    reason: Reason
    problem: Problem


def parse_resource(data: Any, namespace: str = DEFAULT_NAMESPACE) -> Resource:
    """Validate one manifest of any kind.

    `status` is the system's and is ignored, so that what was read may be applied.

    Args:
        data: plain data, as JSON or YAML gives it.
        namespace: for a manifest that names none.

    Raises:
        Refusal: the kind's reason, a soul's own reason, or `ResourceInvalid`,
            with every problem.
    """
    kind = _kind_of(data)
    metadata = data.get("metadata")
    if isinstance(metadata, dict):
        metadata = {"namespace": namespace, **metadata}
    return _parse(kind, {**data, "metadata": metadata} if "metadata" in data else data)


def parse_task(payload: Any, namespace: str, name: str) -> Task:
    """Validate the payload of a Task workflow; only `spec` must be there.

    Args:
        payload: the Task's manifest, as any SDK or `temporal workflow start` sends it.
        namespace: from the workflow's id; the manifest may not contradict it.
        name: from the workflow's id, too.

    Raises:
        Refusal: `TaskInvalid` with every problem.
    """
    task = KINDS["Task"]
    if not isinstance(payload, dict):
        raise _refusal("the payload", [_Fault(task.reason, _not_a_map("", payload))], task.reason)
    metadata = payload.get("metadata", {})
    faults: list[_Fault] = []
    if isinstance(metadata, dict):
        for field, expected in (("name", name), ("namespace", namespace)):
            if metadata.get(field, expected) != expected:
                problem = Problem(f"metadata.{field}", f"contradicts the workflow's id, which says {expected}")
                faults.append(_Fault(task.reason, problem))
        metadata = {**metadata, "name": name, "namespace": namespace}
    body = {"apiVersion": task.api_version, "kind": task.name, **payload, "metadata": metadata}
    parsed = _parse(task, body, faults)
    assert isinstance(parsed, Task)
    return parsed


def _kind_of(data: Any) -> Kind:
    if not isinstance(data, dict):
        raise _refusal("the manifest", [_Fault(Reason.RESOURCE_INVALID, _not_a_map("", data))])
    given = data.get("kind")
    kind = KINDS.get(given) if isinstance(given, str) else None
    if kind is None:
        fault = Problem(
            "kind", "is not a known kind" if "kind" in data else "required field is missing", near_kind(given)
        )
        raise _refusal("the manifest", [_Fault(Reason.RESOURCE_INVALID, fault)])
    return kind


def near_kind(given: Any) -> str:
    """Suggest the nearest known kind, or list all of them."""
    lowered = {name.lower(): name for name in KINDS} | {kind.plural: name for name, kind in KINDS.items()}
    near = (
        get_close_matches(given.lower(), lowered, n=1, cutoff=0.7) if isinstance(given, str) and len(given) < 64 else []
    )
    return f"did you mean {lowered[near[0]]}?" if near else f"known kinds: {', '.join(KINDS)}"


def _parse(kind: Kind, data: Mapping[str, Any], faults: list[_Fault] | None = None) -> Resource:
    body = {key: value for key, value in data.items() if key != "status"}
    found = list(faults or [])
    found += [_Fault(kind.reason, problem) for problem in _envelope_problems(kind, body)]
    plain = list(islice(plain_problems(body), _ENOUGH))
    found += [_Fault(kind.reason, problem) for problem in plain]
    if not plain and kind.model is Task:
        # What is too large is refused for that alone: workflows have no time to read it.
        _check_size(kind, body)
    if kind.model is Secret:
        body, decoding = _decode_secret(body)
        found += [_Fault(kind.reason, problem) for problem in decoding]
    known = [fault.problem.path for fault in found]
    try:
        # By the names on the wire only: `agent_ref` is no field of a manifest.
        resource = kind.model.model_validate(body, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = problems_of(error, kind.model, _ENOUGH)
        problems = [problem for problem in problems if not _covered(problem.path, known)]
        found += [_Fault(kind.reason, problem) for problem in problems]
        raise _refusal(_subject(kind, data), found, kind.reason) from None
    if isinstance(resource, Agent):
        found += _agent_faults(resource)
    if found:
        raise _refusal(_subject(kind, data), found, kind.reason)
    return resource


def _covered(path: str, known: list[str]) -> bool:
    """Tell whether a better word was said about this field, or one inside it."""
    return any(other == path or other.startswith((f"{path}.", f"{path}[")) for other in known)


def _envelope_problems(kind: Kind, body: Mapping[str, Any]) -> Iterator[Problem]:
    if body.get("apiVersion") != kind.api_version:
        what = "is not the version of this kind" if "apiVersion" in body else "required field is missing"
        yield Problem("apiVersion", what, f"write {kind.api_version}")
    if body.get("kind") != kind.name:
        yield Problem("kind", "is not the kind that belongs here", f"write {kind.name}")


def _check_size(kind: Kind, body: Mapping[str, Any]) -> None:
    size = len(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_SPEC_BYTES:
        problem = Problem("", f"the Task has {size} bytes as JSON, the limit is {MAX_SPEC_BYTES}", "shorten the prompt")
        raise _refusal(_subject(kind, body), [_Fault(kind.reason, problem)])


def _decode_secret(body: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Turn base64 `data` into `stringData`, which wins where both have a key."""
    data, given = body.get("data"), body.get("stringData", {})
    if not isinstance(data, dict) or not isinstance(given, dict):
        return body, []
    decoded: dict[str, str] = {}
    problems: list[Problem] = []
    for key, value in data.items():
        try:
            decoded[key] = base64.b64decode(value, validate=True).decode()
        except (TypeError, ValueError):
            where = child_path("data", str(key))
            problems.append(Problem(where, "is not base64 of UTF-8 text", "use stringData for plain text"))
    rest = {key: value for key, value in body.items() if key != "data"}
    return {**rest, "stringData": {**decoded, **given}}, problems


def _agent_faults(agent: Agent) -> Iterator[_Fault]:
    """Check what an Agent carries itself; its ConfigMaps are read elsewhere."""
    role = list(_refusals("spec.systemPrompt.inline", lambda: _check_delivery(agent, None)))
    yield from role
    soul = agent.spec.soul
    if soul is None or soul.inline is None:
        return
    try:
        persona = persona_from_text(soul.inline.reveal(), "the soul")
    except Refusal as refusal:
        yield _fault("spec.soul.inline", refusal)
        return
    yield from _refusals("spec.soul.digest", lambda: check_expected(persona, soul.digest, "the soul"))
    if not role:
        yield from _refusals("spec.soul.inline", lambda: _check_delivery(agent, persona))


def _refusals(path: str, check: Callable[[], None]) -> Iterator[_Fault]:
    try:
        check()
    except Refusal as refusal:
        yield _fault(path, refusal)


def _check_delivery(agent: Agent, persona: PersonaText | None) -> None:
    role = agent.spec.system_prompt
    # What an external runtime can deliver is not known here.
    if agent.spec.runtime_ref is not None or (role is not None and role.inline is None):
        return
    path: DeliveryPath = agent.spec.runtime.type if agent.spec.runtime else "ai"
    check_delivery(compose(role.inline.reveal() if role and role.inline else "", persona), path)


def _fault(path: str, refusal: Refusal) -> _Fault:
    return _Fault(refusal.reason, Problem(path, refusal.message, refusal.reason.remedy))


def _not_a_map(path: str, value: Any) -> Problem:
    names = {list: "a list", str: "text", type(None): "empty"}
    return Problem(path, f"must be a map of fields, but is {names.get(type(value), 'a single value')}")


def _subject(kind: Kind, data: Mapping[str, Any]) -> str:
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    shown = isinstance(name, str) and len(name) <= 63 and name.isascii() and name.isprintable()
    return f"{kind.name} {name}" if shown else f"{kind.name} without a valid name"


def _refusal(subject: str, faults: list[_Fault], otherwise: Reason = Reason.RESOURCE_INVALID) -> Refusal:
    """Make one refusal of all faults; a reason they share is its reason."""
    reasons = {fault.reason for fault in faults}
    reason = reasons.pop() if len(reasons) == 1 else otherwise
    problems = [_shortened(fault.problem) for fault in faults[:MAX_PROBLEMS]]
    if len(faults) > MAX_PROBLEMS:
        problems.append(Problem("", "and more problems"))
    return Refusal(reason, f"{subject} is not valid: {summary(problems)}", problems)


def _shortened(problem: Problem) -> Problem:
    path = problem.path if len(problem.path) <= _MAX_PATH else problem.path[:_MAX_PATH] + "…"
    return Problem(path, problem.message, problem.remedy)
