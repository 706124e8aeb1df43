"""How each kind of object looks to a person."""

from collections.abc import Callable, Sequence
from typing import Any

from anima.cli.output import emit_fields, emit_table
from anima.model.manifest import Kind

Body = dict[str, Any]
Cells = dict[str, Callable[[Body], str]]


def short(digest: str | None) -> str:
    """Return enough of a digest to tell it from others."""
    return (digest or "").removeprefix("sha256:")[:12]


def show_table(kind: Kind, found: Sequence[Body]) -> None:
    """Print one line an object."""
    cells = _TASK if kind.name == "Task" else {**_META, **_COLUMNS[kind.name]}
    emit_table(list(cells), [[cell(body) for cell in cells.values()] for body in found])


def show_tasks(found: Sequence[Body]) -> None:
    """Print one line a Task."""
    emit_table(list(_TASK), [[cell(body) for cell in _TASK.values()] for body in found])


def show_agent(body: Body) -> None:
    """Print an Agent's readiness, and the digests and sizes of its prompt."""
    spec, prompt = body["spec"], body.get("prompt", {})
    emit_fields(
        [
            ("Agent", f"{body['metadata']['namespace']}/{body['metadata']['name']}"),
            ("UID", body["metadata"].get("uid", "")),
            ("Generation", str(body["metadata"].get("generation", ""))),
            ("Ready", _readiness(body)),
            ("Provider", spec.get("providerRef", {}).get("name", "")),
            ("Model", spec.get("model", {}).get("name", "")),
            ("Runtime", spec.get("runtime", {}).get("type", "ai")),
            *prompt_fields(prompt),
        ]
    )


def prompt_fields(prompt: Body) -> list[tuple[str, str]]:
    """Return what is known of a composed prompt; its text is not among it."""
    if not prompt:
        return []
    fields = [
        ("Soul", f"{prompt['soulDigest']}, {prompt['soulBytes']} bytes" if prompt.get("soulDigest") else "none"),
        ("Role", f"{prompt['roleBytes']} bytes"),
        ("Prompt", f"{prompt['promptDigest']}, envelope version {prompt['envelopeVersion']}"),
    ]
    for delivery in prompt["deliveries"]:
        marks = ("" if delivery["fits"] else ", DOES NOT FIT", ", used" if delivery["path"] == prompt["path"] else "")
        sizes = f"{delivery['size']} of {delivery['limit']} bytes {delivery['form']}"
        fields.append((f"For {delivery['path']}", sizes + "".join(marks)))
    return fields


def show_status(body: Body) -> None:
    """Print a Task's status."""
    binding, result = body.get("soulBinding", {}), body.get("resultRef")
    fields = [
        ("Task", f"{body['namespace']}/{body['name']}"),
        ("UID", body["uid"]),
        ("Agent", body.get("agent", "")),
        ("Session", body.get("session", "")),
        ("Phase", body["phase"]),
        ("Reason", body.get("reason", "")),
        ("Message", body.get("message", "")),
        ("Attempt", _attempt(body)),
        ("Job", body.get("jobName", "")),
        ("Held by", ", ".join(body.get("holds", []))),
        ("Submitted", body.get("submissionTime", "")),
        ("Started", body.get("startTime", "")),
        ("Ended", body.get("completionTime", "")),
        ("Soul", binding.get("soulDigest", "")),
        ("Prompt", binding.get("promptDigest", "")),
        ("Generation", str(binding.get("agentGeneration", ""))),
        ("Result", f"{result['size']} bytes, {result['digest']}" if result else ""),
    ]
    fields += [(f"  {item['type']}", _condition(item)) for item in body.get("conditions", [])]
    emit_fields(fields)


def _attempt(body: Body) -> str:
    within = f" of iteration {body['iteration']}, {body['totalAttempts']} in all" if body["iteration"] else ""
    return f"{body['attempt']}{within}"


def _condition(item: Body) -> str:
    why = ": ".join(part for part in (item.get("reason"), item.get("message")) if part)
    return f"{item['status']} since {item['lastTransitionTime']}" + (f", {why}" if why else "")


def _ready(body: Body) -> Body:
    conditions = body.get("status", {}).get("conditions", [])
    return next((item for item in conditions if item["type"] == "Ready"), {})


def _readiness(body: Body) -> str:
    ready = _ready(body)
    why = ": ".join(part for part in (ready.get("reason"), ready.get("message")) if part)
    return f"{ready.get('status', '')}{f', {why}' if why else ''}"


_META: Cells = {"NAMESPACE": lambda body: body["metadata"]["namespace"], "NAME": lambda body: body["metadata"]["name"]}
_COLUMNS: dict[str, Cells] = {
    "Agent": {
        "READY": lambda body: _ready(body).get("status", ""),
        "REASON": lambda body: _ready(body).get("reason", ""),
        "PROVIDER": lambda body: body["spec"].get("providerRef", {}).get("name", ""),
        "GENERATION": lambda body: str(body["metadata"].get("generation", "")),
    },
    "Provider": {
        "TYPE": lambda body: body["spec"]["type"],
        "MODEL": lambda body: body["spec"].get("defaultModel", ""),
    },
    "ConfigMap": {
        "KEYS": lambda body: ", ".join(body.get("data", {})),
        "IMMUTABLE": lambda body: str(body.get("immutable", False)).lower(),
    },
    "Secret": {"KEYS": lambda body: ", ".join(body.get("keys", []))},
}
_TASK: Cells = {
    "NAMESPACE": lambda body: body["namespace"],
    "NAME": lambda body: body["name"],
    "PHASE": lambda body: body["phase"],
    "REASON": lambda body: body.get("reason", ""),
    "ATTEMPT": lambda body: str(body["attempt"]),
    "AGENT": lambda body: body.get("agent", ""),
    "SOUL": lambda body: short(body.get("soulBinding", {}).get("soulDigest")),
    "SUBMITTED": lambda body: body.get("submissionTime", ""),
}
